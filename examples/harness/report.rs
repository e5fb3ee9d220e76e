//! What came of a run.

use std::fmt;
use std::time::Duration;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, Table};
use idem_runtime::consumer::Summary;

/// The counts of a run.
#[derive(Debug)]
pub struct Report {
    /// Messages sent.
    pub sent: u64,
    /// Orders that these messages ask for.
    pub intents: u64,
    /// What the consumer counted.
    pub consumed: Summary,
    /// Messages on the dead-letter queue.
    pub dead_letters: u32,
    /// Messages still on the queue.
    pub left: u32,
    /// Rows in the orders table.
    pub effects: u64,
    /// Orders without a row.
    pub missing: u64,
    /// Rows too many, of orders whose handler crashed after it wrote.
    pub crash_window: u64,
    /// Rows too many, of orders that two deliveries handled at once.
    pub concurrency_window: u64,
    /// Handlers that crashed on purpose.
    pub crashes: u64,
    /// How often each fault of the wire fired.
    pub faults: Vec<(&'static str, u64)>,
    /// From the first message sent until the queue was empty.
    pub elapsed: Duration,
}

impl Report {
    /// Rows too many.
    pub fn double_effects(&self) -> u64 {
        self.crash_window + self.concurrency_window
    }

    /// Whether each order has exactly one row, and no message is left anywhere.
    pub fn is_exactly_once(&self) -> bool {
        self.effects == self.intents
            && self.missing == 0
            && self.double_effects() == 0
            && self.left == 0
            && self.dead_letters == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY);
        let mut row = |name: &str, count: u64| {
            table.add_row([name.to_owned(), count.to_string()]);
        };
        for (name, fired) in &self.faults {
            row(name, *fired);
        }
        row("crashes in mid-handler", self.crashes);
        row("reconnects", self.consumed.reconnects);
        row("messages sent", self.sent);
        row("deliveries", self.consumed.deliveries);
        row("effects", self.effects);
        row("duplicates", self.consumed.duplicates);
        row("retries", self.consumed.retries);
        row("dead letters", self.dead_letters.into());
        if let Some(counts) = table.column_mut(1) {
            counts.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(f, "{table}")?;
        let verdict = match self.is_exactly_once() {
            true => "each order exactly once, and the queue is empty",
            false => "NOT each order exactly once",
        };
        write!(f, "{} orders in {:.1} s: {verdict}", self.intents, self.elapsed.as_secs_f64())?;
        if !self.is_exactly_once() {
            let (missing, doubled, left) = (self.missing, self.double_effects(), self.left);
            write!(f, " ({missing} missing, {doubled} rows too many, {left} left on the queue)")?;
        }
        Ok(())
    }
}
