//! The error sink, and every text that this crate can report.
//!
//! A text is one sentence that says what is wrong, then a line that says what to write or why.
//! Carets cannot point inside a string literal, so every text about a key names the field.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::Error;

use crate::args::ARGUMENTS;
use crate::model::{Level, Naming};

/// Collects mistakes, so that all of them are reported at once.
#[derive(Default)]
#[must_use]
pub(crate) struct Errors(Vec<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    /// The value, if it is there and no mistake was found.
    pub(crate) fn or<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// One `compile_error!` for each mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.iter().map(Error::to_compile_error).collect()
    }
}

// The arguments.

pub(crate) fn unknown_argument(found: impl ToTokens) -> Error {
    let expected = ARGUMENTS.map(|name| format!("`{name}`")).join(", ");
    let text = format!("unknown argument `{}`, expected {expected}", text(&found));
    Error::new_spanned(found, text)
}

pub(crate) fn argument_twice(name: &Ident) -> Error {
    Error::new(name.span(), format!("`{name}` is set twice"))
}

/// `form` is an example of how the argument is written.
pub(crate) fn malformed_argument(at: impl ToTokens, name: &Ident, form: &str) -> Error {
    Error::new_spanned(at, format!("`{name}` is malformed\nhelp: write `{form}`"))
}

pub(crate) fn comma_expected(found: impl ToTokens) -> Error {
    let text = format!("expected `,` between arguments, found `{}`", text(&found));
    Error::new_spanned(found, text)
}

pub(crate) fn level_out_of_range(found: impl ToTokens) -> Error {
    let text = format!("`level` must be 0, 1 or 2, found `{}`", text(&found));
    Error::new_spanned(found, text)
}

pub(crate) fn level_two_without_key(level: Span) -> Error {
    let text = "`level = 2` needs a `key`\n\
        help: name the fields that identify the operation: `key = \"customer_id, external_ref\"`";
    Error::new(level, text)
}

pub(crate) fn key_without_effect(key: Span, level: Level) -> Error {
    let text = format!(
        "`key` has no effect at `level = {}`\nhelp: remove `key` or use `level = 2`",
        level.number()
    );
    Error::new(key, text)
}

pub(crate) fn without_effect_at_level_zero(at: Span, argument: &str) -> Error {
    let text = format!(
        "`{argument}` has no effect at `level = 0`\n\
         help: remove `{argument}`, or let the handler claim with `level = 1` or `level = 2`"
    );
    Error::new(at, text)
}

/// Messages of one key agree in the key's fields by themselves.
pub(crate) fn same_field_in_key(same: Span, field: &str) -> Error {
    let text = format!(
        "`same` field `{field}` is part of the key\n\
         help: name fields that are not in `key` and must not differ among messages of one key"
    );
    Error::new(same, text)
}

pub(crate) fn fields_empty(at: Span, naming: Naming) -> Error {
    Error::new(at, format!("`{}` must name at least one field", naming.argument()))
}

pub(crate) fn field_not_a_path(at: impl ToTokens, naming: Naming, field: &str) -> Error {
    let text = format!(
        "{named} field `{field}` is not a field path\n\
         help: name fields of the message, nested ones with dots: `customer_id`, `address.postcode`",
        named = named(naming)
    );
    Error::new_spanned(at, text)
}

pub(crate) fn field_twice(at: impl ToTokens, naming: Naming, field: &str) -> Error {
    Error::new_spanned(at, format!("{} field `{field}` is listed twice", named(naming)))
}

fn named(naming: Naming) -> &'static str {
    match naming {
        Naming::Key => "key",
        Naming::Same => "`same`",
    }
}

/// `form` is an example of how the argument is written.
pub(crate) fn name_empty(at: Span, argument: &Ident, form: &str) -> Error {
    Error::new(at, format!("`{argument}` must not be empty\nhelp: write a name: `{form}`"))
}

