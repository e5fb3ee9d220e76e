//! The attribute and the derives of idem. Use them through `idem_runtime`, where they are documented.
//!
//! `args` (with `key`) and `item` parse, `check` turns what they found into the `model`, and `expand` turns the
//! model into code. Only the parsers and `check` can find a mistake; `errors` has the texts. `derive` has the
//! same stages in miniature.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod args;
mod check;
mod derive;
mod errors;
mod expand;
mod item;
mod key;
mod model;
mod spans;
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

#[expect(missing_docs, reason = "documented where idem-runtime re-exports it: examples run there")]
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn key_part(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive::key_part(item.into()).into()
}

#[expect(missing_docs, reason = "documented where idem-runtime re-exports it: examples run there")]
#[proc_macro_derive(MessageId, attributes(message_id))]
pub fn message_id(item: proc_macro::TokenStream) -> proc_macro::TokenStream {
    derive::message_id(item.into()).into()
}
