//! The type that a derive is on.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Data, DeriveInput, Field, Generics, Member, Meta, Path, Type, TypeParamBound,
    parse_quote,
};

use crate::args::{self, Argument};
use crate::check;
use crate::errors::{self, Errors};
use crate::item;

/// A type, and the attribute that belongs to the derive on it.
pub(super) struct Input {
    pub(super) item: DeriveInput,
    attribute: &'static str,
    /// An example of how that is written.
    form: &'static str,
}

impl Input {
    /// rustc has parsed the type before us: it is whole.
    pub(super) fn parse(
        item: TokenStream,
        attribute: &'static str,
        form: &'static str,
    ) -> syn::Result<Self> {
        Ok(Self { item: syn::parse2(item)?, attribute, form })
    }

    /// The derive's attributes on the type.
    pub(super) fn attributes(&self) -> impl Iterator<Item = &Meta> {
        let own = self.item.attrs.iter().filter(|attribute| self.owns(attribute));
        own.map(|attribute| &attribute.meta)
    }

    /// The path in `#[attribute(crate = path)]`, else the default.
    pub(super) fn runtime(&self, errors: &mut Errors) -> Path {
        let mut path = Argument::Absent;
        for attribute in self.attributes() {
            let Meta::List(list) = attribute else { continue };
            match list.tokens.clone().into_iter().next() {
                Some(TokenTree::Ident(_)) => {
                    args::runtime_alone(list.tokens.clone(), &mut path, errors);
                }
                _ => errors.push(errors::malformed_attribute(attribute, self.attribute, self.form)),
            }
        }
        match path {
            Argument::Given(path, _) => {
                check::absolute(&path, errors);
                path
            }
            Argument::Absent | Argument::Malformed => parse_quote!(::idem_runtime),
        }
    }

    /// The fields of a struct, by name or number; the others have none in common.
    pub(super) fn members(&self) -> impl Iterator<Item = (Member, &Field)> {
        let fields = match &self.item.data {
            Data::Struct(data) => Some(&data.fields),
            Data::Enum(_) | Data::Union(_) => None,
        };
        fields.into_iter().flat_map(|fields| fields.members().zip(fields))
    }

    /// Reports the derive's attribute where it means nothing.
    pub(super) fn no_field_attributes(&self, errors: &mut Errors) {
        let attributes = self.members().flat_map(|(_, field)| &field.attrs);
        for attribute in attributes.filter(|attribute| self.owns(attribute)) {
            errors.push(errors::attribute_on_field(attribute, self.attribute));
        }
    }

    /// The type's generics, with a bound on each type parameter that these types speak of.
    pub(super) fn generics_bounded_by<'a>(
        &self,
        bound: &TypeParamBound,
        types: impl Iterator<Item = &'a Type>,
    ) -> Generics {
        let types: TokenStream = types.map(ToTokens::to_token_stream).collect();
        let mut generics = self.item.generics.clone();
        for parameter in generics.type_params_mut() {
            if item::find_ident(types.clone(), &parameter.ident.to_string()).is_some() {
                parameter.bounds.push(bound.clone());
            }
        }
        generics
    }

    fn owns(&self, attribute: &Attribute) -> bool {
        attribute.path().is_ident(self.attribute)
    }
}
