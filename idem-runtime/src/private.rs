//! What generated code calls. Not for users: it changes without notice.

pub use crate::handler::{
    Context, FromBatch, FromContext, Handler, HandlerSpec, Level, Requirements,
};
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

/// What the call of a handler for many messages comes to.
pub type BatchCalled = Result<Vec<Option<Reply>>, Failure>;

/// Drops what the handler returned.
pub fn forget_batch<R: HandlerResult>(result: R, messages: usize) -> BatchCalled {
    result.finish().map(|_| (0..messages).map(|_| None).collect())
}

/// Keeps what the handler returned, one value for each message, for duplicates.
pub fn replay_batch<R: HandlerResult<Value: Replies>>(result: R, messages: usize) -> BatchCalled {
    let replies = result.finish()?.replies()?;
    if replies.len() != messages {
        let returned = replies.len();
        let problem = format!("the handler returned {returned} replies to {messages} messages");
        return Err(Failure::from(problem));
    }
    Ok(replies)
}

/// Values that can be replayed, one for each message of a batch.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be replayed to duplicates of a batch",
    label = "not a `Vec` of values that implement `serde::Serialize`",
    note = "a `batch` handler with `replay` returns one value for each message, in their order"
)]
pub trait Replies {
    /// The values as they are kept.
    fn replies(&self) -> BatchCalled;
}

impl<T: Replayed> Replies for Vec<T> {
    fn replies(&self) -> BatchCalled {
        self.iter().map(|value| value.reply().map(Some)).collect()
    }
}

/// What a `batch` handler comes to for one message alone.
pub async fn alone(called: impl Future<Output = BatchCalled>) -> Called {
    Ok(called.await?.pop().flatten())
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
