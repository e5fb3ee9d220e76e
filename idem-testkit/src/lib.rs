//! Checks for handlers: deliver a message again, and nothing may change.
//!
//! ```
//! use idem_runtime::store::{Sqlite, Store};
//! use idem_runtime::{Context, Delivery, Failure, SourceId, Tx, idempotent};
//!
//! #[derive(serde::Deserialize)]
//! struct Rename {
//!     id: i64,
//!     name: String,
//! }
//!
//! #[idempotent(level = 0)]
//! async fn rename(tx: &mut Tx<Sqlite>, rename: Rename) -> Result<(), Failure> {
//!     let set = "INSERT INTO names (id, name) VALUES ($1, $2)
//!                ON CONFLICT (id) DO UPDATE SET name = excluded.name";
//!     sqlx::query(set).bind(rename.id).bind(rename.name).execute(&mut **tx).await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Sqlite::connect("sqlite::memory:").await?;
//! store.migrate().await?;
//! sqlx::raw_sql("CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT)")
//!     .execute(store.pool())
//!     .await?;
//!
//! let message = r#"{ "id": 7, "name": "Ada" }"#;
//! let delivery = Delivery::new(SourceId::new("bus.example.net", "names"), message);
//! idem_testkit::repeat::<RenameHandler, _, _>(&store, &Context::of(delivery), async || {
//!     sqlx::query_as::<_, (i64, String)>("SELECT id, name FROM names ORDER BY id")
//!         .fetch_all(store.pool())
//!         .await
//!         .expect("the table can be read")
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

mod repeat;

pub use repeat::{Unrepeatable, repeat};
