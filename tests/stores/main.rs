//! The one path on every store: one test body, the engines as parameters.
//!
//! Each test counts effects and claims, so that "nothing lost, nothing twice" is checked in the
//! database and not only in what `execute` says.

mod bodies;
mod columns;
mod doubt;
mod engines;
mod kept;
mod misuse;
mod mysql;
mod pooler;
mod postgres;
mod sqlite;
mod start;
