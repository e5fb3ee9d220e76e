//! What the handlers run on.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use idem_runtime::handler::States;
use idem_runtime::store::{Sqlite, Store};
use idem_runtime::{Context, Delivery, Handler, Outcome, SourceId, execute};
use tempfile::TempDir;

/// What the handlers did.
#[derive(Clone, Default)]
pub(crate) struct Log(pub(crate) Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, entry: impl Into<String>) {
        self.0.lock().expect("no handler panics").push(entry.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no handler panics"))
    }
}

/// A store and what the handlers are called with.
pub(crate) struct Bench {
    pub(crate) store: Sqlite,
    pub(crate) log: Log,
    /// Where the database is, for others.
    pub(crate) url: String,
    /// Goes with the one whose it is.
    #[expect(dead_code, reason = "kept for what is in it")]
    folder: Option<TempDir>,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("ledger.db").display());
        Self { folder: Some(folder), ..Self::at(&url).await }
    }

    /// On the database of another one.
    pub(crate) async fn at(url: &str) -> Self {
        let store = Sqlite::connect(url).await.expect("a database");
        store.migrate().await.expect("a ledger");
        Self { store, url: url.to_owned(), log: Log::default(), folder: None }
    }

    pub(crate) async fn deliver<H: Handler<Sqlite>>(
        &self,
        id: &str,
        body: impl Into<Bytes>,
    ) -> Outcome {
        let source = SourceId::new("bus.example.net", "orders");
        let delivery = Delivery::new(source, body).with_message_id(id);
        let mut states = States::default();
        states.insert(self.log.clone());
        execute::<H, Sqlite>(&self.store, &Context::new(delivery, states)).await
    }

    /// Delivers one order twice, the second time under another `MessageId`, and says what was done.
    pub(crate) async fn deliver_twice<H: Handler<Sqlite>>(&self) -> Vec<String> {
        const ORDER: &str = r#"{"customer_id":7,"external_ref":"a"}"#;
        let first = self.deliver::<H>("m-1", ORDER).await;
        assert!(matches!(first, Outcome::Done(_)), "{first:?}");
        let second = self.deliver::<H>("m-2", ORDER).await;
        assert!(matches!(second, Outcome::Duplicate(_)), "{second:?}");
        self.log.take()
    }
}
