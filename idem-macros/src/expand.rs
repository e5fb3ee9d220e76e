//! From tokens to tokens, and from a checked handler to its code.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::spanned::Spanned;
use syn::{Path, Type, parse_quote};

use crate::args::Args;
use crate::check::check;
use crate::errors::Errors;
use crate::item::{HandlerFn, NotRead};
use crate::model::{Handler, Identity, KeyField, Marker, Parameters};

/// The whole attribute: the function as written, then what is generated beside it.
///
/// Whatever is wrong, the function is there, so that its callers report nothing; and so is the
/// marker, so that its registration reports nothing either.
pub(crate) fn idempotent(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let args = Args::parse(arguments, &mut errors);
    let runtime = args.runtime.given().cloned().unwrap_or_else(|| parse_quote!(::idem_runtime));
    let generated = match HandlerFn::parse(item.clone()) {
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

fn definition(marker: &Marker) -> TokenStream {
    let Marker { name, visibility, cfgs, function } = marker;
    let doc = format!("The handler `{function}`, to register with a consumer.");
    quote! {
        #cfgs
        #[doc = #doc]
        #[derive(::core::clone::Clone, ::core::marker::Copy, ::core::fmt::Debug)]
        #visibility struct #name;
    }
}

/// What the runtime calls. Everything that is not the user's is generic code there.
fn implementation(handler: &Handler, marker: &Marker, runtime: &Path) -> TokenStream {
    let Parameters { transaction, message, .. } = &handler.parameters;
    let (generics, store, work, condition) = match transaction {
        Some(transaction) => (
            None,
            quote! { <#transaction as #runtime::__private::Transaction>::Store },
            quote! { #transaction },
            Some(condition(transaction, runtime)),
        ),
        None => (
            Some(quote! { <__Store: #runtime::__private::Store> }),
            quote! { __Store },
            quote! { #runtime::__private::NoTransaction },
            None,
        ),
    };
    let spec = spec(handler, &marker.function, runtime);
    let key = key(&handler.identity, runtime);
    let same = same(&handler.same, runtime);
    let require = require(handler, runtime);
    let call = if handler.batch { call_batch(handler, runtime) } else { call(handler, runtime) };
    let Marker { name, cfgs, .. } = marker;
    quote! {
        #cfgs
        #[automatically_derived]
        #[allow(deprecated)]
        impl #generics #runtime::__private::Handler<#store> for #name #condition {
            const SPEC: #runtime::__private::HandlerSpec = #spec;
            type Message = #message;
            type Work = #work;
            #key
            #same
            #require
            #call
        }
    }
}

/// Without this bound a type that is no transaction would be reported once for each item of the
/// implementation. It takes the type's own span, so that the caret covers the type; only `$crate`
/// means what its own span says.
fn condition(transaction: &Type, runtime: &Path) -> TokenStream {
    let [_, last] = ends(transaction);
    let bound = quote! { #runtime::__private::Transaction };
    let bound: TokenStream = bound
        .into_iter()
        .map(|mut token| {
            if token.to_string() != "$crate" {
                token.set_span(last);
            }
            token
        })
        .collect();
    quote! { where #transaction: #bound }
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
    let fields = fields.iter().map(|field| &field.name);
    let same = handler.same.iter().map(|field| &field.name);
    let constraint = match &handler.constraint {
        Some(constraint) => quote! { ::core::option::Option::Some(#constraint) },
        None => quote! { ::core::option::Option::None },
    };
    quote! {
        #runtime::__private::HandlerSpec {
            name: #name,
            scope: #scope,
            level: #runtime::__private::Level::#level,
            key: &[#(#fields),*],
            constraint: #constraint,
            same: &[#(#same),*],
        }
    }
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

fn span_of(field: &KeyField) -> Span {
    field.members.first().map_or_else(Span::call_site, Spanned::span)
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
/// return type.
fn call(handler: &Handler, runtime: &Path) -> TokenStream {
    let (message, context) = (local("message"), local("context"));
    let extracted = handler.parameters.extractors.iter().map(|extractor| {
        quote! { <#extractor as #runtime::__private::FromContext<'_>>::from_context(#context)? }
    });
    let called = called(handler, quote! { #message #(, #extracted)* });
    let finish = finish(handler, if handler.replay { "replay" } else { "forget" }, runtime);
    let (work, at) = (local("work"), handler.function.span());
    let signature = quote! {
        async fn call<'a>(
            #work: &'a mut Self::Work,
            #message: Self::Message,
            #context: &'a #runtime::__private::Context,
        ) -> #runtime::__private::Called
    };
    let signature = located_at(at, signature);
    quote! { #signature { #finish(#called) } }
}

/// For many messages the function is called once, and for one it is given a batch of one.
fn call_batch(handler: &Handler, runtime: &Path) -> TokenStream {
    let (work, messages, contexts) = (local("work"), local("messages"), local("contexts"));
    let (message, context, count) = (local("message"), local("context"), local("count"));
    let extracted = handler.parameters.extractors.iter().map(|extractor| {
        quote! { <#extractor as #runtime::__private::FromBatch>::from_batch(#contexts)? }
    });
    let called = called(handler, quote! { #messages #(, #extracted)* });
    let finish =
        finish(handler, if handler.replay { "replay_batch" } else { "forget_batch" }, runtime);
    let signature = quote! {
        async fn call_batch<'a>(
            #work: &'a mut Self::Work,
            #messages: ::std::vec::Vec<Self::Message>,
            #contexts: &'a [&'a #runtime::__private::Context],
        ) -> #runtime::__private::BatchCalled
    };
    let signature = located_at(handler.function.span(), signature);
    quote! {
        async fn call<'a>(
            #work: &'a mut Self::Work,
            #message: Self::Message,
            #context: &'a #runtime::__private::Context,
        ) -> #runtime::__private::Called {
            let #messages = ::std::vec![#message];
            #runtime::__private::alone(Self::call_batch(#work, #messages, &[#context])).await
        }
        #signature {
            let #count = #messages.len();
            #finish(#called, #count)
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
    let awaited = located_at(last, quote! { .await });
    quote! { #function(#transaction #arguments) #awaited }
}

/// What makes the runtime's result of the function's, with carets on what that returns.
fn finish(handler: &Handler, name: &str, runtime: &Path) -> TokenStream {
    let [first, _] = ends(&handler.output);
    let name = Ident::new(name, Span::call_site());
    located_at(first, quote! { #runtime::__private::#name })
}

/// Keeps the registration of a refused handler quiet. It is never compiled to code.
fn stub(marker: &Marker, runtime: &Path) -> TokenStream {
    let Marker { name, cfgs, .. } = marker;
    quote! {
        #cfgs
        #[automatically_derived]
        impl<__Store: #runtime::__private::Store> #runtime::__private::Handler<__Store> for #name {
            const SPEC: #runtime::__private::HandlerSpec = #runtime::__private::HandlerSpec {
                name: "",
                scope: "",
                level: #runtime::__private::Level::Zero,
                key: &[],
                constraint: ::core::option::Option::None,
                same: &[],
            };
            type Message = ();
            type Work = #runtime::__private::NoTransaction;
            async fn call<'a>(
                _: &'a mut Self::Work,
                _: Self::Message,
                _: &'a #runtime::__private::Context,
            ) -> #runtime::__private::Called {
                ::core::future::pending().await
            }
        }
    }
}

/// A name of our own: neither the user's items nor the user's arguments can be meant by it.
fn local(name: &str) -> Ident {
    format_ident!("__{name}", span = Span::mixed_site())
}

/// The spans of the first and the last token: between them, a caret covers all of them.
fn ends(tokens: &impl ToTokens) -> [Span; 2] {
    let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
    let first = spans.next().unwrap_or_else(Span::call_site);
    [first, spans.last().unwrap_or(first)]
}

/// Puts carets on user code without making the tokens the user's: lints stay quiet in them, and
/// rustc does not offer to edit what the user did not write.
fn located_at(span: Span, tokens: TokenStream) -> TokenStream {
    let relocate = |mut token: TokenTree| {
        if let TokenTree::Group(group) = token {
            token = Group::new(group.delimiter(), located_at(span, group.stream())).into();
        }
        token.set_span(token.span().located_at(span));
        token
    };
    tokens.into_iter().map(relocate).collect()
}
