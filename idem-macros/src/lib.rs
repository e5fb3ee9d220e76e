//! The attribute of idem. Use it through `idem_runtime`, where it is documented.
//!
//! `args` (with `key`) and `item` parse, `check` turns what they found into the `model`, and `expand` turns the
//! model into code. Only the parsers and `check` can find a mistake; `errors` has the texts.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod args;
mod check;
mod errors;
mod expand;
mod item;
mod key;
mod model;
#[cfg(test)]
mod tests;

#[expect(missing_docs, reason = "documented where idem-runtime re-exports it: examples run there")]
#[proc_macro_attribute]
pub fn idempotent(
    arguments: proc_macro::TokenStream,
    item: proc_macro::TokenStream,
) -> proc_macro::TokenStream {
    expand::idempotent(arguments.into(), item.into()).into()
}
