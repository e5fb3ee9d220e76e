//! The error sink, and every text that this crate can report.
//!
//! A text is one sentence that says what is wrong, then a line that says what to write or why.
//! Carets cannot point inside a string literal, so every text about a key names the field.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use syn::{Error, LitStr, Member};

use crate::model::{Level, Naming};

/// Collects mistakes, so that all of them are reported at once.
#[derive(Default)]
#[must_use]
pub(crate) struct Errors(Vec<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        self.0.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value, if it is there and no mistake was found.
    pub(crate) fn or<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// One `compile_error!` for each mistake.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.iter().map(Error::to_compile_error).collect()
    }
}

// The arguments.

pub(crate) fn unknown_argument(found: impl ToTokens, expected: &[&str]) -> Error {
    let expected = listed(expected);
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
    let text = format!("`level` must be 0, 1 or 2, found `{}`", text(&found).replace("- ", "-"));
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

pub(crate) fn scope_twice(at: Span, scope: &str) -> Error {
    Error::new(at, format!("scope `{scope}` is listed twice"))
}

pub(crate) fn was_the_scope_itself(was: Span, scope: &str) -> Error {
    let text = format!(
        "`was` names `{scope}`, which is the handler's scope\n\
         help: name a scope that the handler had earlier, or remove `was`"
    );
    Error::new(was, text)
}

pub(crate) fn was_with_constraint(was: Span) -> Error {
    let text = "`was` has no effect with `constraint`\n\
        note: with `constraint` there are no claims, and its rows know no scope";
    Error::new(was, text)
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

pub(crate) fn attribute_twice(handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` has `#[idempotent]` twice\nhelp: put all arguments into one of them"
    );
    Error::new(Span::call_site(), text)
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

pub(crate) fn store_as_transaction(store: impl ToTokens, handler: &str) -> Error {
    let text = format!(
        "handler `{handler}` must take a transaction, found the store `{0}`\n\
         help: write `&mut Tx<{0}>`",
        text(&store).replace(' ', "")
    );
    Error::new_spanned(store, text)
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

// The derives.

pub(crate) fn key_part_for_enum(at: impl ToTokens) -> Error {
    let text = "`KeyPart` cannot be derived for an enum\n\
        help: implement it, and give each variant a text that no renaming changes: \
        `key.part(match self { Self::Euro => \"EUR\" })`";
    Error::new_spanned(at, text)
}

pub(crate) fn derive_for_union(at: impl ToTokens, derive: &str) -> Error {
    let text = format!("`{derive}` cannot be derived for a union\nhelp: use a struct");
    Error::new_spanned(at, text)
}

pub(crate) fn key_part_without_fields(name: &Ident) -> Error {
    let text = format!(
        "`KeyPart` needs at least one field, and `{name}` has none\n\
         note: all its values are equal, so that they cannot tell one key from another"
    );
    Error::new(name.span(), text)
}

pub(crate) fn attribute_on_field(at: impl ToTokens, attribute: &str) -> Error {
    let text = format!(
        "`#[{attribute}]` goes on the struct, found it on a field\n\
         help: remove it, or put it above the struct"
    );
    Error::new_spanned(at, text)
}

pub(crate) fn malformed_attribute(at: impl ToTokens, attribute: &str, form: &str) -> Error {
    Error::new_spanned(at, format!("`#[{attribute}]` is malformed\nhelp: write `{form}`"))
}

pub(crate) fn message_id_for_enum(at: impl ToTokens) -> Error {
    let text = "`MessageId` cannot be derived for an enum\n\
        help: derive it for the struct of each message that is sent";
    Error::new_spanned(at, text)
}

/// `form` is an example of how the template is written.
pub(crate) fn template_missing(name: &Ident, form: &str) -> Error {
    let text = format!(
        "`MessageId` needs a template, and `{name}` has none\nhelp: write `{form}` above the struct"
    );
    Error::new(name.span(), text)
}

pub(crate) fn template_twice(at: impl ToTokens) -> Error {
    Error::new_spanned(at, "`message_id` is set twice")
}

pub(crate) fn template_without_fields(template: &LitStr) -> Error {
    let text = "the template of a MessageId must name at least one field\n\
        note: all messages would have the same id, and all but the first would be dropped";
    Error::new_spanned(template, text)
}

pub(crate) fn template_too_long(template: &LitStr, size: usize, size_max: usize) -> Error {
    let text = format!(
        "the text of this template has {size} bytes without its fields, and a MessageId has \
         {size_max} at most\nhelp: shorten it, and leave room for the fields"
    );
    Error::new_spanned(template, text)
}

pub(crate) fn template_unclosed(template: &LitStr, field: &str) -> Error {
    let text =
        format!("`{{{field}` is not closed\nhelp: write `{{field}}` for the value of a field");
    Error::new_spanned(template, text)
}

pub(crate) fn template_unopened(template: &LitStr) -> Error {
    let text = "a `}` in this template closes nothing\n\
        help: write `{field}` for the value of a field";
    Error::new_spanned(template, text)
}

pub(crate) fn template_field_not_a_path(template: &LitStr, field: &str) -> Error {
    let text = format!(
        "`{{{field}}}` in this template is not a field path\n\
         help: name a field of the struct, a nested one with dots: `{{order_no}}`, `{{address.postcode}}`"
    );
    Error::new_spanned(template, text)
}

pub(crate) fn template_field_unknown(template: &LitStr, field: &str, members: &[Member]) -> Error {
    let members: Vec<String> =
        members.iter().map(|member| text(member).replace("r#", "")).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let text = format!("there is no field `{field}`, expected {}", listed(&members));
    Error::new_spanned(template, text)
}

pub(crate) fn template_fields_indistinct(template: &LitStr, left: &str, right: &str) -> Error {
    let text = format!(
        "nothing tells where `{{{left}}}` ends and `{{{right}}}` begins, so that different values \
         would make one id\n\
         help: put a character between them that is no letter, digit or `%`: `{{{left}}}/{{{right}}}`"
    );
    Error::new_spanned(template, text)
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

fn text(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string()
}
