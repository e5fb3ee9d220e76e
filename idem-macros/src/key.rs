//! The fields that an argument names, as `key = "customer_id, address.postcode"` or as
//! `key(customer_id, address.postcode)`.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Index, LitStr, Member, Result};

use crate::args::{split_at_commas, tokens};
use crate::errors;
use crate::model::{KeyField, Naming};

/// Reads the string form.
pub(crate) fn from_text(text: &LitStr, naming: Naming) -> Result<Vec<KeyField>> {
    let value = text.value();
    // Not the string's own span: rustc would offer to replace the whole string by one field.
    let span = Span::call_site().located_at(text.span());
    let fields = value.split(',').filter(|field| !field.trim().is_empty());
    let fields = fields.map(|field| Written {
        pieces: vec![(field.to_owned(), span)],
        at: text.to_token_stream(),
    });
    read(fields, naming, text.span())
}

/// Reads the path form, in which every field has its own span.
pub(crate) fn from_paths(paths: &Group, naming: Naming) -> Result<Vec<KeyField>> {
    let trees: Vec<TokenTree> = paths.stream().into_iter().collect();
    let fields = split_at_commas(&trees).map(|field| Written {
        pieces: field.iter().map(|token| (token.to_string(), token.span())).collect(),
        at: tokens(field),
    });
    read(fields, naming, paths.span())
}

/// A field, not yet understood.
struct Written {
    pieces: Vec<(String, Span)>,
    /// Where its errors point.
    at: TokenStream,
}

/// Reports every field that cannot be used, not only the first.
fn read(
    written: impl Iterator<Item = Written>,
    naming: Naming,
    span: Span,
) -> Result<Vec<KeyField>> {
    let mut fields: Vec<KeyField> = Vec::new();
    let mut errors: Option<Error> = None;
    for written in written {
        match field(&written, naming) {
            Ok(field) if !fields.iter().any(|other| other.name == field.name) => fields.push(field),
            Ok(field) => combine(&mut errors, errors::field_twice(written.at, naming, &field.name)),
            Err(error) => combine(&mut errors, error),
        }
    }
    match errors {
        Some(errors) => Err(errors),
        None if fields.is_empty() => Err(errors::fields_empty(span, naming)),
        None => Ok(fields),
    }
}

fn combine(errors: &mut Option<Error>, error: Error) {
    match errors {
        Some(errors) => errors.combine(error),
        None => *errors = Some(error),
    }
}

fn field(written: &Written, naming: Naming) -> Result<KeyField> {
    let segments = segments(&written.pieces);
    field_of(&segments)
        .ok_or_else(|| errors::field_not_a_path(&written.at, naming, &name_of(&segments)))
}

/// Reads one path, as in the braces of a template.
pub(crate) fn field_path(text: &str, span: Span) -> Option<KeyField> {
    field_of(&segments(&[(text.to_owned(), span)]))
}

fn field_of(segments: &[(String, Span)]) -> Option<KeyField> {
    let members = segments.iter().map(|(text, span)| member(text, *span));
    let members = members.collect::<Option<_>>()?;
    Some(KeyField { name: name_of(segments).replace("r#", ""), members })
}

fn name_of(segments: &[(String, Span)]) -> String {
    let names: Vec<&str> = segments.iter().map(|(text, _)| text.as_str()).collect();
    names.join(".").replace(" (", "(")
}

/// Splits at dots, wherever they are: `a.0.1` is the tokens `a`, `.` and `0.1`.
fn segments(pieces: &[(String, Span)]) -> Vec<(String, Span)> {
    let mut segments = Vec::new();
    let mut current = (String::new(), Span::call_site());
    for (text, span) in pieces {
        for (index, part) in text.split('.').enumerate() {
            if index > 0 {
                segments.push(std::mem::replace(&mut current, (String::new(), *span)));
            }
            // The space keeps two tokens without a dot between them from becoming one name.
            current = (format!("{} {part}", current.0), *span);
        }
    }
    segments.push(current);
    for (text, _) in &mut segments {
        *text = text.trim().to_owned();
    }
    segments
}

fn member(text: &str, span: Span) -> Option<Member> {
    if let Ok(index) = text.parse::<u32>()
        && index.to_string() == text
    {
        return Some(Member::Unnamed(Index { index, span }));
    }
    let name = text.strip_prefix("r#").unwrap_or(text);
    if !can_name_a_field(name) {
        return None;
    }
    let raw = name != text || syn::parse_str::<Ident>(name).is_err();
    let ident = if raw { Ident::new_raw(name, span) } else { Ident::new(name, span) };
    Some(Member::Named(ident))
}

/// Whether the text is an identifier or a keyword that can be written as a raw one.
fn can_name_a_field(text: &str) -> bool {
    let mut chars = text.chars();
    let starts = chars.next().is_some_and(|c| c == '_' || unicode_ident::is_xid_start(c));
    starts
        && chars.all(unicode_ident::is_xid_continue)
        && !matches!(text, "_" | "self" | "Self" | "super" | "crate")
}
