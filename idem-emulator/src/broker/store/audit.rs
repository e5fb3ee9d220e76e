//! What must hold between any two steps. Fuzzing asks for it.

use super::{Span, Store, Tally};
use crate::broker::message::MessageState;

impl Store {
    /// Looks at everything that is kept twice; returns what the messages are charged.
    ///
    /// # Panics
    ///
    /// If the indexes say something else than the messages.
    pub(in crate::broker) fn audit(&self) -> u64 {
        let mut tally = Tally::default();
        let mut tokens = 0;
        for (number, entry) in &self.messages {
            assert_eq!(entry.message.sequence_number, *number);
            tokens += entry.tokens.len();
            for token in &entry.tokens {
                assert_eq!(self.locks.get(token).map(|lock| lock.sequence_number), Some(*number));
            }
            let count = match entry.message.state {
                _ if !entry.tokens.is_empty() => &mut tally.locked,
                MessageState::Active => continue,
                MessageState::Deferred => &mut tally.deferred,
                MessageState::Scheduled { .. } => &mut tally.scheduled,
            };
            *count += 1;
        }
        assert_eq!(self.tally, tally);
        assert_eq!(self.locks.len(), tokens, "a lock outlives its message");
        assert!(self.ready.iter().all(|number| self.messages.contains_key(number)));
        let own_end = |span: &Span| matches!(span, Span::Until(_));
        let ends = self.locks.values().filter(|lock| own_end(&lock.span)).count();
        assert!(self.due.len() >= ends, "a lock has no end");
        self.messages.values().map(|entry| entry.message.charge()).sum()
    }
}
