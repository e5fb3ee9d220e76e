//! End to end: the emulator's wire, the consumer, and a database.

mod cases;
mod duplicates;
mod input;
mod job;
mod kill;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/naive.rs"]
mod naive;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/place_order.rs"]
mod place_order;
