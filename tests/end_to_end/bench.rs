//! An emulator with one queue, and an SQLite file with one table.

use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_tests::database::SqliteFile;

pub(crate) struct Bench {
    pub(crate) emulator: Emulator,
    pub(crate) bus: ServiceBus,
    pub(crate) file: SqliteFile,
}

impl Bench {
    /// The queue is called `entries`, and so is the table.
    pub(crate) async fn with(queue: QueueOptions) -> Self {
        let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
        Self::on(emulator).await
    }

    pub(crate) async fn on(emulator: Emulator) -> Self {
        let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
        let file = SqliteFile::new().await;
        let table = "CREATE TABLE entries (account bigint NOT NULL)";
        sqlx::query(table).execute(file.store.pool()).await.expect("a valid table");
        Self { emulator, bus, file }
    }

    pub(crate) async fn send(&self, messages: Vec<OutgoingMessage>) {
        let sender = self.bus.sender("entries").await.expect("a sender");
        sender.send_all(messages).await.expect("sent");
    }

    pub(crate) async fn entries(&self) -> Vec<i64> {
        let entries = "SELECT account FROM entries ORDER BY account";
        sqlx::query_scalar(entries).fetch_all(self.file.store.pool()).await.expect("entries")
    }

    /// MessageId, reason and description of each dead letter, by MessageId.
    pub(crate) fn dead_letters(&self) -> Vec<(String, String, String)> {
        let letters = self.emulator.dead_letters("entries").expect("it is there");
        let texts = letters.into_iter().map(|letter| {
            (
                letter.message_id.unwrap_or_default(),
                letter.dead_letter_reason.unwrap_or_default(),
                letter.dead_letter_description.unwrap_or_default(),
            )
        });
        let mut texts: Vec<_> = texts.collect();
        texts.sort();
        texts
    }

    /// How many messages are on the queue, locked or not.
    pub(crate) fn left(&self) -> usize {
        let counts = self.emulator.counts("entries").expect("it is there");
        counts.active + counts.locked
    }
}

pub(crate) fn message(id: &str, body: impl Into<bytes::Bytes>) -> OutgoingMessage {
    OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }.with_message_id(id)
}
