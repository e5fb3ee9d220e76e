//! Idempotent message handling for Azure Service Bus.
//!
//! Service Bus delivers a message at least once. Put [`#[idempotent]`](idempotent) on the
//! `async fn` that handles it, and the effect in its database happens once: a *claim* for the
//! message is inserted in the handler's own transaction, the claims' unique constraint is the only
//! judge of "done before", and the message is settled by what was committed.
//!
//! A [`Consumer`] receives from a [`broker`] and runs a [`Handler`] for each [`Delivery`], through
//! [`execute()`], with its effects in a [`store`]. Someone with a loop of their own calls
//! [`execute()`], or [`execute_batch()`] for many at once, and settles by the [`Outcome`].
//!
//! # Features
//!
//! `sqlite`, `postgres` and `servicebus`, all on by default, and `mysql` for MariaDB and MySQL.
//! `servicebus` needs the development files of OpenSSL to build, on Debian `pkg-config` and
//! `libssl-dev`, since the Azure client depends on them.

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;
mod backoff;
pub mod broker;
pub mod consumer;
pub mod delivery;
mod execute;
pub mod handler;
pub mod horizon;
pub mod key;
pub mod outcome;
mod prune;
mod settle;
pub mod store;

pub use consumer::{Consumer, ConsumerBuilder, shutdown_signal};
pub use delivery::{Delivery, Property, SourceId};
pub use execute::{Proof, execute, execute_batch};
pub use handler::{Context, FromContext, Handler, HandlerSpec, Level, State};
pub use horizon::Horizon;
/// Makes an `async fn` an idempotent message handler.
///
/// The function stays what it is and can be called in tests. Beside it the attribute puts a struct
/// that stands for the handler when it is registered: `place_order` becomes `PlaceOrderHandler`.
///
#[cfg_attr(feature = "postgres", doc = "```")]
#[cfg_attr(not(feature = "postgres"), doc = "```ignore")]
/// use idem_runtime::store::Postgres;
/// use idem_runtime::{Failure, Tx, idempotent};
///
/// #[derive(serde::Deserialize)]
/// struct PlaceOrder {
///     customer_id: i64,
///     external_ref: String,
///     amount_cents: i64,
/// }
///
/// #[idempotent(key = "customer_id, external_ref")]
/// async fn place_order(tx: &mut Tx<Postgres>, order: PlaceOrder) -> Result<(), Failure> {
///     sqlx::query("INSERT INTO orders (customer_id, external_ref, amount_cents) VALUES ($1, $2, $3)")
///         .bind(order.customer_id)
///         .bind(&order.external_ref)
///         .bind(order.amount_cents)
///         .execute(&mut **tx)
///         .await?;
///     Ok(())
/// }
///
/// # fn is_a_handler<H: idem_runtime::Handler<Postgres>>(_: H) {}
/// # is_a_handler(PlaceOrderHandler);
/// ```
///
/// # Arguments
///
/// All are optional.
///
/// - `level = 0`, `1` or `2`: how the handler is made idempotent, see [`Level`]. The default is 2
///   with a `key` and 1 without.
/// - `key = "customer_id, address.postcode"`: the fields of the message that identify the
///   operation, at level 2. Their order counts. Written as `key(customer_id, address.postcode)`,
///   errors point at the field itself and editors can rename it. Each field implements
///   [`KeyPart`].
/// - `constraint = "orders_customer_ref_uq"`: at level 2, a unique constraint of a table that the
///   handler writes, in place of a claim. The fields of `key` are its columns, in its order. The
///   violation of exactly this constraint makes a duplicate if the row that was met is committed;
///   any other error is the handler's. A consumer refuses to start unless the catalogue shows the
///   constraint as unique, valid, immediate, for all rows, and on columns that are never null.
/// - `same = "amount_cents, currency"`, or as paths: fields that must agree among messages of one
///   key, at levels 1 and 2. A message that differs in one of them from the first that was handled
///   is an [`Outcome::Conflict`], and is dead-lettered with the names of these fields. Their hashes
///   are kept, their values are not. With `constraint`, they are compared with the columns of the
///   same names.
/// - `replay`: the value of `Ok` is kept with the claim as JSON, and given to duplicates with their
///   [`Proof`]. It implements `serde::Serialize` and has at most
///   [64 KiB](outcome::Reply::SIZE_MAX). It costs a statement.
/// - `batch`: the function takes `Vec<Message>` and is called once for many messages, which commit
///   together; [`execute_batch()`] says what follows where one of them fails. With `replay` it
///   returns one value for each message, in their order.
/// - `scope = "orders.place"`: the name under which the handler's keys live. The default is the
///   package and the function, as in `shop::place_order`, so a renamed function forgets what it has
///   done unless its scope is set.
/// - `crate = ::path`: where this crate is, if not at `::idem_runtime`. The path is absolute or
///   starts with `crate::`.
///
/// # Requirements
///
/// - The function is `async`, free and not generic, and its future is `Send`.
/// - At levels 1 and 2 the first parameter is `&mut Tx<_>`: the claim and the handler's rows commit
///   together. At level 0 it may be left out.
/// - Next comes the message, by value: a type that implements `serde::Deserialize` without
///   borrowing. With `batch` it is a `Vec` of them, in so many words.
/// - Then any number of [extractors](FromContext): `&Delivery`, `State<T>`. With `batch`, `State<T>`
///   alone.
/// - It returns `Result<T, E>`, where `E` converts into [`Failure`], as every error does. `Ok`
///   commits, `Err` rolls back. Without `replay` the value is dropped.
///
/// # Expansion
///
/// The function exactly as written, the unit struct with the function's visibility, and one
/// implementation of [`Handler`] for it: the constants, the key of a message, and the call of the
/// function. All else is generic code of this crate.
///
/// # Limitations
///
/// - A first parameter of level 0 that is written `&mut _` is taken for the transaction; a type
///   alias of the whole reference is not recognized as one. Aliases of `Tx<_>` are.
/// - Methods cannot be handlers: an attribute inside an `impl` cannot add items.
/// - Parameters cannot have `#[cfg]`, and `#[cfg]`s inside a `#[cfg_attr]` of the function are not
///   followed.
/// - A key field whose value is an `Option`, a float or a map is refused.
pub use idem_macros::idempotent;
pub use key::KeyPart;
pub use outcome::{Failure, Outcome};
pub use prune::{Pruned, oldest_claim_age, prune};
pub use settle::Settlement;
pub use store::Tx;
