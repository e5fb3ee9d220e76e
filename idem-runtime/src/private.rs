//! What generated code calls. Not for users: it changes without notice.

pub use crate::handler::{Context, FromContext, Handler, HandlerSpec, Level, Requirements};
pub use crate::key::KeyEncoder;
pub use crate::outcome::Failure;
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
    /// Drops the value and unifies the error.
    fn finish(self) -> Result<(), Failure>;
}

impl<T, E: HandlerError> HandlerResult for Result<T, E> {
    fn finish(self) -> Result<(), Failure> {
        self.map(drop).map_err(HandlerError::into_failure)
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
