//! Topics, subscriptions and forwarding.

use super::*;
use crate::codec::message::{Sections, submission as read};
use crate::rules::{CorrelationFilter, Filter, Rule, Rules};
use fe2o3_amqp_types::messaging::message::__private::Serializable;
use fe2o3_amqp_types::messaging::{
    ApplicationProperties, Body, Data, Message as WireMessage, MessageId, Properties,
};
use fe2o3_amqp_types::primitives::Value;

const HOUR: Duration = Duration::from_secs(3600);

fn topic(subscriptions: Vec<SubscriptionOptions>) -> Bench {
    topic_with(|topic| topic, subscriptions)
}

fn topic_with(
    adjust: impl FnOnce(TopicOptions) -> TopicOptions,
    subscriptions: Vec<SubscriptionOptions>,
) -> Bench {
    let topic =
        subscriptions.into_iter().fold(TopicOptions::new("news"), TopicOptions::subscription);
    Bench::of(Topology { topics: vec![adjust(topic)], ..Topology::default() })
}

fn queues(queues: Vec<QueueOptions>) -> Bench {
    Bench::of(Topology { queues, ..Topology::default() })
}

fn coloured(id: &str, colour: &str) -> Submission {
    with_property(id, "colour", colour)
}

pub(super) fn with_property(id: &str, name: &str, value: &str) -> Submission {
    let message: WireMessage<Body<Value>> = WireMessage::builder()
        .properties(Properties {
            message_id: Some(MessageId::String(id.to_owned())),
            subject: Some("s".to_owned()),
            ..Properties::default()
        })
        .application_properties(ApplicationProperties::builder().insert(name, value).build())
        .body(Body::Data(vec![Data(b"body".to_vec().into())].into()))
        .build();
    let bytes = serde_amqp::to_vec(&Serializable(&message)).unwrap();
    read(&Sections::split(&bytes).unwrap(), false)
}

impl Bench {
    fn at(&self, path: &str) -> Arc<Queue> {
        self.broker.node(path).expect(path).queue
    }

    fn messages(&self, path: &str, part: Part) -> Vec<Message> {
        self.at(path).peek(part, None, 0, 99).into_iter().map(|(message, _)| message).collect()
    }

    fn ids_at(&self, path: &str) -> Vec<String> {
        let messages = self.messages(path, Part::Main);
        messages.iter().map(|message| message.id.as_deref().unwrap().to_owned()).collect()
    }

    fn transfer_reasons(&self, path: &str) -> Vec<String> {
        let messages = self.messages(path, Part::Transfer);
        let reason =
            |message: &Message| message.dead_letter()?.reason.as_deref().map(str::to_owned);
        messages.iter().filter_map(reason).collect()
    }

    fn receive_at(&self, path: &str) -> Delivery {
        let mut deliveries = Vec::new();
        let consumer = self.broker.new_consumer();
        let mode = ReceiveMode::PeekLock;
        let queue = self.at(path);
        queue.receive(Part::Main, mode, 1, consumer, Waker::noop(), &mut deliveries).unwrap();
        deliveries.remove(0)
    }
}

#[test]
fn every_subscription_that_matches_gets_its_own_copy() {
    let bench = topic(vec![
        SubscriptionOptions::new("all"),
        SubscriptionOptions::new("red").rule(Rule::new("r", Filter::sql("colour = 'red'"))),
        SubscriptionOptions::new("blue")
            .rule(Rule::new("b", CorrelationFilter::new().property("colour", "blue"))),
        SubscriptionOptions::new("none").rule(Rule::new("n", Filter::False)),
    ]);
    bench.at("news").send(vec![coloured("a", "red"), coloured("b", "blue")]).unwrap();
    assert_eq!(bench.ids_at("news/subscriptions/all"), ["a", "b"]);
    assert_eq!(bench.ids_at("NEWS/Subscriptions/Red"), ["a"]);
    assert_eq!(bench.ids_at("news/subscriptions/blue"), ["b"]);
    assert!(bench.ids_at("news/subscriptions/none").is_empty());
    assert_eq!(bench.at("news").counts(), Counts::default());
    let numbers: Vec<_> = bench
        .messages("news/subscriptions/blue", Part::Main)
        .iter()
        .map(|message| message.sequence_number)
        .collect();
    assert_eq!(numbers, [1], "each subscription counts for itself");

    let held = bench.receive_at("news/subscriptions/red");
    let red = bench.at("news/subscriptions/red");
    red.settle(Part::Main, held.token, Settlement::Complete).unwrap();
    assert_eq!(bench.ids_at("news/subscriptions/all").len(), 2);
}

