//! The attribute's arguments. Every value keeps its span.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprPath, LitInt, LitStr, Path, Result, Token};

use crate::errors::{self, Errors};
use crate::key;
use crate::model::{KeyField, Level, Naming};

/// The accepted arguments, for people.
pub(crate) const ARGUMENTS: [&str; 10] =
    ["level", "key", "constraint", "same", "replay", "batch", "scope", "was", "decode", "crate"];

/// The arguments in the parentheses after `idempotent`.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) level: Argument<Level>,
    pub(crate) key: Argument<Vec<KeyField>>,
    pub(crate) constraint: Argument<LitStr>,
    pub(crate) same: Argument<Vec<KeyField>>,
    pub(crate) replay: Argument<()>,
    pub(crate) batch: Argument<()>,
    pub(crate) scope: Argument<LitStr>,
    pub(crate) was: Argument<Vec<String>>,
    pub(crate) decode: Argument<ExprPath>,
    pub(crate) runtime: Argument<Path>,
}

/// What was given. A malformed argument is not an absent one: no second error follows from it.
#[derive(Default)]
pub(crate) enum Argument<T> {
    #[default]
    Absent,
    Malformed,
    Given(T, Span),
}

impl Args {
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for argument in split_at_commas(&tokens) {
            args.read(argument, errors);
        }
        args
    }

    fn read(&mut self, argument: &[TokenTree], errors: &mut Errors) {
        let Some((TokenTree::Ident(name), value)) = argument.split_first() else {
            return errors.push(errors::unknown_argument(tokens(argument), &ARGUMENTS));
        };
        let written = Written { name, value };
        match name.to_string().as_str() {
            "level" => self.level.fill(name, level(&written), errors),
            "key" => self.key.fill(name, fields(&written, Naming::Key), errors),
            "constraint" => {
                let example = "constraint = \"orders_customer_ref_uq\"";
                self.constraint.fill(name, text(&written, example), errors);
            }
            "same" => self.same.fill(name, fields(&written, Naming::Same), errors),
            "replay" => self.replay.fill(name, flag(&written), errors),
            "batch" => self.batch.fill(name, flag(&written), errors),
            "scope" => {
                self.scope.fill(name, text(&written, "scope = \"orders.place\""), errors);
            }
            "was" => self.was.fill(name, scopes(&written), errors),
            "decode" => self.decode.fill(name, function(&written), errors),
            "crate" => self.runtime.fill(name, runtime(&written), errors),
            _ => errors.push(errors::unknown_argument(name, &ARGUMENTS)),
        }
    }
}

/// The arguments of a derive's own attribute: where the runtime is, and no more.
pub(crate) fn runtime_alone(
    arguments: TokenStream,
    path: &mut Argument<Path>,
    errors: &mut Errors,
) {
    let trees: Vec<TokenTree> = arguments.into_iter().collect();
    for argument in split_at_commas(&trees) {
        match argument.split_first() {
            Some((TokenTree::Ident(name), value)) if name == "crate" => {
                path.fill(name, runtime(&Written { name, value }), errors);
            }
            Some((TokenTree::Ident(name), _)) => {
                errors.push(errors::unknown_argument(name, &["crate"]));
            }
            _ => errors.push(errors::unknown_argument(tokens(argument), &["crate"])),
        }
    }
}

impl<T> Argument<T> {
    fn fill(&mut self, name: &Ident, value: Result<(T, Span)>, errors: &mut Errors) {
        if !matches!(self, Self::Absent) {
            return errors.push(errors::argument_twice(name));
        }
        *self = match value {
            Ok((value, span)) => Self::Given(value, span),
            Err(error) => {
                errors.push(error);
                Self::Malformed
            }
        };
    }

    pub(crate) fn given(&self) -> Option<&T> {
        match self {
            Self::Given(value, _) => Some(value),
            Self::Absent | Self::Malformed => None,
        }
    }
}

/// One argument between commas, not yet understood.
struct Written<'a> {
    name: &'a Ident,
    value: &'a [TokenTree],
}

