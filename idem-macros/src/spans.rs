//! Names and carets of generated code.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident};
use syn::Member;
use syn::spanned::Spanned;

use crate::model::KeyField;

/// A name of our own: neither the user's items nor the user's arguments can be meant by it.
pub(crate) fn local(name: &str) -> Ident {
    format_ident!("__{name}", span = Span::mixed_site())
}

/// The spans of the first and the last token: between them, a caret covers all of them.
pub(crate) fn ends(tokens: &impl ToTokens) -> [Span; 2] {
    let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
    let first = spans.next().unwrap_or_else(Span::call_site);
    [first, spans.last().unwrap_or(first)]
}

/// Puts carets on user code without making the tokens the user's: lints stay quiet in them, and
/// rustc does not offer to edit what the user did not write.
pub(crate) fn located_at(span: Span, tokens: TokenStream) -> TokenStream {
    let relocate = |mut token: TokenTree| {
        if let TokenTree::Group(group) = token {
            token = Group::new(group.delimiter(), located_at(span, group.stream())).into();
        }
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.into_iter().map(relocate).collect()
}

/// Where errors about a field point.
pub(crate) fn span_of(field: &KeyField) -> Span {
    field.members.first().map_or_else(Span::call_site, Spanned::span)
}

/// A field's name where a caret is to end, as if we had written it: a caret from our code to the
/// user's would be anywhere.
pub(crate) fn member_at(span: Span, member: &Member) -> Member {
    let span = Span::call_site().located_at(span);
    let mut member = member.clone();
    match &mut member {
        Member::Named(name) => name.set_span(span),
        Member::Unnamed(index) => index.span = span,
    }
    member
}
