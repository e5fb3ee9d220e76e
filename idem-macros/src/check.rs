//! Turns arguments and function into a handler, or says all that is wrong with them.

use proc_macro2::Span;
use syn::{GenericArgument, GenericParam, LitStr, Path, PathArguments, ReturnType, Safety, Type};

use crate::args::{Args, Argument};
use crate::errors::{self, Errors};
use crate::item::HandlerFn;
use crate::model::{Handler, Identity, KeyField, Level, Parameters};

pub(crate) fn check(
    args: Args,
    function: &HandlerFn,
    mut errors: Errors,
) -> Result<Handler, Errors> {
    if let Argument::Given(path, _) = &args.runtime {
        absolute(path, &mut errors);
    }
    qualifiers(function, &mut errors);
    generics(function, &mut errors);
    attributes(function, &mut errors);

    let scope = args.scope.given().cloned();
    let level = level(&args);
    let batch = args.batch.given().is_some();
    let parameters = parameters(function, level, batch, &mut errors);
    let output = output(function, &mut errors);
    let constraint = constraint(&args, level, &mut errors);
    let same = same(&args, level, &mut errors);
    let replay = replay(&args, level, &mut errors);
    let was = was(&args, level, &mut errors);
    let decode = args.decode.given().cloned();
    let identity = identity(args, level, &mut errors);
    let handler = move || {
        let function = function.signature.ident.clone();
        Some(Handler {
            function,
            scope,
            was,
            decode,
            identity: identity?,
            constraint,
            same,
            replay,
            batch,
            parameters: parameters?,
            output: output?,
        })
    };
    errors.or(handler())
}

pub(crate) fn absolute(path: &Path, errors: &mut Errors) {
    let root = path.segments.first().map(|segment| segment.ident.to_string());
    if path.leading_colon.is_none() && !matches!(root.as_deref(), Some("crate" | "$crate")) {
        errors.push(errors::crate_path_relative(path));
    }
}

fn qualifiers(function: &HandlerFn, errors: &mut Errors) {
    let (name, signature) = (function.name(), &function.signature);
    if let Some(token) = function.method_token() {
        errors.push(errors::method(token, &name));
    }
    if let Some(token) = signature.constness {
        errors.push(errors::qualified(token, &name, "const"));
    } else if signature.asyncness.is_none() {
        errors.push(errors::not_async(signature.fn_token, &name));
    }
    match signature.safety {
        Safety::Unsafe(token) => errors.push(errors::qualified(token, &name, "unsafe")),
        Safety::Safe(token) => errors.push(errors::qualified(token, &name, "safe")),
        Safety::Default => {}
    }
    if let Some(abi) = &signature.abi {
        errors.push(errors::qualified(abi.extern_token, &name, "extern"));
    }
}

fn generics(function: &HandlerFn, errors: &mut Errors) {
    let generics = &function.signature.generics;
    let is_lifetime = |parameter| matches!(parameter, &GenericParam::Lifetime(_));
    if !generics.params.iter().all(is_lifetime) {
        errors.push(errors::generic(generics, &function.name()));
    } else if !generics.params.is_empty() {
        errors.push(errors::lifetimes(generics, &function.name()));
    } else if let Some(token) = function.anonymous_generic() {
        errors.push(errors::generic(token, &function.name()));
    }
}

/// rustc leaves `#[cfg]` on a parameter to us, and we cannot know whether it holds.
fn attributes(function: &HandlerFn, errors: &mut Errors) {
    for attribute in function.parameters().flat_map(|parameter| &parameter.attrs) {
        if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
            errors.push(errors::conditional_parameter(attribute, &function.name()));
        }
    }
}

/// The level and where it was set; `None` after a malformed one.
fn level(args: &Args) -> Option<(Level, Span)> {
    match (&args.level, &args.key) {
        (Argument::Given(level, span), _) => Some((*level, *span)),
        (Argument::Malformed, _) => None,
        // A constraint asks for level 2, and says itself that it lacks a key.
        (Argument::Absent, Argument::Absent) => match args.constraint {
            Argument::Absent => Some((Level::One, Span::call_site())),
            Argument::Given(..) | Argument::Malformed => Some((Level::Two, Span::call_site())),
        },
        (Argument::Absent, _) => Some((Level::Two, Span::call_site())),
    }
}

fn identity(args: Args, level: Option<(Level, Span)>, errors: &mut Errors) -> Option<Identity> {
    match (level?, args.key) {
        ((Level::Zero, _), Argument::Absent) => Some(Identity::Nothing),
        ((Level::One, _), Argument::Absent) => Some(Identity::MessageId),
        ((Level::Two, _), Argument::Given(fields, _)) => Some(Identity::Fields(fields)),
        ((Level::Two, span), Argument::Absent) => {
            if let Argument::Absent = args.constraint {
                errors.push(errors::level_two_without_key(span));
            }
            None
        }
        ((level @ (Level::Zero | Level::One), _), Argument::Given(_, key)) => {
            errors.push(errors::key_without_effect(key, level));
            None
        }
        (_, Argument::Malformed) => None,
    }
}

