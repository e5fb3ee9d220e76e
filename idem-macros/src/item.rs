//! The annotated function: its signature is parsed, its body stays as it is.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, FnArg, PatType, Result, Signature, Visibility};

use crate::errors;
use crate::model::Marker;

/// A function with the attribute on it.
pub(crate) struct HandlerFn {
    cfgs: TokenStream,
    visibility: Visibility,
    pub(crate) signature: Signature,
}

impl HandlerFn {
    /// Reads an item. Its body may be half-typed: it is not looked at.
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let parser = |input: ParseStream<'_>| {
            let attributes = input.call(Attribute::parse_outer)?;
            let visibility = input.parse()?;
            let ahead = input.fork();
            let signature = input.parse::<Signature>();
            let rest = if signature.is_ok() { input } else { &ahead };
            let rest = rest.parse::<TokenStream>()?;
            let signature = signature.map_err(|error| other_item(rest).unwrap_or(error))?;
            Ok(Self { cfgs: cfgs(&attributes), visibility, signature })
        };
        parser.parse2(item)
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
        let at_the_function = Span::call_site().located_at(self.signature.ident.span());
        Marker {
            name: Ident::new(&marker_name(&self.name()), at_the_function),
            visibility: self.visibility.clone(),
            cfgs: self.cfgs.clone(),
            function: self.name(),
        }
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

/// The function's `#[cfg]`s, which what is generated beside it must share.
fn cfgs(attributes: &[Attribute]) -> TokenStream {
    let cfgs = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    cfgs.map(ToTokens::to_token_stream).collect()
}

/// The error for an item that is no function; `None` for a function that cannot be parsed.
fn other_item(item: TokenStream) -> Option<syn::Error> {
    item.into_iter().find_map(|token| {
        let (article, kind) = match token.to_string().as_str() {
            "struct" => ("a", "struct"),
            "enum" => ("an", "enum"),
            "union" => ("a", "union"),
            "trait" => ("a", "trait"),
            "impl" => ("an", "`impl`"),
            "mod" => ("a", "module"),
            "type" => ("a", "type alias"),
            "static" => ("a", "static"),
            "use" => ("an", "import"),
            _ => return None,
        };
        Some(errors::not_a_function(token, article, kind))
    })
}

fn find_ident(tokens: TokenStream, word: &str) -> Option<TokenTree> {
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
