//! One delivery: execute it under a renewed lock, then settle it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span, debug, info, warn};

use super::Shared;
use super::places::{Place, Taken};
use super::registry::Registered;
use super::renewal::{Hold, Renewal};
use crate::broker::{LockId, Locked, Settler, Told};
use crate::delivery::Delivery;
use crate::handler::Context;
use crate::outcome::{Chain, Outcome};
use crate::patience::{GIVEN_BACK, HELD, is_worth_waiting, reason_of};
use crate::settle::{Settlement, Standing, settlement};
use crate::store::Store;
use crate::telemetry;

/// Handles and settles one delivery. Completes when its settlement is on its way.
///
/// There is one such future for each message, and it is moved a few times before it runs: what it
/// works on is made here, so that it is small.
pub(super) fn process<S: Store, L: Settler>(
    shared: Arc<Shared<S>>,
    locked: Locked,
    settler: L,
    place: Option<Taken>,
) -> impl Future<Output = ()> + Send + use<S, L> {
    let in_flight = shared.counters.received();
    let handler = shared.routes.handler_of(&locked.delivery).map(Registered::spec);
    let span = telemetry::of_delivery(&locked.delivery, handler.as_ref());
    let Locked { delivery, lock, lock_remaining } = locked;
    let context = shared.context(delivery);
    let handled = async move {
        let _in_flight = in_flight;
        let unsettled = Unsettled::new(&settler, lock);
        if shared.refused.contains(context.delivery()) {
            unsettled.settle(Settlement::Leave, Told::nobody()).await;
            return;
        }
        let mut place = Place::new(&shared.places, place, &settler, lock);
        let context = context.among(shared.busy_keys.enter());
        let hold = Hold::new();
        let renewal = Renewal {
            settler: &settler,
            lock,
            remaining: lock_remaining,
            hold: &hold,
            counters: &shared.counters,
        };
        let outcome = renewal.during(pin!(shared.handle(&context, &hold, &mut place))).await;
        let settlement = settlement(outcome, shared.standing(context.delivery()));
        shared.counters.settling(&settlement);
        unsettled.settle(settlement, report_failure(Arc::clone(&shared), context)).await;
    };
    handled.instrument(span)
}

/// Counts and logs a settlement that failed.
fn report_failure<S: Store>(shared: Arc<Shared<S>>, context: Context) -> Told {
    let span = Span::current();
    Told::new(move |told| {
        let Err(error) = told else { return };
        shared.counters.settlement_failed();
        let message_id = context.delivery().message_id();
        span.in_scope(|| {
            info!(message_id, error = %Chain(&error), "not settled, the message comes again");
        });
    })
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

    async fn settle(mut self, settlement: Settlement, told: Told) {
        if let Some(lock) = self.lock {
            self.settler.settle(lock, settlement, told).await;
            self.lock = None;
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
        let received = Instant::now();
        let outcome = self.execute_with_patience(context, hold, place).await;
        self.tell(context, &outcome, received.elapsed());
        if let Some(asker) = context.asker() {
            asker.leave();
        }
        let delivery = context.delivery();
        let standing = self.standing(delivery);
        if standing == Standing::Earlier && matches!(outcome, Outcome::Retry(_)) {
            self.pause(GIVEN_BACK.after(delivery.delivery_count()), hold).await;
        }
        let is_rejected = matches!(outcome, Outcome::Reject(_) | Outcome::Conflict(_));
        if standing == Standing::DeadLettered && is_rejected {
            self.refused.insert(delivery);
        }
        outcome
    }

    /// The one place where what a delivery came to is told to whoever watches.
    fn tell(&self, context: &Context, outcome: &Outcome, took: Duration) {
        let scope = self.scope_of(context);
        self.counters.decided(scope, context.delivery(), outcome, took);
        telemetry::record_outcome(&Span::current(), outcome);
        telemetry::report(context, scope, outcome);
    }

    /// For metrics and logs; `none` for a message that no handler is for.
    fn scope_of(&self, context: &Context) -> &'static str {
        let handler = self.routes.handler_of(context.delivery());
        handler.map_or("none", |handler| handler.spec().scope)
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

    async fn execute(&self, context: &Context, is_first: bool) -> Outcome {
        let Some(handler) = self.routes.handler_of(context.delivery()) else {
            return Outcome::Reject(self.routes.unroutable(context.delivery()));
        };
        let outcome = self.execute_with(handler, context, is_first).await;
        self.control.note(handler.spec().scope, &outcome);
        outcome
    }

    /// What has failed or was busy before would break up one batch after the other.
    async fn execute_with(
        &self,
        handler: &Registered<S>,
        context: &Context,
        is_first: bool,
    ) -> Outcome {
        if let Some(batches) = &handler.batches
            && is_first
            && context.delivery().delivery_count() <= 1
            && let Some(outcome) = batches.execute(context).await
        {
            return outcome;
        }
        handler.execute(&self.store, context).await
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
        let reason = reason_of(outcome);
        if holds == 1 {
            self.counters.held(self.scope_of(context), reason);
        }
        match reason {
            Some(reason) if holds == 1 => {
                warn!(message_id, %reason, "not started, held and tried again");
            }
            Some(reason) => debug!(message_id, holds, %reason, "still held"),
            None => debug!(message_id, holds, "the key is busy, held"),
        }
    }
}