pub(crate) fn constraint_without_key(constraint: Span) -> Error {
    let text = "`constraint` needs a `key`\n\
        help: name a field for each of its columns, in its order: `key = \"customer_id, external_ref\"`";
    Error::new(constraint, text)
}

/// Below level 2 there is no key whose columns it could be on.
pub(crate) fn constraint_without_effect(constraint: Span, level: Level) -> Error {
    let text = format!(
        "`constraint` has no effect at `level = {}`\n\
         help: remove `constraint` or use `level = 2`",
        level.number()
    );
    Error::new(constraint, text)
}

pub(crate) fn replay_with_constraint(replay: Span) -> Error {
    let text = "`replay` has no effect with `constraint`\n\
        note: a reply is kept with a claim, and with `constraint` there is none";
    Error::new(replay, text)
}

/// What must agree is compared with the column of the same name.
pub(crate) fn same_field_not_a_column(same: Span, field: &str) -> Error {
    let text = format!(
        "`same` field `{field}` cannot be a column\n\
         note: with `constraint`, fields that must agree are named as their columns are"
    );
    Error::new(same, text)
}

pub(crate) fn crate_path_relative(path: impl ToTokens) -> Error {
    let text = format!(
        "`crate` must be an absolute path, found `{found}`\n\
         help: write `crate = ::{found}` for a dependency or `crate = crate::{found}` for an item of this crate\n\
         note: a relative path would mean different things in different modules",
        found = text(&path)
    );
    Error::new_spanned(path, text)
}

// The function.

pub(crate) fn not_a_function(keyword: impl ToTokens, found: &str) -> Error {
    let text = format!(
        "`#[idempotent]` goes on an `async fn`, found {found}\n\
         help: put it on the function that handles the message"
    );
    Error::new_spanned(keyword, text)
}

pub(crate) fn not_async(function: impl ToTokens, handler: &str) -> Error {
    Error::new_spanned(function, format!("handler `{handler}` must be `async`"))
}

pub(crate) fn qualified(qualifier: impl ToTokens, handler: &str, word: &str) -> Error {
    Error::new_spanned(qualifier, format!("handler `{handler}` must not be `{word}`"))
}

pub(crate) fn generic(generics: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must not be generic\n\
         help: write one handler per message type and share a generic function"
    );
    Error::new_spanned(generics, text)
}

pub(crate) fn lifetimes(generics: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must not name lifetimes\n\
         help: leave them out: `&mut Tx<_>`, `&Delivery`"
    );
    Error::new_spanned(generics, text)
}

pub(crate) fn method(token: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must not take `{}`\n\
         help: use a free function; attributes inside an `impl` cannot add items",
        text(&token)
    );
    Error::new_spanned(token, text)
}

pub(crate) fn transaction_missing(parameters: Span, handler: &str, level: Level) -> Error {
    let text = format!(
        "handler `{handler}` must take `&mut Tx<_>` first at `level = {}`\n\
         note: the claim and the handler's rows commit together",
        level.number()
    );
    Error::new(parameters, text)
}

pub(crate) fn message_missing(parameters: Span, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must take a message\n\
         note: a transaction, one message, then extractors"
    );
    Error::new(parameters, text)
}

pub(crate) fn message_by_reference(message: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must take its message by value\n\
         note: a transaction, one message, then extractors"
    );
    Error::new_spanned(message, text)
}

pub(crate) fn batch_of_one(message: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "`batch` handler `{handler}` must take a `Vec` of messages, found `{}`\n\
         help: write `Vec<{0}>`, or remove `batch`",
        text(&message)
    );
    Error::new_spanned(message, text)
}

pub(crate) fn conditional_parameter(attribute: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must not have a conditional parameter\n\
         help: write two functions and put `#[cfg]` on each"
    );
    Error::new_spanned(attribute, text)
}

pub(crate) fn result_missing(at: Span, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must return `Result`\n\
         note: `Ok` commits the claim, `Err` rolls it back"
    );
    Error::new(at, text)
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}
