//! What generated code calls. Not for users: it changes without notice.

pub use crate::delivery::{Decode, Delivery, Json};
pub use crate::handler::{
    Calling, Context, Definition, FromBatch, FromContext, HandlerSpec, Level, Requirements,
};
pub use crate::key::{Fingerprint, KeyEncoder};
pub use crate::message_id::{MessageIdError, Piece, message_id};
pub use crate::outcome::{Failure, Rejection, Reply};
pub use crate::store::NoTransaction;

use crate::delivery::UNDECODABLE;

/// A message, or why there is none.
pub type Decoded<M> = Result<M, Rejection>;

/// A function that a handler names with `decode`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not decode `{M}`",
    label = "expected a function of type `fn(&Delivery) -> Result<{M}, E>`",
    note = "`E` is an error that converts into `Failure`: the message is dead-lettered with its text"
)]
pub trait Decoder<M> {
    /// Calls the function.
    fn decode(self, delivery: &Delivery) -> Result<M, Failure>;
}

#[diagnostic::do_not_recommend]
impl<F, M, E> Decoder<M> for F
where
    F: FnOnce(&Delivery) -> Result<M, E>,
    E: Into<Failure>,
{
    fn decode(self, delivery: &Delivery) -> Result<M, Failure> {
        self(delivery).map_err(Into::into)
    }
}

/// Decodes by a function of the user's.
pub fn decode<M>(decoder: impl Decoder<M>, delivery: &Delivery) -> Decoded<M> {
    let delivery = delivery.readable()?;
    decoder.decode(delivery).map_err(|failure| failure.into_rejection(UNDECODABLE))
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

/// What the call of a handler is.
pub type Called<'a> = Result<Calling<'a>, Failure>;

/// What the call of a handler for many messages is.
pub type BatchCalled<'a> = Result<BatchCalling<'a>, Failure>;

/// Calls the handler, and drops what it returns.
pub fn forget<'a, R: HandlerResult>(handler: impl Future<Output = R> + Send + 'a) -> Calling<'a> {
    Box::pin(async { handler.await.finish().map(|_| None) })
}

/// Calls the handler, and keeps what it returns, for duplicates.
pub fn replay<'a, R: HandlerResult<Value: Replayed>>(
    handler: impl Future<Output = R> + Send + 'a,
) -> Calling<'a> {
    Box::pin(async { handler.await.finish()?.reply().map(Some) })
}

/// The call of a handler for many messages.
pub type BatchCalling<'a> = Calling<'a, Vec<Option<Reply>>>;

/// Calls the handler for many messages, and drops what it returns.
pub fn forget_batch<'a, R: HandlerResult>(
    handler: impl Future<Output = R> + Send + 'a,
    messages: usize,
) -> BatchCalling<'a> {
    Box::pin(async move { handler.await.finish().map(|_| (0..messages).map(|_| None).collect()) })
}

/// Calls the handler for many messages, and keeps what it returns, one value for each message, for
/// duplicates.
pub fn replay_batch<'a, R: HandlerResult<Value: Replies>>(
    handler: impl Future<Output = R> + Send + 'a,
    messages: usize,
) -> BatchCalling<'a> {
    Box::pin(async move {
        let replies = handler.await.finish()?.replies()?;
        if replies.len() != messages {
            let returned = replies.len();
            let problem = format!("the handler returned {returned} replies to {messages} messages");
            return Err(Failure::from(problem));
        }
        Ok(replies)
    })
}

/// Values that can be replayed, one for each message of a batch.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be replayed to duplicates of a batch",
    label = "not a `Vec` of values that implement `serde::Serialize`",
    note = "a `batch` handler with `replay` returns one value for each message, in their order"
)]
pub trait Replies {
    /// The values as they are kept.
    fn replies(&self) -> Result<Vec<Option<Reply>>, Failure>;
}

impl<T: Replayed> Replies for Vec<T> {
    fn replies(&self) -> Result<Vec<Option<Reply>>, Failure> {
        self.iter().map(|value| value.reply().map(Some)).collect()
    }
}

/// Calls a `batch` handler for one message alone.
pub fn alone<'a, D: Definition>(
    work: &'a mut D::Work,
    message: D::Message,
    context: &'a Context,
) -> Calling<'a> {
    Box::pin(async move {
        let replies = D::call_batch(work, vec![message], &[context])?.await?;
        Ok(replies.into_iter().next().flatten())
    })
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