impl Written<'_> {
    /// The value after `=`. Parsing sees through the groups that `macro_rules!` puts around what it
    /// passes on; matching on tokens would not.
    fn assigned<T: Parse>(&self, form: &str) -> Result<T> {
        let value_and_rest = |input: ParseStream<'_>| {
            input.parse::<Token![=]>()?;
            Ok((input.parse()?, input.parse::<TokenStream>()?))
        };
        let (value, rest) =
            value_and_rest.parse2(tokens(self.value)).map_err(|_| self.malformed(form))?;
        match rest.into_iter().next() {
            None => Ok(value),
            Some(next) => Err(errors::comma_expected(next)),
        }
    }

    fn malformed(&self, form: &str) -> Error {
        let name = TokenTree::from(self.name.clone());
        let whole: TokenStream = [name].into_iter().chain(self.value.iter().cloned()).collect();
        errors::malformed_argument(whole, self.name, form)
    }
}

fn level(written: &Written<'_>) -> Result<(Level, Span)> {
    let value = written.assigned::<Expr>("level = 2")?.into_token_stream();
    let number = syn::parse2::<LitInt>(value.clone()).and_then(|literal| literal.base10_parse());
    let level = match number {
        Ok(0_u8) => Level::Zero,
        Ok(1) => Level::One,
        Ok(2) => Level::Two,
        Ok(_) | Err(_) => return Err(errors::level_out_of_range(value)),
    };
    Ok((level, value.span()))
}

fn fields(written: &Written<'_>, naming: Naming) -> Result<(Vec<KeyField>, Span)> {
    if let [TokenTree::Group(paths)] = written.value
        && paths.delimiter() == Delimiter::Parenthesis
    {
        return Ok((key::from_paths(paths, naming)?, paths.span()));
    }
    let text = written.assigned::<LitStr>(naming.example())?;
    Ok((key::from_text(&text, naming)?, text.span()))
}

/// An argument that is there or not.
fn flag(written: &Written<'_>) -> Result<((), Span)> {
    match written.value {
        [] => Ok(((), written.name.span())),
        _ => Err(written.malformed(&written.name.to_string())),
    }
}

/// A name that must not be empty.
fn text(written: &Written<'_>, example: &str) -> Result<(LitStr, Span)> {
    let text = written.assigned::<LitStr>(example)?;
    let span = text.span();
    if text.value().trim().is_empty() {
        return Err(errors::name_empty(span, written.name, example));
    }
    Ok((text, span))
}

/// Earlier scopes, separated by commas.
fn scopes(written: &Written<'_>) -> Result<(Vec<String>, Span)> {
    let (text, span) = text(written, "was = \"shop::place_order\"")?;
    let value = text.value();
    let mut scopes: Vec<String> = Vec::new();
    for scope in value.split(',').map(str::trim).filter(|scope| !scope.is_empty()) {
        if scopes.iter().any(|other| other == scope) {
            return Err(errors::scope_twice(span, scope));
        }
        scopes.push(scope.to_owned());
    }
    match scopes.is_empty() {
        true => Err(errors::name_empty(span, written.name, "was = \"shop::place_order\"")),
        false => Ok((scopes, span)),
    }
}

/// The path of a function.
fn function(written: &Written<'_>) -> Result<(ExprPath, Span)> {
    let path = written.assigned::<ExprPath>("decode = path::to::function")?;
    let span = path.span();
    Ok((path, span))
}

fn runtime(written: &Written<'_>) -> Result<(Path, Span)> {
    let path = written.assigned::<Path>("crate = ::idem_runtime")?;
    let span = path.span();
    Ok((path, span))
}

/// What is between top-level commas; nothing between two commas is nothing.
pub(crate) fn split_at_commas(tokens: &[TokenTree]) -> impl Iterator<Item = &[TokenTree]> {
    let is_comma =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    tokens.split(is_comma).filter(|part| !part.is_empty())
}

pub(crate) fn tokens(trees: &[TokenTree]) -> TokenStream {
    trees.iter().cloned().collect()
}
