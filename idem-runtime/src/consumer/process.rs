//! One delivery: execute it under a renewed lock, then settle it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, error, info, warn};

use super::Shared;
use super::renewal::Renewal;
use crate::backoff::Backoff;
use crate::broker::{Locked, Settler};
use crate::delivery::Delivery;
use crate::handler::Context;
use crate::outcome::{Chain, Outcome, RetryReason};
use crate::settle::{Standing, settlement};
use crate::store::{Fault, Store};

/// Pauses before a busy key, or a database that is away, is tried again.
const HELD: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

/// Pauses before a failed message is given back. The broker hands it out again at once, so the
/// waiting is done here, under the renewed lock.
const GIVEN_BACK: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));

/// Handles and settles one delivery. Returns when the broker has been told.
pub(super) async fn process<S: Store>(
    shared: Arc<Shared<S>>,
    locked: Locked,
    settler: impl Settler,
) {
    shared.counters.deliveries.increment();
    let Locked { delivery, lock, lock_remaining } = locked;
    let context = shared.handler.context(delivery);
    let renewal = Renewal {
        settler: &settler,
        lock,
        remaining: lock_remaining,
        renewal_max: shared.limits.renewal_max,
        counters: &shared.counters,
    };
    let outcome = renewal.during(shared.handle(&context)).await;
    report(&context, &outcome);
    shared.counters.count_outcome(&outcome);

    let settlement = settlement(outcome, shared.standing(context.delivery()));
    shared.counters.count_settlement(&settlement);
    if let Err(error) = settler.settle(lock, settlement).await {
        shared.counters.settlements_failed.increment();
        let message_id = context.delivery().message_id();
        info!(message_id, error = %Chain(&error), "not settled, the message comes again");
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

    async fn handle(&self, context: &Context) -> Outcome {
        let outcome = self.execute_with_patience(context).await;
        if let Outcome::Retry(_) = outcome {
            sleep(GIVEN_BACK.after(context.delivery().delivery_count())).await;
        }
        outcome
    }

    /// A busy key is not the message's fault, and neither is a database that is away: the message
    /// is held rather than given back, so that neither eats its delivery budget. While messages
    /// are held, no others are received.
    async fn execute_with_patience(&self, context: &Context) -> Outcome {
        let until = Instant::now() + self.limits.renewal_max;
        let mut waits = 0;
        loop {
            let outcome = self.handler.execute(&self.store, context).await;
            waits += 1;
            let pause = HELD.after(waits);
            if !is_worth_waiting::<S>(&outcome) || Instant::now() + pause >= until {
                return outcome;
            }
            debug!(?outcome, ?pause, "held and tried again");
            sleep(pause).await;
        }
    }
}

fn is_worth_waiting<S: Store>(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Busy => true,
        Outcome::Retry(reason) => reason.fault::<S>() == Some(Fault::Unavailable),
        Outcome::Done(_) | Outcome::Duplicate(_) | Outcome::Reject(_) | Outcome::Unknown(_) => {
            false
        }
    }
}

/// One event for each outcome. A duplicate is nothing to worry about.
fn report(context: &Context, outcome: &Outcome) {
    let delivery = context.delivery();
    let message_id = delivery.message_id();
    let count = delivery.delivery_count();
    match outcome {
        Outcome::Done(_) => debug!(message_id, count, "done"),
        Outcome::Duplicate(_) => info!(message_id, count, "duplicate ignored, already processed"),
        Outcome::Busy => warn!(message_id, count, "another delivery holds the key, given back"),
        Outcome::Retry(reason @ RetryReason::Panic(_)) => {
            error!(message_id, count, %reason, "failed")
        }
        Outcome::Retry(reason) => warn!(message_id, count, %reason, "failed"),
        Outcome::Reject(rejection) => error!(message_id, count, %rejection, "rejected"),
        Outcome::Unknown(error) => {
            warn!(message_id, count, error = %Chain(error), "commit in doubt, left to come again");
        }
    }
}
