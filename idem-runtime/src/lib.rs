//! Idempotent message handling for Azure Service Bus.
//!
//! Service Bus delivers a message at least once. Put [`#[idempotent]`](idempotent) on the
//! `async fn` that handles it, and the effect in its database happens once: a *claim* for the
//! message is inserted in the handler's own transaction, the claims' unique constraint is the only
//! judge of "done before", and the message is settled by what was committed.
//!
//! A [`Consumer`] receives from a [`broker`] and runs a [`Handler`] for each [`Delivery`], through
//! [`execute()`], with its effects in a [`store`]. Someone with a loop of their own has
//! an [`Executor`], which does all of that but receiving and settling.
//!
//! # Features
//!
//! `sqlite`, `postgres` and `servicebus`, all on by default, `mysql` for MariaDB and MySQL, and
//! `sqlserver`, which builds a C library of cryptography and needs a C compiler. `chrono` and
//! `decimal` make types of the crates `chrono` and `rust_decimal` usable in keys. With
//! `opentelemetry`, the [span](telemetry) of a delivery continues the trace of its sender.
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
mod executor;
pub mod handler;
pub mod horizon;
pub mod key;
mod message_id;
pub mod outcome;
mod patience;
mod prune;
mod settle;
pub mod store;
pub mod telemetry;

