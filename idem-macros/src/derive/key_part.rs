//! `#[derive(KeyPart)]`: a struct as part of a key.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, Field, Member, Meta, Path, parse_quote};

use super::input::Input;
use crate::errors::{self, Errors};
use crate::spans::{ends, local, located_at, member_at};

const ATTRIBUTE: &str = "key_part";
const FORM: &str = "#[key_part(crate = ::idem_runtime)]";

/// Whatever is wrong, the type is a key part, so that its uses report nothing.
pub(crate) fn key_part(item: TokenStream) -> TokenStream {
    let input = match Input::parse(item, ATTRIBUTE, FORM) {
        Ok(input) => input,
        Err(error) => return error.into_compile_error(),
    };
    let mut errors = Errors::default();
    let runtime = input.runtime(&mut errors);
    let (body, errors) = match check(&input, errors) {
        Ok(fields) => (encode(&fields, &runtime), None),
        Err(errors) => (stub(&runtime), Some(errors.into_tokens())),
    };
    let implementation = implementation(&input, &runtime, &body);
    quote! { #errors #implementation }
}

/// The fields of the struct, at least one.
fn check(input: &Input, mut errors: Errors) -> Result<Vec<(Member, &Field)>, Errors> {
    for attribute in input.attributes() {
        if !matches!(attribute, Meta::List(_)) {
            errors.push(errors::malformed_attribute(attribute, ATTRIBUTE, FORM));
        }
    }
    input.no_field_attributes(&mut errors);
    let fields = match &input.item.data {
        Data::Struct(data) if data.fields.is_empty() => {
            errors.push(errors::key_part_without_fields(&input.item.ident));
            None
        }
        Data::Struct(_) => Some(input.members().collect()),
        Data::Enum(data) => {
            errors.push(errors::key_part_for_enum(data.enum_token));
            None
        }
        Data::Union(data) => {
            errors.push(errors::derive_for_union(data.union_token, "KeyPart"));
            None
        }
    };
    errors.or(fields)
}

fn implementation(input: &Input, runtime: &Path, encode: &TokenStream) -> TokenStream {
    let types = input.members().map(|(_, field)| &field.ty);
    let generics = input.generics_bounded_by(&parse_quote!(#runtime::KeyPart), types);
    let (parameters, arguments, condition) = generics.split_for_impl();
    let name = &input.item.ident;
    quote! {
        #[automatically_derived]
        impl #parameters #runtime::KeyPart for #name #arguments #condition {
            #encode
        }
    }
}

/// One field stands for the struct, and more of them are kept together.
fn encode(fields: &[(Member, &Field)], runtime: &Path) -> TokenStream {
    let key = local("key");
    let values = fields.iter().map(value);
    let body = match fields {
        [_] => quote! { #(#key.part(#values);)* },
        _ => quote! { #key.record(&[#(#values),*]); },
    };
    quote! {
        #[allow(deprecated)]
        fn encode(&self, #key: &mut #runtime::__private::KeyEncoder) {
            #body
        }
    }
}

/// `&self.field`, with a caret that covers the field's type.
fn value((member, field): &(Member, &Field)) -> TokenStream {
    let [first, last] = ends(&field.ty);
    let (object, member) = (located_at(first, quote!(&self.)), member_at(last, member));
    quote! { #object #member }
}

fn stub(runtime: &Path) -> TokenStream {
    quote! {
        fn encode(&self, _: &mut #runtime::__private::KeyEncoder) {}
    }
}
