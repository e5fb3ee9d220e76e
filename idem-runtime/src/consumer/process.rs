//! One delivery: execute it under a renewed lock, then settle it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use super::Shared;
use super::places::{Place, Taken};
use super::renewal::{Hold, Renewal};
use crate::backoff::Backoff;
use crate::broker::{BrokerError, LockId, Locked, Settler};
use crate::delivery::Delivery;
use crate::handler::Context;
use crate::outcome::{Chain, Outcome, RetryReason};
use crate::settle::{Settlement, Standing, settlement};
use crate::store::Store;

/// Pauses before a busy key, or a database that is away, is tried again.
const HELD: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

/// Pauses before a failed message is given back. The broker hands it out again at once, so the
/// waiting is done here, under the renewed lock.
const GIVEN_BACK: Backoff = Backoff::new(Duration::from_millis(50), GIVEN_BACK_MAX);

pub(super) const GIVEN_BACK_MAX: Duration = Duration::from_secs(30);

/// Handles and settles one delivery. Returns when the broker has been told.
pub(super) async fn process<S: Store>(
    shared: Arc<Shared<S>>,
    locked: Locked,
    settler: impl Settler,
    place: Option<Taken>,
) {
    shared.counters.deliveries.increment();
    let Locked { delivery, lock, lock_remaining } = locked;
    let unsettled = Unsettled::new(&settler, lock);
    let mut place = Place::new(&shared.places, place, &settler, lock);
    let context = shared.handler.context(delivery).among(shared.busy_keys.enter());
    let hold = Hold::new();
    let renewal = Renewal {
        settler: &settler,
        lock,
        remaining: lock_remaining,
        hold: &hold,
        counters: &shared.counters,
    };
    let outcome = renewal.during(shared.handle(&context, &hold, &mut place)).await;
    report(&context, &outcome);
    shared.counters.count_outcome(&outcome);

    let settlement = settlement(outcome, shared.standing(context.delivery()));
    shared.counters.count_settlement(&settlement);
    if let Err(error) = unsettled.settle(settlement).await {
        shared.counters.settlements_failed.increment();
        let message_id = context.delivery().message_id();
        info!(message_id, error = %Chain(&error), "not settled, the message comes again");
    }
}

/// A delivery that has not been settled: dropped so, it is given back, since its place among the
/// messages in flight would otherwise be taken for ever.
struct Unsettled<'a, L: Settler> {
    settler: &'a L,
    lock: Option<LockId>,
}

impl<'a, L: Settler> Unsettled<'a, L> {
    fn new(settler: &'a L, lock: LockId) -> Self {
        Self { settler, lock: Some(lock) }
    }

    async fn settle(mut self, settlement: Settlement) -> Result<(), BrokerError> {
        match self.lock.take() {
            Some(lock) => self.settler.settle(lock, settlement).await,
            None => Ok(()),
        }
    }
}

impl<L: Settler> Drop for Unsettled<'_, L> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            self.settler.give_back(lock);
        }
    }
}

impl<S: Store> Shared<S> {
    fn standing(&self, delivery: &Delivery) -> Standing {
        if self.from_dead_letters {
            Standing::DeadLettered
        } else if delivery.delivery_count() >= self.limits.delivery_count_max {
            Standing::Last
        } else {
            Standing::Earlier
        }
    }

    async fn handle<L: Settler>(
        &self,
        context: &Context,
        hold: &Hold,
        place: &mut Place<'_, L>,
    ) -> Outcome {
        let outcome = self.execute_with_patience(context, hold, place).await;
        if let Some(asker) = context.asker() {
            asker.leave();
        }
        let comes_again = self.standing(context.delivery()) != Standing::Last;
        if matches!(outcome, Outcome::Retry(_)) && comes_again {
            self.pause(GIVEN_BACK.after(context.delivery().delivery_count()), hold).await;
        }
        outcome
    }

