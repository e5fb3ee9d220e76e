//! Idempotent message handling for Azure Service Bus.

pub mod broker;
pub mod delivery;
pub mod handler;
pub mod key;
pub mod outcome;
mod settle;
pub mod store;
#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use delivery::{Delivery, Property, SourceId};
pub use handler::{Context, FromContext, Handler, HandlerSpec, Level, State};
pub use idem_macros::idempotent;
pub use key::KeyPart;
pub use outcome::{Failure, Outcome};
pub use settle::Settlement;
pub use store::Tx;
