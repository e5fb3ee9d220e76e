//! From tokens to tokens, and from a checked handler to its code.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::quote;
use syn::{Path, parse_quote};

use crate::args::Args;
use crate::check::check;
use crate::errors::{self, Errors};
use crate::item::{HandlerFn, NotRead};
use crate::model::{Handler, Identity, KeyField, Marker, Parameters};
use crate::spans::{ends, local, located_at, span_of};

/// The whole attribute: the function as written, then what is generated beside it.
///
/// Whatever is wrong, the function is there, so that its callers report nothing; and so is the
/// marker, so that its registration reports nothing either.
pub(crate) fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(arguments, &mut errors);
    let runtime = args.runtime.given().cloned().unwrap_or_else(|| parse_quote!(::idem_runtime));
    let generated = match HandlerFn::parse(item.clone()) {
        // The other one generates what belongs to the function.
        Ok(function) if function.is_annotated_again() => {
            errors.push(errors::attribute_twice(&function.name()));
            errors.into_tokens()
        }
        Ok(function) => match check(args, &function, errors) {
            Ok(handler) => accepted(&handler, &function.marker(), &runtime),
            // Inside an `impl` there is no place for a marker.
            Err(errors) if function.method_token().is_some() => errors.into_tokens(),
            Err(errors) => refused(errors, Some(function.marker()), &runtime),
        },
        Err(NotRead::HalfTyped(marker)) => refused(errors, marker, &runtime),
        Err(NotRead::Other(error)) => {
            errors.push(error);
            errors.into_tokens()
        }
    };
    // A handler is `async` because we say so, whether or not it awaits.
    quote! {
        #[allow(clippy::unused_async)]
        #item
        #generated
    }
}

