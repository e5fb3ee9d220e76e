//! What is expanded: valid by construction.

use proc_macro2::{Ident, TokenStream};
use syn::{ExprPath, LitStr, Member, Type, Visibility};

/// How a handler is made idempotent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Zero,
    One,
    Two,
}

impl Level {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// What makes two deliveries the same: a level together with what it needs.
pub(crate) enum Identity {
    Nothing,
    MessageId,
    Fields(Vec<KeyField>),
}

/// What fields are named for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Key,
    Same,
}

impl Naming {
    pub(crate) fn argument(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Same => "same",
        }
    }

    /// How the argument is written.
    pub(crate) fn example(self) -> &'static str {
        match self {
            Self::Key => "key = \"customer_id, external_ref\"",
            Self::Same => "same = \"amount_cents, currency\"",
        }
    }
}

/// A path to a field of the message.
#[derive(Clone)]
pub(crate) struct KeyField {
    /// As the ledger and the logs show it.
    pub(crate) name: String,
    /// From the message inwards.
    pub(crate) members: Vec<Member>,
}

/// The struct that stands for the function when it is registered.
pub(crate) struct Marker {
    pub(crate) name: Ident,
    pub(crate) visibility: Visibility,
    /// The function's `#[cfg]`s: without the function there is no marker.
    pub(crate) cfgs: TokenStream,
    /// The function's name for people.
    pub(crate) function: String,
}

/// The function's parameters by what they are for.
pub(crate) struct Parameters {
    /// The `_` of `&mut _`; only level 0 may leave it out.
    pub(crate) transaction: Option<Type>,
    pub(crate) message: Type,
    pub(crate) extractors: Vec<Type>,
}

/// A handler that can be expanded.
pub(crate) struct Handler {
    pub(crate) function: Ident,
    pub(crate) scope: Option<LitStr>,
    /// Earlier scopes, whose claims still count.
    pub(crate) was: Vec<String>,
    /// What decodes a body, where that is not JSON.
    pub(crate) decode: Option<ExprPath>,
    pub(crate) identity: Identity,
    /// The constraint that stands in place of a claim.
    pub(crate) constraint: Option<LitStr>,
    /// The fields that must agree among messages of one key.
    pub(crate) same: Vec<KeyField>,
    /// Whether what the function returns is kept for duplicates.
    pub(crate) replay: bool,
    /// Whether the function takes many messages at once.
    pub(crate) batch: bool,
    pub(crate) parameters: Parameters,
    pub(crate) output: Type,
}
