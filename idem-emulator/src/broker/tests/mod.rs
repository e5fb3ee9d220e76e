//! The broker's rules, with a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::events::{EventKind, EventTotals};
use crate::faults::{Ending, Fault, FaultKind};
use crate::options::{QueueOptions, SubscriptionOptions, TopicOptions};

mod entities;
mod faults;
mod limits;
mod queues;
mod routes;
mod sessions;
mod states;
mod time_to_live;
mod transactions;

const LOCK: Duration = Duration::from_secs(10);

struct Bench {
    broker: Arc<Broker>,
    clock: Clock,
}

impl Bench {
    fn new(adjust: impl FnOnce(QueueOptions) -> QueueOptions) -> Self {
        let queues = vec![adjust(QueueOptions::new("orders").lock_duration(LOCK))];
        Self::of(Topology { queues, ..Topology::default() })
    }

    fn of(topology: Topology) -> Self {
        let clock = Clock::manual();
        let events = Events::new(clock.clone(), 1000);
        let broker = Arc::new(Broker::new(topology, clock.clone(), events).unwrap());
        let listener: Weak<dyn OnAdvance> = Arc::<Broker>::downgrade(&broker) as _;
        assert!(clock.listen(listener));
        Self { broker, clock }
    }

    fn plain() -> Self {
        Self::new(|options| options)
    }

    fn queue(&self) -> Arc<Queue> {
        self.broker.node("orders").unwrap().queue
    }

    fn send(&self, id: &str) {
        self.queue().send(vec![submission(id)]).unwrap();
    }

    fn take(&self, part: Part, max: usize) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        let consumer = self.broker.new_consumer();
        let queue = self.queue();
        queue
            .receive(part, ReceiveMode::PeekLock, max, consumer, Waker::noop(), &mut deliveries)
            .unwrap();
        queue.forget(part, consumer);
        deliveries
    }

    fn one(&self) -> Delivery {
        let mut deliveries = self.take(Part::Main, 1);
        assert_eq!(deliveries.len(), 1, "a message is ready");
        deliveries.remove(0)
    }

    fn settle(
        &self,
        delivery: &Delivery,
        settlement: Settlement,
    ) -> Result<Acknowledgement, SettleError> {
        self.queue().settle(Part::Main, delivery.token, settlement)
    }

    fn counts(&self) -> (usize, usize, usize) {
        let counts = self.queue().counts();
        (counts.active, counts.locked, counts.dead_lettered)
    }

    fn totals(&self) -> EventTotals {
        self.broker.context.events.totals()
    }
}

fn submission(id: &str) -> Submission {
    Submission {
        id: Some(id.into()),
        content: Bytes::from_static(b"opaque"),
        ..Submission::default()
    }
}

fn abandon() -> Settlement {
    Settlement::Abandon { properties: Vec::new() }
}

fn dead_letter(reason: &str) -> Settlement {
    Settlement::DeadLetter {
        reason: Some(reason.into()),
        description: None,
        properties: Vec::new(),
    }
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.message.id.as_deref().unwrap()).collect()
}

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