/// The marker comes last: an editor takes the name for the function's, which it first meets.
fn accepted(handler: &Handler, marker: &Marker, runtime: &Path) -> TokenStream {
    let (implementation, definition) =
        (implementation(handler, marker, runtime), definition(marker));
    quote! { #implementation #definition }
}

fn refused(errors: Errors, marker: Option<Marker>, runtime: &Path) -> TokenStream {
    let errors = errors.into_tokens();
    let stub = marker.as_ref().map(|marker| stub(marker, runtime));
    let definition = marker.as_ref().map(definition);
    quote! { #errors #stub #definition }
}

/// The struct has no derives: each would be one more implementation to check for each handler.
fn definition(marker: &Marker) -> TokenStream {
    let Marker { name, visibility, cfgs, function } = marker;
    let doc = format!("The handler `{function}`, to register with a consumer.");
    quote! {
        #cfgs
        #[doc = #doc]
        #[allow(missing_copy_implementations, missing_debug_implementations)]
        #visibility struct #name;
    }
}

/// What the runtime calls. Everything that is not the user's is generic code there.
fn implementation(handler: &Handler, marker: &Marker, runtime: &Path) -> TokenStream {
    let Parameters { transaction, message, .. } = &handler.parameters;
    let work = match transaction {
        Some(transaction) => quote! { #transaction },
        None => quote! { #runtime::__private::NoTransaction },
    };
    let spec = spec(handler, &marker.function, runtime);
    let (decode, decoder) = decoding(handler, marker, runtime);
    let key = key(&handler.identity, runtime);
    let same = same(&handler.same, runtime);
    let require = require(handler, runtime);
    let call = if handler.batch { call_batch(handler, runtime) } else { call(handler, runtime) };
    let Marker { name, cfgs, .. } = marker;
    quote! {
        #cfgs
        #[automatically_derived]
        #[allow(deprecated)]
        impl #runtime::__private::Definition for #name {
            const SPEC: #runtime::__private::HandlerSpec = #spec;
            type Message = #message;
            type Decode = #decode;
            type Work = #work;
            #key
            #same
            #require
            #call
        }
        #decoder
    }
}

/// What decodes a body: JSON, or the handler itself by a function of the user's.
fn decoding(
    handler: &Handler,
    marker: &Marker,
    runtime: &Path,
) -> (TokenStream, Option<TokenStream>) {
    let Some(function) = &handler.decode else {
        let [first, last] = ends(&handler.parameters.message);
        let path = located_at(first, quote! { #runtime::__private:: });
        let json = Ident::new("Json", Span::call_site().located_at(last));
        return (quote! { #path #json }, None);
    };
    let Marker { name, cfgs, .. } = marker;
    let [first, _] = ends(function);
    let delivery = local("delivery");
    let decode = located_at(first, quote! { #runtime::__private::decode });
    let decoder = quote! {
        #cfgs
        #[automatically_derived]
        impl #runtime::__private::Decode<<Self as #runtime::__private::Definition>::Message> for #name {
            fn decode(
                #delivery: &#runtime::__private::Delivery,
            ) -> #runtime::__private::Decoded<<Self as #runtime::__private::Definition>::Message> {
                #decode::<<Self as #runtime::__private::Definition>::Message>(#function, #delivery)
            }
        }
    };
    (quote! { Self }, Some(decoder))
}

fn spec(handler: &Handler, name: &str, runtime: &Path) -> TokenStream {
    let scope = match &handler.scope {
        Some(scope) => quote! { #scope },
        None => quote! { ::core::concat!(::core::env!("CARGO_PKG_NAME"), "::", #name) },
    };
    let (level, fields) = match &handler.identity {
        Identity::Nothing => (quote! { Zero }, [].as_slice()),
        Identity::MessageId => (quote! { One }, [].as_slice()),
        Identity::Fields(fields) => (quote! { Two }, fields.as_slice()),
    };
    let was = with("with_was", handler.was.iter());
    let key = with("with_key", fields.iter().map(|field| &field.name));
    let same = with("with_same", handler.same.iter().map(|field| &field.name));
    let constraint = handler.constraint.iter().map(|name| quote! { .with_constraint(#name) });
    quote! {
        #runtime::__private::HandlerSpec::new(#name, #scope, #runtime::__private::Level::#level)
            #was #key #same #(#constraint)*
    }
}

/// Sets one fact of the specification, if there is anything to it.
fn with<'a>(fact: &str, names: impl ExactSizeIterator<Item = &'a String>) -> Option<TokenStream> {
    let fact = Ident::new(fact, Span::call_site());
    (names.len() > 0).then(|| quote! { .#fact(&[#(#names),*]) })
}

fn key(identity: &Identity, runtime: &Path) -> Option<TokenStream> {
    let Identity::Fields(fields) = identity else {
        return None;
    };
    let (message, key) = (local("message"), local("key"));
    let parts = fields.iter().map(|field| {
        let members = &field.members;
        located_at(span_of(field), quote! { #key.part(&#message #(.#members)*); })
    });
    Some(quote! {
        fn key(#message: &Self::Message, #key: &mut #runtime::__private::KeyEncoder) {
            #(#parts)*
        }
    })
}

fn same(fields: &[KeyField], runtime: &Path) -> Option<TokenStream> {
    if fields.is_empty() {
        return None;
    }
    let (message, same) = (local("message"), local("same"));
    let parts = fields.iter().map(|field| {
        let (name, members) = (&field.name, &field.members);
        located_at(span_of(field), quote! { #same.field(#name, &#message #(.#members)*); })
    });
    Some(quote! {
        fn same(#message: &Self::Message, #same: &mut #runtime::__private::Fingerprint) {
            #(#parts)*
        }
    })
}

fn require(handler: &Handler, runtime: &Path) -> Option<TokenStream> {
    let extractors = &handler.parameters.extractors;
    if extractors.is_empty() {
        return None;
    }
    let extraction = match handler.batch {
        true => quote! { #runtime::__private::FromBatch },
        false => quote! { #runtime::__private::FromContext<'_> },
    };
    let requirements = local("requirements");
    Some(quote! {
        fn require(#requirements: &mut #runtime::__private::Requirements) {
            #(<#extractors as #extraction>::require(#requirements);)*
        }
    })
}

/// The function keeps its body: moved into an `async` block it would lose the inference of its
/// return type. Nor is its call in one, which would be one more future to check for each handler.
fn call(handler: &Handler, runtime: &Path) -> TokenStream {
    let (work, message, context) = (local("work"), local("message"), local("context"));
    let extracted = handler.parameters.extractors.iter().map(|extractor| {
        quote! { <#extractor as #runtime::__private::FromContext<'_>>::from_context(#context)? }
    });
    let called = called(handler, quote! { #message #(, #extracted)* });
    let name = if handler.replay { "replay" } else { "forget" };
    let finished = finished(handler, name, called, runtime);
    quote! {
        fn call<'a>(
            #work: &'a mut Self::Work,
            #message: Self::Message,
            #context: &'a #runtime::__private::Context,
        ) -> #runtime::__private::Called<'a> {
            ::core::result::Result::Ok(#finished)
        }
    }
}

/// For many messages the function is called once, and for one it is given a batch of one.
fn call_batch(handler: &Handler, runtime: &Path) -> TokenStream {
    let (work, messages, contexts) = (local("work"), local("messages"), local("contexts"));
    let (message, context, count) = (local("message"), local("context"), local("count"));
    let extracted = handler.parameters.extractors.iter().map(|extractor| {
        quote! { <#extractor as #runtime::__private::FromBatch>::from_batch(#contexts)? }
    });
    let called = called(handler, quote! { #messages #(, #extracted)* });
    let name = if handler.replay { "replay_batch" } else { "forget_batch" };
    let finished = finished(handler, name, quote! { #called, #count }, runtime);
    quote! {
        fn call<'a>(
            #work: &'a mut Self::Work,
            #message: Self::Message,
            #context: &'a #runtime::__private::Context,
        ) -> #runtime::__private::Called<'a> {
            ::core::result::Result::Ok(#runtime::__private::alone::<Self>(#work, #message, #context))
        }
        fn call_batch<'a>(
            #work: &'a mut Self::Work,
            #messages: ::std::vec::Vec<Self::Message>,
            #contexts: &'a [&'a #runtime::__private::Context],
        ) -> #runtime::__private::BatchCalled<'a> {
            let #count = #messages.len();
            ::core::result::Result::Ok(#finished)
        }
    }
}

/// The call of the function, with carets on what it returns.
fn called(handler: &Handler, arguments: TokenStream) -> TokenStream {
    let work = local("work");
    let transaction = handler.parameters.transaction.as_ref().map(|_| quote! { #work, });
    let [first, last] = ends(&handler.output);
    let mut function = handler.function.clone();
    function.set_span(Span::call_site().located_at(first));
    let arguments = parenthesized(quote! { #transaction #arguments }, last);
    quote! { #function #arguments }
}

/// The runtime's future of the function's, with carets on what that returns.
fn finished(handler: &Handler, name: &str, called: TokenStream, runtime: &Path) -> TokenStream {
    let [first, last] = ends(&handler.output);
    let name = Ident::new(name, Span::call_site());
    let finish = located_at(first, quote! { #runtime::__private::#name });
    let called = parenthesized(called, last);
    quote! { #finish #called }
}

fn parenthesized(tokens: TokenStream, span: Span) -> Group {
    let mut group = Group::new(Delimiter::Parenthesis, tokens);
    group.set_span(Span::call_site().located_at(span));
    group
}

/// Keeps the registration of a refused handler quiet. It is never compiled to code.
fn stub(marker: &Marker, runtime: &Path) -> TokenStream {
    let Marker { name, cfgs, .. } = marker;
    quote! {
        #cfgs
        #[automatically_derived]
        impl #runtime::__private::Definition for #name {
            const SPEC: #runtime::__private::HandlerSpec =
                #runtime::__private::HandlerSpec::new("", "", #runtime::__private::Level::Zero);
            type Message = ();
            type Decode = #runtime::__private::Json;
            type Work = #runtime::__private::NoTransaction;
            fn call<'a>(
                _: &'a mut Self::Work,
                _: Self::Message,
                _: &'a #runtime::__private::Context,
            ) -> #runtime::__private::Called<'a> {
                loop {}
            }
        }
    }
}
