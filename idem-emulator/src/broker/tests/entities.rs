//! Entities that come and go while the broker runs.

use super::*;
use crate::error::{EntityError, UnknownEntity};

impl Bench {
    fn create(&self, queue: QueueOptions) -> Result<(), EntityError> {
        self.broker.create(Topology { queues: vec![queue], ..Topology::default() })
    }

    fn create_topic(&self, topic: TopicOptions) -> Result<(), EntityError> {
        self.broker.create(Topology { topics: vec![topic], ..Topology::default() })
    }

    fn paths(&self) -> Vec<String> {
        self.broker.entities().iter().map(|entity| entity.path().to_owned()).collect()
    }

    fn active(&self, path: &str) -> usize {
        self.broker.entity(path).unwrap().counts().active
    }
}

#[test]
fn a_created_queue_is_found_and_a_deleted_one_is_not() {
    let bench = Bench::plain();
    bench.create(QueueOptions::new("Invoices")).unwrap();
    assert_eq!(bench.paths(), ["Invoices", "orders"]);
    assert!(bench.broker.node("invoices/$DeadLetterQueue").is_some());
    bench.broker.delete("INVOICES").unwrap();
    assert_eq!(bench.paths(), ["orders"]);
    assert!(bench.broker.node("invoices/$DeadLetterQueue").is_none());
    let unknown = UnknownEntity { name: "invoices".to_owned() };
    assert_eq!(bench.broker.delete("invoices"), Err(unknown));
}

#[test]
fn what_cannot_be_created_changes_nothing() {
    let bench = Bench::plain();
    bench.create_topic(TopicOptions::new("news")).unwrap();
    let twice = SubscriptionOptions::new("all");
    let wrong = TopicOptions::new("other").subscription(twice.clone()).subscription(twice.clone());
    let exists = |entity: &str| EntityError::Exists { entity: entity.to_owned() };
    assert_eq!(bench.create(QueueOptions::new("ORDERS")), Err(exists("ORDERS")));
    assert_eq!(bench.create_topic(wrong), Err(exists("other/Subscriptions/all")));
    let error = bench.create(QueueOptions::new("in").forward_to("nowhere")).unwrap_err();
    assert!(error.to_string().contains("found `nowhere`"), "{error}");
    for topic in ["orders", "nothing"] {
        let unknown = EntityError::UnknownTopic { topic: topic.to_owned() };
        assert_eq!(bench.broker.create_subscription(topic, twice.clone()), Err(unknown));
    }
    assert_eq!(bench.paths(), ["news", "orders"]);
}

#[test]
fn messages_of_a_deleted_queue_are_gone() {
    let bench = Bench::plain();
    bench.send("a");
    bench.send("b");
    let held = bench.one();
    let deleted = bench.queue();
    bench.broker.delete("orders").unwrap();
    assert_eq!(deleted.counts(), Counts::default());
    let late = deleted.settle(Part::Main, held.token, Settlement::Complete);
    assert_eq!(late, Err(SettleError::LockLost));
    let name = Arc::from("orders");
    assert_eq!(deleted.send(vec![submission("c")]), Err(SendError::Deleted { name }));

    bench.create(QueueOptions::new("orders")).unwrap();
    assert_eq!(bench.counts(), (0, 0, 0));
    bench.send("a");
    assert_eq!(bench.one().message.sequence_number, 1, "it is another queue");
}

#[test]
fn a_topic_gives_messages_to_the_subscriptions_that_it_has_at_the_time() {
    let bench = Bench::plain();
    bench.create_topic(TopicOptions::new("news")).unwrap();
    let publish = |id| bench.broker.entity("news").unwrap().send(vec![submission(id)]).unwrap();
    publish("before");
    bench.broker.create_subscription("News", SubscriptionOptions::new("one")).unwrap();
    bench.broker.create_subscription("news", SubscriptionOptions::new("two")).unwrap();
    publish("between");
    let gone = bench.broker.entity("news/subscriptions/one").unwrap();
    bench.broker.delete("news/subscriptions/one").unwrap();
    publish("after");
    assert_eq!(bench.active("news/subscriptions/two"), 2);
    assert_eq!(gone.counts(), Counts::default());
    assert_eq!(bench.broker.entity("news").unwrap().subscriptions().len(), 1);
    bench.broker.delete("news").unwrap();
    assert_eq!(bench.paths(), ["orders"], "a topic takes its subscriptions with it");
}

#[test]
fn what_is_forwarded_to_a_deleted_entity_is_a_failed_transfer_until_there_is_one_again() {
    let bench = Bench::plain();
    bench.create(QueueOptions::new("in").forward_to("Orders")).unwrap();
    bench.broker.delete("orders").unwrap();
    let source = bench.broker.entity("in").unwrap();
    source.send(vec![submission("a")]).unwrap();
    let (dead, _) = source.peek(Part::Transfer, None, 0, 9).remove(0);
    let reason = dead.dead_letter().and_then(|dead_letter| dead_letter.reason.as_deref());
    assert_eq!(reason, Some("MessagingEntityNotFound"));
    bench.create(QueueOptions::new("orders")).unwrap();
    source.send(vec![submission("b")]).unwrap();
    assert_eq!(bench.active("orders"), 1);
}

#[test]
fn time_passes_for_created_entities_too() {
    let bench = Bench::plain();
    bench.create(QueueOptions::new("short").default_time_to_live(LOCK)).unwrap();
    let short = bench.broker.entity("short").unwrap();
    short.send(vec![submission("a")]).unwrap();
    bench.clock.advance(LOCK);
    assert_eq!(bench.totals().expired, 1);
}

#[test]
fn a_broker_frees_its_entities() {
    let bench = Bench::plain();
    let queue = Arc::downgrade(&bench.queue());
    drop(bench);
    assert!(queue.upgrade().is_none());
}

#[test]
fn a_topic_has_at_most_2000_subscriptions() {
    let subscriptions = (0..2000).map(|number| SubscriptionOptions::new(number.to_string()));
    let topic = subscriptions.fold(TopicOptions::new("news"), TopicOptions::subscription);
    let bench = Bench::of(Topology { topics: vec![topic], ..Topology::default() });
    let one_more = SubscriptionOptions::new("one-more");
    let error = bench.broker.create_subscription("news", one_more.clone()).unwrap_err();
    assert!(error.to_string().contains("2000 subscriptions"), "{error}");
    bench.broker.delete("news/Subscriptions/7").unwrap();
    bench.broker.create_subscription("news", one_more).unwrap();
}