#[test]
fn an_action_changes_only_its_own_copy() {
    let rules = SubscriptionOptions::new("s").rule(Rule::new("plain", Filter::True)).rule(
        Rule::new("paint", Filter::sql("sys.Label = 's'"))
            .action("SET colour = 'blue'; SET sys.MessageId = 'painted'; SET sys.SessionId = 'x'"),
    );
    let bench = topic(vec![rules]);
    bench.at("news").send(vec![coloured("a", "red")]).unwrap();
    assert_eq!(bench.ids_at("news/subscriptions/s"), ["a", "painted"]);
    let messages = bench.messages("news/subscriptions/s", Part::Main);
    assert_eq!(messages[1].session_id.as_deref(), Some("x"));
    let colours =
        Rules::compile(vec![Rule::new("a", Filter::sql("colour = 'blue' AND RuleName = 'paint'"))])
            .unwrap();
    let matching = |message: &Message| {
        colours.copies(&crate::codec::message::View::of(&message.content)).len()
    };
    assert_eq!((matching(&messages[0]), matching(&messages[1])), (0, 1));
    assert_eq!(crate::codec::message::body(&messages[1].content), "body");
}

#[test]
fn rules_can_be_changed_while_messages_come() {
    let bench = topic(vec![SubscriptionOptions::new("s")]);
    let subscription = bench.at("news/subscriptions/s");
    assert!(subscription.remove_rule("$Default"));
    bench.at("news").send(vec![coloured("a", "red")]).unwrap();
    subscription.add_rule(Rule::new("red", Filter::sql("colour = 'red'"))).unwrap();
    bench.at("news").send(vec![coloured("b", "red"), coloured("c", "blue")]).unwrap();
    assert_eq!(bench.ids_at("news/subscriptions/s"), ["b"]);
    let names = |skip| -> Vec<_> {
        subscription.rules(skip, 9).iter().map(|rule| rule.name().to_owned()).collect()
    };
    assert_eq!((names(0), names(1)), (vec!["red".to_owned()], Vec::new()));
    bench.broker.reset();
    assert_eq!(names(0), ["$Default"]);
}

#[test]
fn a_topic_detects_duplicates_and_holds_what_is_scheduled() {
    let bench = topic_with(
        |topic| topic.duplicate_detection(HOUR).default_time_to_live(2 * HOUR),
        vec![SubscriptionOptions::new("s").dead_letter_expired(true)],
    );
    let due = bench.clock.now().plus(HOUR);
    let later = Submission { scheduled_for: Some(due), ..coloured("a", "red") };
    bench.at("news").send(vec![later, coloured("a", "red")]).unwrap();
    assert_eq!(bench.at("news").counts().scheduled, 1);
    assert!(bench.ids_at("news/subscriptions/s").is_empty());
    bench.clock.advance(HOUR);
    assert_eq!(bench.at("news").counts(), Counts::default());
    assert_eq!(bench.ids_at("news/subscriptions/s"), ["a"]);
    bench.clock.advance(2 * HOUR);
    assert_eq!(bench.at("news/subscriptions/s").counts().dead_lettered, 1, "the topic's limit");
}