    /// A busy key is not the message's fault, and neither is a database that is away: the message
    /// is held rather than given back, so that neither eats its delivery budget. With a database
    /// that is away it keeps its place, so that no others are received; with a busy key it gives it
    /// to another message.
    async fn execute_with_patience<L: Settler>(
        &self,
        context: &Context,
        hold: &Hold,
        place: &mut Place<'_, L>,
    ) -> Outcome {
        let mut holds = 0;
        loop {
            place.take().await;
            hold.renew_for(Some(self.limits.renewal_max));
            let outcome = self.execute(context, holds == 0).await;
            if !is_worth_waiting(&outcome) || hold.is_lost() {
                return outcome;
            }
            holds += 1;
            self.report_hold(context, &outcome, holds);
            hold.renew_for(None);
            if let Outcome::Busy = outcome {
                place.set_aside();
            }
            if !self.pause_behind(context, HELD.after(holds), hold).await {
                return outcome;
            }
        }
    }

    /// Pauses until the delivery ahead has ended, where that is in this process. Everything else can
    /// only be tried again after a while.
    async fn pause_behind(&self, context: &Context, pause: Duration, hold: &Hold) -> bool {
        match context.asker().and_then(|asker| asker.one_ahead()) {
            Some(ended) => self.wait(ended, hold).await,
            None => self.pause(pause, hold).await,
        }
    }

    /// What has failed or was busy before would break up one batch after the other.
    async fn execute(&self, context: &Context, is_first: bool) -> Outcome {
        if let Some(batches) = &self.batches
            && is_first
            && context.delivery().delivery_count() <= 1
            && let Some(outcome) = batches.execute(context).await
        {
            return outcome;
        }
        self.handler.execute(&self.store, context).await
    }

    /// Whether the pause passed without the lock being lost or the consumer being stopped.
    async fn pause(&self, pause: Duration, hold: &Hold) -> bool {
        self.wait(sleep(pause), hold).await
    }

    /// Whether something came about before the lock was lost or the consumer stopped.
    async fn wait(&self, something: impl Future<Output = ()>, hold: &Hold) -> bool {
        tokio::select! {
            () = something => true,
            () = hold.lost() => false,
            () = self.stopping() => false,
        }
    }

    fn report_hold(&self, context: &Context, outcome: &Outcome, holds: u32) {
        let message_id = context.delivery().message_id();
        match outcome {
            Outcome::Retry(reason) if holds == 1 => {
                self.counters.held.increment();
                warn!(message_id, %reason, "not started, held and tried again");
            }
            Outcome::Retry(reason) => debug!(message_id, holds, %reason, "still held"),
            Outcome::Busy
            | Outcome::Done(_)
            | Outcome::Duplicate(_)
            | Outcome::Conflict(_)
            | Outcome::Reject(_)
            | Outcome::Unknown(_) => debug!(message_id, holds, "the key is busy, held"),
        }
    }
}

fn is_worth_waiting(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Busy | Outcome::Retry(RetryReason::NotStarted(_)) => true,
        Outcome::Done(_)
        | Outcome::Duplicate(_)
        | Outcome::Conflict(_)
        | Outcome::Retry(_)
        | Outcome::Reject(_)
        | Outcome::Unknown(_) => false,
    }
}

/// One event for each outcome. A duplicate is nothing to worry about.
fn report(context: &Context, outcome: &Outcome) {
    let delivery = context.delivery();
    let message_id = delivery.message_id();
    let count = delivery.delivery_count();
    match outcome {
        Outcome::Done(_) => debug!(message_id, count, "done"),
        Outcome::Duplicate(proof) => {
            let first = proof.claimed_at().map(tracing::field::display);
            info!(message_id, count, first, "duplicate ignored, already processed");
        }
        Outcome::Conflict(conflict) => error!(message_id, count, %conflict, "conflict"),
        Outcome::Busy => warn!(message_id, count, "another delivery holds the key, given back"),
        Outcome::Retry(reason @ RetryReason::Panic(_)) => {
            error!(message_id, count, %reason, "failed");
        }
        Outcome::Retry(reason) => warn!(message_id, count, %reason, "failed"),
        Outcome::Reject(rejection) => error!(message_id, count, %rejection, "rejected"),
        Outcome::Unknown(error) => {
            warn!(message_id, count, error = %Chain(error), "commit in doubt, left to come again");
        }
    }
}
