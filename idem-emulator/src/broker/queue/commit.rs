//! The work of transactions: held back, then done as one.

use uuid::Uuid;

use super::{Part, Queue, SettleError, Settlement, State};
use crate::broker::message::Submission;
use crate::broker::transaction::{TransactionError, Work};
use crate::clock::Timestamp;

impl Queue {
    /// Keeps a locked message for a transaction: until `until`, its lock lasts, and it cannot be
    /// settled in another way.
    pub(in crate::broker) fn reserve(
        &self,
        part: Part,
        token: Uuid,
        settlement: &Settlement,
        until: Timestamp,
    ) -> Result<(), SettleError> {
        self.step(|state, now| {
            self.check_settlement(state, part, token, settlement, now)?;
            state.store(part).reserve(token, until);
            Ok(())
        })
    }

    /// Ends what [`reserve`](Self::reserve) began: locks that should have ended meanwhile do so now.
    pub(in crate::broker) fn roll_back(&self, work: &[Work], ends_at: Timestamp) {
        self.step(|state, now| {
            release_all(state, work, ends_at);
            self.catch_up(state, now);
        });
    }

    /// Does all of the work, and takes it; or none, and leaves it.
    pub(in crate::broker) fn commit(
        &self,
        work: &mut Vec<Work>,
        ends_at: Timestamp,
    ) -> Result<(), TransactionError> {
        self.check_targets(sent(work))?;
        self.step(|state, now| {
            self.check_sends(state, sent(work), now)?;
            for work in work.iter() {
                self.check_reserved(state, work)?;
            }
            release_all(state, work, ends_at);
            for work in work.drain(..) {
                match work {
                    Work::Send(submissions) => {
                        for submission in submissions {
                            self.accept(state, submission, now);
                        }
                    }
                    Work::Settle { part, token, settlement } => {
                        self.apply(state, part, token, settlement);
                    }
                }
            }
            // What was given back may have outlived its time meanwhile.
            self.catch_up(state, now);
            Ok(())
        })
    }

    /// A message can be gone although it was reserved: with its session, its entity or a purge.
    fn check_reserved(&self, state: &mut State, work: &Work) -> Result<(), SettleError> {
        match work {
            Work::Send(_) => Ok(()),
            Work::Settle { part, token, .. } => {
                let held = state.store(*part).locked(*token);
                held.map(|_| ()).ok_or(self.lock_lost(*part))
            }
        }
    }
}

fn sent(work: &[Work]) -> impl Iterator<Item = &Submission> + Clone {
    work.iter().flat_map(|work| match work {
        Work::Send(submissions) => submissions.as_slice(),
        Work::Settle { .. } => &[],
    })
}

fn release_all(state: &mut State, work: &[Work], ends_at: Timestamp) {
    for work in work {
        if let Work::Settle { part, token, .. } = work {
            state.store(*part).release(*token, ends_at);
        }
    }
}