#[test]
fn a_full_subscription_is_told_to_the_sender_and_nobody_gets_a_copy() {
    let bench = topic(vec![
        SubscriptionOptions::new("large"),
        SubscriptionOptions::new("s").size_max(1024),
    ]);
    let send = |id| bench.at("news").send(vec![coloured(id, "red")]);
    while send("a").is_ok() {}
    let full = send("b").unwrap_err();
    assert!(full.to_string().contains("news/Subscriptions/s"), "{full}");
    let counts = |path| bench.at(path).counts().active;
    assert_eq!(counts("news/subscriptions/large"), counts("news/subscriptions/s"));
}

#[test]
fn forwarded_messages_keep_their_first_number() {
    let bench = queues(vec![
        QueueOptions::new("in").forward_to("out").duplicate_detection(HOUR),
        QueueOptions::new("out"),
    ]);
    bench.at("out").send(vec![submission("first")]).unwrap();
    let sent =
        bench.at("in").send(vec![submission("a"), submission("a"), submission("b")]).unwrap();
    assert_eq!(sent, [1, 2, 3]);
    assert_eq!(bench.ids_at("out"), ["first", "a", "b"]);
    let last = bench.messages("out", Part::Main).remove(2);
    assert_eq!((last.sequence_number, last.original_number), (3, Some(3)));
    assert_eq!((bench.totals().forwarded, bench.totals().duplicate_dropped), (2, 1));
    assert!(!bench.at("in").keeps_messages());
}

#[test]
fn dead_letters_are_forwarded_with_their_reason() {
    let bench = queues(vec![
        QueueOptions::new("orders").max_delivery_count(1).forward_dead_lettered_messages_to("dead"),
        QueueOptions::new("dead"),
    ]);
    bench.send("a");
    bench.settle(&bench.one(), abandon()).unwrap();
    assert_eq!(bench.at("orders").counts(), Counts::default());
    let dead = bench.receive_at("dead").message;
    let reason = dead.dead_letter().and_then(|dead_letter| dead_letter.reason.as_deref());
    assert_eq!(reason, Some("MaxDeliveryCountExceeded"));
    assert_eq!((dead.delivery_count, dead.id.as_deref()), (0, Some("a")));
}

#[test]
fn a_circle_ends_after_four_forwards() {
    let bench = queues(vec![
        QueueOptions::new("a").forward_to("b"),
        QueueOptions::new("b").forward_to("a"),
    ]);
    bench.at("a").send(vec![submission("x")]).unwrap();
    assert_eq!(bench.totals().forwarded, 4);
    assert_eq!(bench.transfer_reasons("a"), ["MaxTransferHopCountExceeded"]);
}

#[test]
fn what_cannot_be_forwarded_is_among_the_failed_transfers() {
    let bench = queues(vec![
        QueueOptions::new("in").forward_to("out"),
        QueueOptions::new("failing").max_delivery_count(1).forward_dead_lettered_messages_to("out"),
        QueueOptions::new("out").size_max(1024),
    ]);
    let mut stored = 0;
    while bench.transfer_reasons("in").is_empty() {
        bench.at("in").send(vec![submission("a")]).expect("the sender is not told");
        stored += 1;
    }
    assert_eq!(bench.transfer_reasons("in"), ["QuotaExceeded"]);
    assert_eq!(bench.at("out").counts().active, stored - 1);
    assert_eq!(bench.totals().forwarded, u64::try_from(stored).unwrap() - 1);

    bench.at("failing").send(vec![submission("b")]).unwrap();
    let held = bench.receive_at("failing");
    bench.at("failing").settle(Part::Main, held.token, abandon()).unwrap();
    assert_eq!(bench.transfer_reasons("failing"), ["QuotaExceeded"]);
    bench.broker.delete("out").unwrap();
    bench.at("in").send(vec![submission("c")]).unwrap();
    assert_eq!(bench.transfer_reasons("in"), ["QuotaExceeded", "MessagingEntityNotFound"]);
    let counts = bench.at("in").counts();
    assert_eq!((counts.dead_lettered, counts.transfer_dead_lettered), (0, 2));
}

