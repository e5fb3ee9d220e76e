//! The template of a MessageId: text with fields in braces.

use proc_macro2::Span;
use syn::{LitStr, Result};

use crate::errors;
use crate::key;
use crate::model::KeyField;

/// How many bytes a MessageId has at most, as the runtime says.
const SIZE_MAX: usize = 128;

/// A part of a template.
pub(super) enum Piece {
    Text(String),
    Field(KeyField),
}

/// Reads a template, or says what is wrong with it.
pub(super) fn parse(template: &LitStr) -> Result<Vec<Piece>> {
    let pieces = pieces(template)?;
    let text: usize = pieces.iter().map(|piece| piece.text().len()).sum();
    if text > SIZE_MAX {
        return Err(errors::template_too_long(template, text, SIZE_MAX));
    }
    if !pieces.iter().any(|piece| piece.field().is_some()) {
        return Err(errors::template_without_fields(template));
    }
    match indistinct(&pieces) {
        Some((left, right)) => Err(errors::template_fields_indistinct(template, left, right)),
        None => Ok(pieces),
    }
}

impl Piece {
    pub(super) fn field(&self) -> Option<&KeyField> {
        match self {
            Self::Text(_) => None,
            Self::Field(field) => Some(field),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Field(_) => "",
        }
    }
}

fn pieces(template: &LitStr) -> Result<Vec<Piece>> {
    // Not the string's own span: rustc would offer to replace the whole string by one field.
    let span = Span::call_site().located_at(template.span());
    let value = template.value();
    let mut pieces = Vec::new();
    let mut rest = value.as_str();
    while let Some((text, after)) = rest.split_once('{') {
        let Some((field, after)) = after.split_once('}') else {
            return Err(errors::template_unclosed(template, after));
        };
        push_text(&mut pieces, text, template)?;
        let field = key::field_path(field, span)
            .ok_or_else(|| errors::template_field_not_a_path(template, field))?;
        pieces.push(Piece::Field(field));
        rest = after;
    }
    push_text(&mut pieces, rest, template)?;
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<Piece>, text: &str, template: &LitStr) -> Result<()> {
    if text.contains('}') {
        return Err(errors::template_unopened(template));
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(())
}

/// Two fields of which nobody could tell where the first one ends: what ends it is escaped in its
/// value, and an escape is made of letters, digits and `%`.
fn indistinct(pieces: &[Piece]) -> Option<(&str, &str)> {
    let mut fields = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if let Some(field) = piece.field() {
            fields.push((field.name.as_str(), pieces.get(at + 1).map_or("", Piece::text)));
        }
    }
    let mut pairs = fields.iter().zip(fields.iter().skip(1));
    let ends = |text: &str| text.starts_with(|c: char| !c.is_alphanumeric() && c != '%');
    let (left, right) = pairs.find(|((_, after), _)| !ends(after))?;
    Some((left.0, right.0))
}
