//! `#[derive(MessageId)]`: the id that follows from a message's fields.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, Expr, ExprLit, Lit, LitStr, Member, Meta, Path, Type, parse_quote};

use super::input::Input;
use super::template::{self, Piece};
use crate::errors::{self, Errors};
use crate::spans::{located_at, span_of};

const ATTRIBUTE: &str = "message_id";
const FORM: &str = "#[message_id = \"{order_no}/payment\"]";

/// Whatever is wrong, the type has an id, so that its uses report nothing.
pub(crate) fn message_id(item: TokenStream) -> TokenStream {
    let input = match Input::parse(item, ATTRIBUTE, FORM) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Errors::default();
    let runtime = input.runtime(&mut errors);
    let (pieces, errors) = match check(&input, errors) {
        Ok(pieces) => (Some(pieces), None),
        Err(errors) => (None, Some(errors.into_tokens())),
    };
    let implementation = implementation(&input, pieces.as_deref(), &runtime);
    quote! { #errors #implementation }
}

/// The pieces of the template, which names fields that are there.
fn check(input: &Input, mut errors: Errors) -> Result<Vec<Piece>, Errors> {
    input.no_field_attributes(&mut errors);
    let pieces = match &input.item.data {
        Data::Struct(_) => pieces(input, &mut errors),
        Data::Enum(data) => {
            errors.push(errors::message_id_for_enum(data.enum_token));
            None
        }
        Data::Union(data) => {
            errors.push(errors::derive_for_union(data.union_token, "MessageId"));
            None
        }
    };
    errors.or(pieces)
}

fn pieces(input: &Input, errors: &mut Errors) -> Option<Vec<Piece>> {
    let template = template(input, errors)?;
    match template::parse(&template) {
        Ok(pieces) => {
            unknown_fields(input, &pieces, &template, errors);
            Some(pieces)
        }
        Err(error) => {
            errors.push(error);
            None
        }
    }
}

/// The text of `#[message_id = "…"]`, once.
fn template(input: &Input, errors: &mut Errors) -> Option<LitStr> {
    let mut template = None;
    for attribute in input.attributes() {
        let text = match attribute {
            Meta::List(_) => continue,
            Meta::NameValue(written) => text(&written.value),
            Meta::Path(_) => None,
        };
        match text {
            Some(_) if template.is_some() => errors.push(errors::template_twice(attribute)),
            Some(text) => template = Some(text),
            None => errors.push(errors::malformed_attribute(attribute, ATTRIBUTE, FORM)),
        }
    }
    // What is wrong already may be the template, written in another way.
    if template.is_none() && errors.is_empty() {
        errors.push(errors::template_missing(&input.item.ident, FORM));
    }
    template
}

/// A string, also in the invisible groups of `macro_rules!`.
fn text(mut value: &Expr) -> Option<LitStr> {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        _ => None,
    }
}

/// rustc would say so too, but not what there is to choose from.
fn unknown_fields(input: &Input, pieces: &[Piece], template: &LitStr, errors: &mut Errors) {
    let members: Vec<_> = input.members().map(|(member, _)| member).collect();
    for field in pieces.iter().filter_map(Piece::field) {
        if field.members.first().is_some_and(|first| !members.contains(first)) {
            errors.push(errors::template_field_unknown(template, &field.name, &members));
        }
    }
}

fn implementation(input: &Input, pieces: Option<&[Piece]>, runtime: &Path) -> TokenStream {
    let bound = parse_quote!(#runtime::KeyPart);
    let generics = input.generics_bounded_by(&bound, named_types(input, pieces));
    let (parameters, arguments, condition) = generics.split_for_impl();
    let name = &input.item.ident;
    let id = match pieces {
        Some(pieces) => id(pieces, runtime),
        // Never compiled to code.
        None => quote! { ::core::panic!() },
    };
    quote! {
        #[automatically_derived]
        impl #parameters #runtime::MessageId for #name #arguments #condition {
            #[allow(deprecated)]
            fn message_id(&self) -> ::core::result::Result<
                ::std::string::String,
                #runtime::__private::MessageIdError,
            > {
                #id
            }
        }
    }
}

/// The types of the fields that the template names, or whose fields it names.
fn named_types<'a>(
    input: &'a Input,
    pieces: Option<&'a [Piece]>,
) -> impl Iterator<Item = &'a Type> {
    let named = move |member: &Member| {
        let mut fields = pieces.unwrap_or_default().iter().filter_map(Piece::field);
        fields.any(|field| field.members.first() == Some(member))
    };
    let fields = input.members().filter(move |(member, _)| named(member));
    fields.map(|(_, field)| &field.ty)
}

fn id(pieces: &[Piece], runtime: &Path) -> TokenStream {
    let pieces = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => quote! { #runtime::__private::Piece::Text(#text) },
        Piece::Field(field) => {
            let (name, members) = (&field.name, &field.members);
            let value = located_at(span_of(field), quote! { &self #(.#members)* });
            quote! { #runtime::__private::Piece::Field(#name, #value) }
        }
    });
    quote! { #runtime::__private::message_id(&[#(#pieces),*]) }
}