#[test]
fn failed_transfers_are_received_like_dead_letters() {
    let bench = queues(vec![
        QueueOptions::new("orders").lock_duration(LOCK).forward_to("other"),
        QueueOptions::new("other").forward_to("orders"),
    ]);
    bench.send("a");
    let node = bench.broker.node("Orders/$Transfer/$DeadLetterQueue").unwrap();
    assert_eq!((node.part, &**node.name()), (Part::Transfer, "orders/$Transfer/$DeadLetterQueue"));
    let held = bench.take(Part::Transfer, 1).remove(0);
    let again = bench.queue().settle(Part::Transfer, held.token, dead_letter("why"));
    assert_eq!(again, Err(SettleError::AlreadyDeadLettered));
    bench.clock.advance(LOCK);
    let held = bench.take(Part::Transfer, 1).remove(0);
    assert_eq!(held.message.delivery_count, 1);
    bench.queue().settle(Part::Transfer, held.token, Settlement::Complete).unwrap();
    assert_eq!(bench.queue().counts(), Counts::default());
}

#[test]
fn a_forwarded_message_without_a_session_is_a_dead_letter_where_sessions_are_required() {
    let bench = queues(vec![
        QueueOptions::new("in").forward_to("out"),
        QueueOptions::new("out").requires_session(true),
    ]);
    let with = Submission { session_id: Some("s".into()), ..submission("a") };
    bench.at("in").send(vec![with, submission("b")]).unwrap();
    assert_eq!(bench.ids_at("out"), ["a"]);
    let dead = bench.messages("out", Part::DeadLetter).remove(0);
    let reason = dead.dead_letter().and_then(|dead_letter| dead_letter.reason.as_deref());
    assert_eq!((reason, dead.id.as_deref()), (Some("Session ID is null"), Some("b")));
}

#[test]
fn a_chain_ends_in_the_subscriptions_of_a_topic() {
    let bench = Bench::of(Topology {
        queues: vec![QueueOptions::new("in").forward_to("news"), QueueOptions::new("out")],
        topics: vec![
            TopicOptions::new("news")
                .subscription(SubscriptionOptions::new("s").forward_to("out"))
                .subscription(SubscriptionOptions::new("t")),
        ],
    });
    bench.at("in").send(vec![coloured("a", "red")]).unwrap();
    assert_eq!(bench.ids_at("out"), ["a"]);
    assert_eq!(bench.ids_at("news/subscriptions/t"), ["a"]);
    let last = bench.messages("out", Part::Main).remove(0);
    assert_eq!(last.forwards, 2);
}

#[test]
fn wrong_topologies_name_the_entity_and_what_is_wrong() {
    let rule = || Rule::new("r", Filter::sql("colour ="));
    let cases = [
        (vec![QueueOptions::new("a").forward_to("a")], Vec::new(), "forward messages to another"),
        (vec![QueueOptions::new("a").forward_to("b")], Vec::new(), "found `b`"),
        (
            vec![QueueOptions::new("a").forward_dead_lettered_messages_to("b")],
            Vec::new(),
            "forward dead letters to another",
        ),
        (vec![QueueOptions::new("t")], vec![TopicOptions::new("T")], "`T` exists already"),
        (
            Vec::new(),
            vec![TopicOptions::new("t").subscription(SubscriptionOptions::new("s").rule(rule()))],
            "`t/Subscriptions/s`: rule `r`",
        ),
        (
            Vec::new(),
            vec![TopicOptions::new("t").subscription(SubscriptionOptions::new("a/b"))],
            "1 to 50",
        ),
    ];
    for (queues, topics, expected) in cases {
        let events = Events::new(Clock::manual(), 1);
        let topology = Topology { queues, topics };
        let error = Broker::new(topology, Clock::manual(), events).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