fn constraint(args: &Args, level: Option<(Level, Span)>, errors: &mut Errors) -> Option<LitStr> {
    let Argument::Given(constraint, span) = &args.constraint else { return None };
    match (level, &args.key) {
        (Some((level @ (Level::Zero | Level::One), _)), _) => {
            errors.push(errors::constraint_without_effect(*span, level));
        }
        (_, Argument::Absent) => errors.push(errors::constraint_without_key(*span)),
        (_, Argument::Given(..) | Argument::Malformed) => {}
    }
    if let Argument::Given((), replay) = args.replay {
        errors.push(errors::replay_with_constraint(replay));
    }
    if let Argument::Given(fields, span) = &args.same {
        for field in fields.iter().filter(|field| field.name.contains('.')) {
            errors.push(errors::same_field_not_a_column(*span, &field.name));
        }
    }
    Some(constraint.clone())
}

fn same(args: &Args, level: Option<(Level, Span)>, errors: &mut Errors) -> Vec<KeyField> {
    let Argument::Given(fields, span) = &args.same else { return Vec::new() };
    if let Some((Level::Zero, _)) = level {
        errors.push(errors::without_effect_at_level_zero(*span, "same"));
    }
    let key = args.key.given().map(Vec::as_slice).unwrap_or_default();
    for field in fields.iter().filter(|field| key.iter().any(|other| other.name == field.name)) {
        errors.push(errors::same_field_in_key(*span, &field.name));
    }
    fields.clone()
}

fn was(args: &Args, level: Option<(Level, Span)>, errors: &mut Errors) -> Vec<String> {
    let Argument::Given(scopes, span) = &args.was else { return Vec::new() };
    if let Some((Level::Zero, _)) = level {
        errors.push(errors::without_effect_at_level_zero(*span, "was"));
    }
    if let Argument::Given(..) | Argument::Malformed = args.constraint {
        errors.push(errors::was_with_constraint(*span));
    }
    let scope = args.scope.given().map(LitStr::value);
    if let Some(scope) = scope.filter(|scope| scopes.contains(scope)) {
        errors.push(errors::was_the_scope_itself(*span, &scope));
    }
    scopes.clone()
}

fn replay(args: &Args, level: Option<(Level, Span)>, errors: &mut Errors) -> bool {
    let Argument::Given((), span) = &args.replay else { return false };
    if let Some((Level::Zero, _)) = level {
        errors.push(errors::without_effect_at_level_zero(*span, "replay"));
    }
    true
}

fn parameters(
    function: &HandlerFn,
    level: Option<(Level, Span)>,
    batch: bool,
    errors: &mut Errors,
) -> Option<Parameters> {
    let list = function.signature.paren_token.span.join();
    let mut types = function.parameters().map(|parameter| peeled(&parameter.ty)).peekable();

    let transaction = types.next_if(|first| referent_mut(first).is_some()).and_then(referent_mut);
    if let (None, Some((level @ (Level::One | Level::Two), _))) = (transaction, level) {
        errors.push(errors::transaction_missing(list, &function.name(), level));
        // Meant for one, it is no message by reference.
        types.next_if(|first| matches!(first, Type::Reference(_)));
        types.peek()?;
    }
    if let Some(store) = transaction.filter(|transaction| is_store(transaction)) {
        errors.push(errors::store_as_transaction(store, &function.name()));
    }
    let Some(message) = types.next() else {
        errors.push(errors::message_missing(list, &function.name()));
        return None;
    };
    let message = match (message, batch) {
        (Type::Reference(_), _) => {
            errors.push(errors::message_by_reference(message, &function.name()));
            message
        }
        (_, false) => message,
        (_, true) => element(message).unwrap_or_else(|| {
            errors.push(errors::batch_of_one(message, &function.name()));
            message
        }),
    };
    Some(Parameters {
        transaction: transaction.cloned(),
        message: message.clone(),
        extractors: types.cloned().collect(),
    })
}

/// A type without the groups that `macro_rules!` puts around what it passes on.
fn peeled(mut ty: &Type) -> &Type {
    while let Type::Group(syn::TypeGroup { elem, .. }) | Type::Paren(syn::TypeParen { elem, .. }) =
        ty
    {
        ty = elem;
    }
    ty
}

/// The `T` of `&mut T`.
fn referent_mut(ty: &Type) -> Option<&Type> {
    match ty {
        Type::Reference(reference) if reference.mutability.is_some() => Some(&reference.elem),
        _ => None,
    }
}

/// Whether a type has the name of a store. The type system would report it too, but again wherever
/// the handler is registered. Nobody calls a transaction that.
fn is_store(ty: &Type) -> bool {
    const STORES: [&str; 4] = ["Mysql", "Postgres", "SqlServer", "Sqlite"];
    let Type::Path(path) = ty else { return false };
    let last = path.path.segments.last();
    last.is_some_and(|last| {
        last.arguments.is_none() && STORES.iter().any(|name| last.ident == name)
    })
}

/// The `T` of `Vec<T>`, which is asked for in so many words: what the key's fields belong to has to
/// be known here.
fn element(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Vec")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(element)) if arguments.args.len() == 1 => Some(element),
        _ => None,
    }
}

fn output(function: &HandlerFn, errors: &mut Errors) -> Option<Type> {
    match &function.signature.output {
        ReturnType::Type(_, output) => Some((**output).clone()),
        ReturnType::Default => {
            let name = &function.signature.ident;
            errors.push(errors::result_missing(name.span(), &function.name()));
            None
        }
    }
}