pub use consumer::{Consumer, ConsumerBuilder, ConsumerHandle, Health, shutdown_signal};
pub use delivery::{Delivery, Property, SourceId};
pub use execute::{Proof, execute, execute_batch};
pub use executor::{Executed, Executor, ExecutorBuilder, StartError};
pub use handler::{Context, Definition, FromContext, Handler, HandlerSpec, Level, State};
pub use horizon::Horizon;
/// Makes a struct usable as a field of a key.
///
/// A struct with one field counts as that field: a newtype around an `i64` makes the keys that the
/// `i64` makes. The parts of any other struct are its fields in their declared order, all of them, so
/// moving a field is another key, and what was done before counts as not done. Each field implements
/// [`KeyPart`], and so does each type parameter.
///
/// ```
/// use idem_runtime::KeyPart;
///
/// #[derive(serde::Deserialize, KeyPart)]
/// struct CustomerId(i64);
///
/// #[derive(serde::Deserialize, KeyPart)]
/// struct Address {
///     country: String,
///     postcode: String,
/// }
/// ```
///
/// The names of the fields and of the struct are no part of the key. With a `constraint`, whose
/// columns are compared one by one, the handler names the fields themselves: `address.country,
/// address.postcode`.
///
/// For an enum, implement the trait: the derive would have to take the names of its variants, and a
/// renamed one would be another key.
///
/// `#[key_part(crate = ::path)]` says where this crate is, if not at `::idem_runtime`.
pub use idem_macros::KeyPart;
/// Gives a message a MessageId that follows from its fields.
///
/// ```
/// use idem_runtime::MessageId;
///
/// #[derive(serde::Serialize, MessageId)]
/// #[message_id = "{order_no}/payment/{attempt}"]
/// struct Payment {
///     order_no: String,
///     attempt: u32,
/// }
///
/// let payment = Payment { order_no: "2026/7".to_owned(), attempt: 1 };
/// assert_eq!(payment.message_id()?, "2026%2F7/payment/1");
/// # Ok::<_, idem_runtime::MessageIdError>(())
/// ```
///
/// The template names fields in braces, nested ones with dots, and has text between them. The fields
/// implement [`KeyPart`], so that there are no floats and no `Option`s among them, and stand for one
/// value; equal values make equal ids: a UUID is written with dashes and in lower case, an instant as
/// in RFC 3339 in UTC, bytes in hexadecimal digits.
///
/// No two messages share an id that differ in one of these fields. The character that ends a field in
/// the template, here `/`, is escaped in the values of all of them, and with it `%`, as in URLs. In a
/// template with one field nothing is. Other types with the same template share their ids; that they
/// do not is what the text is for.
///
/// An id has at most [128 bytes](MESSAGE_ID_SIZE_MAX), and [`MessageId::message_id`] fails for one
/// that has more, or none.
///
/// `#[message_id(crate = ::path)]` says where this crate is, if not at `::idem_runtime`.
pub use idem_macros::MessageId;
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
///   done unless its scope is set, or `was` names the one that it had.
/// - `was = "shop::place"`: scopes that the handler had earlier, separated by commas. What was done
///   under them is done; and as long as `was` is there, each message is claimed under all of them, so
///   that the earlier version of a service may run beside the new one. It costs a statement for each.
///   Remove it when the earlier version has been gone for as long as claims are kept.
/// - `decode = path`: a function `fn(&Delivery) -> Result<Message, E>` that decodes a body in place of
///   JSON, where `E` converts into [`Failure`]. A message that it refuses is dead-lettered as
///   `UndecodableBody` with the text of the error, or for the reason of a [`Failure::reject`].
/// - `crate = ::path`: where this crate is, if not at `::idem_runtime`. The path is absolute or
///   starts with `crate::`.
///
/// Several of them together:
///
#[cfg_attr(feature = "postgres", doc = "```")]
#[cfg_attr(not(feature = "postgres"), doc = "```ignore")]
/// use idem_runtime::store::Postgres;
/// use idem_runtime::{Delivery, Failure, Tx, idempotent};
///
/// struct Stock {
///     article: String,
///     pieces: i64,
/// }
///
/// impl Stock {
///     /// Reads `article;pieces`.
///     fn from_csv(delivery: &Delivery) -> Result<Self, Failure> {
///         let line = str::from_utf8(delivery.body())?;
///         let (article, pieces) = line
///             .split_once(';')
///             .ok_or_else(|| Failure::reject("NotCsv", "a line has two columns"))?;
///         Ok(Self { article: article.to_owned(), pieces: pieces.parse()? })
///     }
/// }
///
/// #[idempotent(level = 1, scope = "stock.count", was = "shop::count", decode = Stock::from_csv, batch)]
/// async fn count(tx: &mut Tx<Postgres>, lines: Vec<Stock>) -> Result<(), Failure> {
///     let (articles, pieces): (Vec<_>, Vec<_>) =
///         lines.into_iter().map(|line| (line.article, line.pieces)).unzip();
///     sqlx::query("INSERT INTO counts (article, pieces) SELECT * FROM unnest($1, $2)")
///         .bind(articles)
///         .bind(pieces)
///         .execute(&mut **tx)
///         .await?;
///     Ok(())
/// }
/// # fn is_a_handler<H: idem_runtime::Handler<Postgres>>(_: H) {}
/// # is_a_handler(CountHandler);
/// ```
///
/// # Requirements
///
/// - The function is `async`, free and not generic, and its future is `Send`.
/// - At levels 1 and 2 the first parameter is `&mut Tx<_>`: the claim and the handler's rows commit
///   together. At level 0 it may be left out.
/// - Next comes the message, by value: a type that implements `serde::Deserialize` without
///   borrowing, or with `decode` any type that is `Send`. With `batch` it is a `Vec` of them, in so
///   many words.
/// - Then any number of [extractors](FromContext): `&Delivery`, `State<T>`. With `batch`, `State<T>`
///   alone.
/// - It returns `Result<T, E>`, where `E` converts into [`Failure`], as every error does. `Ok`
///   commits, `Err` rolls back. Without `replay` the value is dropped.
///
/// # Expansion
///
/// The function exactly as written, the unit struct with the function's visibility, and one
/// implementation of [`Definition`] for it: the constants, the key of a message, and the call of the
/// function. All else is generic code of this crate, which is where the struct gets its [`Handler`]
/// from. With `decode` there is an implementation of [`Decode`](delivery::Decode) more.
///
/// The body is there once, and nothing is moved into or out of it: editors, debuggers and lints see
/// the function that you wrote.
///
/// # Limitations
///
/// - Two handlers of one scope share their keys. The compiler does not see that.
/// - A first parameter of level 0 that is written `&mut _` is taken for the transaction; a type
///   alias of the whole reference is not recognized as one. Aliases of `Tx<_>` are.
/// - Methods cannot be handlers: an attribute inside an `impl` cannot add items.
/// - Parameters cannot have `#[cfg]`, and `#[cfg]`s inside a `#[cfg_attr]` of the function are not
///   followed.
/// - A key field whose value is an `Option`, a float, a map or a time without an offset is refused.
pub use idem_macros::idempotent;
pub use key::KeyPart;
pub use message_id::{MESSAGE_ID_SIZE_MAX, MessageId, MessageIdError};
pub use outcome::{Failure, Outcome};
pub use prune::{Pruned, oldest_claim_age, prune};
pub use settle::{LAST_FAILURE, Settlement};
pub use store::Tx;
