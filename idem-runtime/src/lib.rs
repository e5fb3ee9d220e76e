//! Idempotent message handling for Azure Service Bus.

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod backoff;
pub mod broker;
pub mod consumer;
pub mod delivery;
mod execute;
pub mod handler;
pub mod key;
pub mod outcome;
mod settle;
pub mod store;

pub use consumer::{Consumer, ConsumerBuilder, shutdown_signal};
pub use delivery::{Delivery, Property, SourceId};
pub use execute::execute;
pub use handler::{Context, FromContext, Handler, HandlerSpec, Level, State};
pub use idem_macros::idempotent;
pub use key::KeyPart;
pub use outcome::{Failure, Outcome};
pub use settle::Settlement;
pub use store::Tx;
