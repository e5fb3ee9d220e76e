//! What generated code calls. Not for users: it changes without notice.

pub use crate::handler::{Context, FromContext, Handler, HandlerSpec, Level, Requirements};
pub use crate::key::{Fingerprint, KeyEncoder};
pub use crate::outcome::{Failure, Reply};
pub use crate::store::{NoTransaction, Store};

use crate::store::{Tx, Work};

/// Finds the store of a handler's transaction argument, also behind a type alias.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction",
    label = "expected `Tx<_>`",
    note = "a handler takes `&mut Tx<S>` first, where `S` is the store: `Tx<Postgres>`, `Tx<Sqlite>`"
)]
pub trait Transaction: Work<Self::Store> {
    /// The store that the transaction is open in.
    type Store: Store;
}

impl<S: Store> Transaction for Tx<S> {
    type Store = S;
}

/// What a handler may return.
#[diagnostic::on_unimplemented(
    message = "a handler must return `Result`, found `{Self}`",
    label = "not a `Result`",
    note = "`Ok` commits the claim, `Err` rolls it back"
)]
pub trait HandlerResult {
    /// The value of `Ok`.
    type Value;

    /// Unifies the error.
    fn finish(self) -> Result<Self::Value, Failure>;
}

impl<T, E: HandlerError> HandlerResult for Result<T, E> {
    type Value = T;

    fn finish(self) -> Result<T, Failure> {
        self.map_err(HandlerError::into_failure)
    }
}

/// What the call of a handler comes to.
pub type Called = Result<Option<Reply>, Failure>;

/// Drops what the handler returned.
pub fn forget<R: HandlerResult>(result: R) -> Called {
    result.finish().map(|_| None)
}

/// Keeps what the handler returned, for duplicates.
pub fn replay<R: HandlerResult<Value: Replayed>>(result: R) -> Called {
    result.finish()?.reply().map(Some)
}

/// A value that can be replayed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be replayed to duplicates",
    label = "does not implement `serde::Serialize`",
    note = "`replay` keeps the value of `Ok` as JSON; derive `serde::Serialize` for it, or leave `replay` out"
)]
pub trait Replayed {
    /// The value as it is kept.
    fn reply(&self) -> Result<Reply, Failure>;
}

#[diagnostic::do_not_recommend]
impl<T: serde::Serialize> Replayed for T {
    fn reply(&self) -> Result<Reply, Failure> {
        Reply::of(self)
    }
}

/// The error of what a handler may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a handler",
    label = "this error does not convert into `Failure`",
    note = "return `Failure`, or an error that implements `std::error::Error + Send + Sync + 'static`"
)]
pub trait HandlerError {
    /// Converts, as `?` would.
    fn into_failure(self) -> Failure;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Failure>> HandlerError for E {
    fn into_failure(self) -> Failure {
        self.into()
    }
}
