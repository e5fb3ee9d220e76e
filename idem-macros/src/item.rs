//! The annotated function: its signature is parsed, its body stays as it is.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Error, FnArg, PatType, Signature, Visibility};

use crate::errors;
use crate::model::Marker;

/// Why an item cannot be a handler.
pub(crate) enum NotRead {
    /// It is no function.
    Other(Error),
    /// A function with a half-typed signature. rustc reports it, so that we need not.
    HalfTyped(Option<Marker>),
}

/// A function with the attribute on it.
pub(crate) struct HandlerFn {
    cfgs: TokenStream,
    is_annotated_again: bool,
    visibility: Visibility,
    pub(crate) signature: Signature,
}

impl HandlerFn {
    /// Reads an item. Its body may be half-typed: it is not looked at, which also spares the time
    /// that it would take to walk through it.
    pub(crate) fn parse(item: TokenStream) -> Result<Self, NotRead> {
        let head = |input: ParseStream<'_>| {
            let attributes = input.call(Attribute::parse_outer)?;
            Ok((attributes, input.parse::<Visibility>()?, input.parse::<TokenStream>()?))
        };
        let signature = |input: ParseStream<'_>| {
            let signature = input.parse::<Signature>()?;
            input.parse::<TokenStream>()?;
            Ok(signature)
        };
        let (attributes, visibility, rest) =
            head.parse2(without_body(item)).map_err(NotRead::Other)?;
        let cfgs = cfgs(&attributes);
        let is_annotated_again = attributes.iter().any(is_ours);
        match signature.parse2(rest.clone()) {
            Ok(signature) => Ok(Self { cfgs, is_annotated_again, visibility, signature }),
            Err(_) => Err(match other_item(rest.clone()) {
                Some(error) => NotRead::Other(error),
                None => NotRead::HalfTyped(
                    name_after_fn(rest).map(|name| marker(&name, visibility, cfgs)),
                ),
            }),
        }
    }

    /// Whether the attribute is there once more.
    pub(crate) fn is_annotated_again(&self) -> bool {
        self.is_annotated_again
    }

    /// The function's name for people.
    pub(crate) fn name(&self) -> String {
        self.signature.ident.unraw().to_string()
    }

    /// The parameters without a receiver.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &PatType> {
        self.signature.inputs.iter().filter_map(|parameter| match parameter {
            FnArg::Receiver(_) => None,
            FnArg::Typed(parameter) => Some(parameter),
        })
    }

    /// The `self` or `Self` that only a method can have.
    pub(crate) fn method_token(&self) -> Option<TokenTree> {
        match self.signature.receiver() {
            Some(receiver) => Some(Ident::new("self", receiver.self_token.span).into()),
            None => find_ident(self.signature.to_token_stream(), "Self"),
        }
    }

    /// The first `impl Trait` among the parameters: a generic parameter without a name.
    pub(crate) fn anonymous_generic(&self) -> Option<TokenTree> {
        self.parameters().find_map(|parameter| find_ident(parameter.ty.to_token_stream(), "impl"))
    }

    pub(crate) fn marker(&self) -> Marker {
        marker(&self.signature.ident, self.visibility.clone(), self.cfgs.clone())
    }
}

/// An item without the braces that it ends with.
fn without_body(item: TokenStream) -> TokenStream {
    let mut trees: Vec<TokenTree> = item.into_iter().collect();
    if let Some(TokenTree::Group(last)) = trees.last()
        && last.delimiter() == Delimiter::Brace
    {
        trees.pop();
    }
    trees.into_iter().collect()
}

fn marker(function: &Ident, visibility: Visibility, cfgs: TokenStream) -> Marker {
    let function_name = function.unraw().to_string();
    let at_the_function = Span::call_site().located_at(function.span());
    Marker {
        name: Ident::new(&marker_name(&function_name), at_the_function),
        visibility,
        cfgs,
        function: function_name,
    }
}

/// `place_order` becomes `PlaceOrderHandler`.
fn marker_name(function: &str) -> String {
    let words = function.split('_').filter(|word| !word.is_empty());
    let mut name: String = words.map(capitalized).collect();
    name.push_str("Handler");
    // Of `_1st`, what is left starts with a digit.
    if !name.starts_with(unicode_ident::is_xid_start) {
        name.insert(0, '_');
    }
    name
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

fn is_ours(attribute: &Attribute) -> bool {
    attribute.path().segments.last().is_some_and(|last| last.ident == "idempotent")
}

/// The function's `#[cfg]`s, which what is generated beside it must share.
fn cfgs(attributes: &[Attribute]) -> TokenStream {
    let cfgs = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    cfgs.map(ToTokens::to_token_stream).collect()
}

/// The error for an item that is no function; `None` for a function.
fn other_item(item: TokenStream) -> Option<Error> {
    let other = |token, found| Some(errors::not_a_function(token, found));
    let tokens: Vec<TokenTree> = item.into_iter().collect();
    for token in &tokens {
        match token.to_string().as_str() {
            "fn" => return None,
            "struct" => return other(token, "a struct"),
            "enum" => return other(token, "an enum"),
            "trait" => return other(token, "a trait"),
            "impl" => return other(token, "an `impl`"),
            "mod" => return other(token, "a module"),
            _ => {}
        }
    }
    other(tokens.first()?, "another item")
}

fn name_after_fn(item: TokenStream) -> Option<Ident> {
    let mut tokens = item.into_iter().skip_while(|token| token.to_string() != "fn");
    match tokens.nth(1) {
        Some(TokenTree::Ident(name)) => Some(name),
        _ => None,
    }
}

/// The first identifier of this name.
pub(crate) fn find_ident(tokens: TokenStream, word: &str) -> Option<TokenTree> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Group(group) => find_ident(group.stream(), word),
        TokenTree::Ident(ref ident) if ident == word => Some(token),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::marker_name;

    #[test]
    fn the_marker_is_named_after_the_function() {
        let cases = [
            ("place_order", "PlaceOrderHandler"),
            ("_place__order_", "PlaceOrderHandler"),
            ("placeOrder", "PlaceOrderHandler"),
            ("v2_order", "V2OrderHandler"),
            ("type", "TypeHandler"),
            ("_1st", "_1stHandler"),
            ("__", "Handler"),
            ("größe_übertragen", "GrößeÜbertragenHandler"),
        ];
        for (function, marker) in cases {
            assert_eq!(marker_name(function), marker);
        }
    }
}
