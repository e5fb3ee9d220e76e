//! Requests as clients encode them, by an independent implementation of the AMQP types.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use fe2o3_amqp_types::messaging::message::__private::{Deserializable, Serializable};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Message as WireMessage, MessageId, Properties,
};
use fe2o3_amqp_types::primitives::{Array, OrderedMap, SimpleValue, Value};
use uuid::Uuid;

use super::*;
use crate::broker::{
    Broker, Counts, Delivery, Part, ReceiveMode, SessionWish, Submission, Topology,
};
use crate::clock::{Clock, Timestamp};
use crate::events::Events;
use crate::options::{QueueOptions, SubscriptionOptions, TopicOptions};

struct Desk {
    broker: Broker,
    clock: Clock,
}

/// What a client sees of a response.
#[derive(Debug)]
struct Seen {
    status: i32,
    condition: Option<String>,
    body: Value,
}

impl Desk {
    fn new() -> Self {
        let queues =
            vec![QueueOptions::new("orders"), QueueOptions::new("sessions").requires_session(true)];
        let topics = vec![TopicOptions::new("news").subscription(SubscriptionOptions::new("s"))];
        let topology = Topology { queues, topics };
        let clock = Clock::manual();
        let events = Events::new(clock.clone(), 100);
        Self { broker: Broker::new(topology, clock.clone(), events).unwrap(), clock }
    }

    fn ask(&self, entity: &str, operation: &str, body: &[(&str, Value)]) -> Seen {
        let mut map = OrderedMap::new();
        for (name, value) in body {
            map.insert(Value::String((*name).to_owned()), value.clone());
        }
        self.ask_with(entity, Some(operation), Value::Map(map))
    }

    fn ask_with(&self, entity: &str, operation: Option<&str>, body: Value) -> Seen {
        let mut properties = ApplicationProperties::builder();
        if let Some(operation) = operation {
            properties = properties.insert("operation", operation);
        }
        let request: WireMessage<AmqpValue<Value>> = WireMessage::builder()
            .properties(Properties {
                message_id: Some(MessageId::String("request".to_owned())),
                ..Properties::default()
            })
            .application_properties(properties.build())
            .body(AmqpValue(body))
            .build();
        let bytes = serde_amqp::to_vec(&Serializable(&request)).unwrap();
        let node = RequestNode::Entity(self.broker.node(entity).unwrap());
        let answer = node.answer(&Sections::split(&bytes).unwrap());
        assert_eq!(answer.acknowledgement, Acknowledgement::Now);
        seen(&answer.response)
    }

    fn held(&self) -> Delivery {
        let queue = self.broker.node("orders").unwrap().queue;
        queue.send(vec![Submission { id: Some("m".into()), ..Submission::default() }]).unwrap();
        let consumer = self.broker.new_consumer();
        let mut held = Vec::new();
        let mode = ReceiveMode::PeekLock;
        queue.receive(Part::Main, mode, 1, consumer, Waker::noop(), &mut held).unwrap();
        // The link is gone; its lock is not.
        queue.forget(Part::Main, consumer);
        held.remove(0)
    }

    fn settle(&self, status: &str, tokens: &[Uuid]) -> Seen {
        let body = [
            ("disposition-status", Value::String(status.to_owned())),
            ("lock-tokens", uuids(tokens)),
            ("deadletter-reason", Value::String("why".to_owned())),
        ];
        self.ask("orders", "com.microsoft:update-disposition", &body)
    }

    fn counts(&self) -> Counts {
        self.broker.node("orders").unwrap().queue.counts()
    }
}

fn seen(bytes: &[u8]) -> Seen {
    let response: WireMessage<AmqpValue<Value>> =
        serde_amqp::from_slice::<Deserializable<_>>(bytes).unwrap().0;
    let id = response.properties.unwrap().correlation_id;
    assert_eq!(id, Some(MessageId::String("request".to_owned())));
    let properties = response.application_properties.unwrap();
    let Some(SimpleValue::Int(status)) = properties.get("statusCode") else {
        panic!("{properties:?}")
    };
    let condition = match properties.get("errorCondition") {
        Some(SimpleValue::Symbol(condition)) => Some(condition.as_str().to_owned()),
        Some(other) => panic!("not a symbol: {other:?}"),
        None => None,
    };
    Seen { status: *status, condition, body: response.body.0 }
}

fn uuids(tokens: &[Uuid]) -> Value {
    Value::Array(Array(
        tokens.iter().map(|token| Value::Uuid((*token.as_bytes()).into())).collect(),
    ))
}

fn numbers(numbers: &[i64]) -> Value {
    Value::Array(Array(numbers.iter().map(|number| Value::Long(*number)).collect()))
}

fn field(body: &Value, name: &str) -> Value {
    let Value::Map(map) = body else { panic!("{body:?}") };
    map.get(&Value::String(name.to_owned())).cloned().expect(name)
}

#[test]
fn every_disposition_can_be_updated_after_the_link_is_gone() {
    let expected = [
        ("completed", Counts::default()),
        ("abandoned", Counts { active: 1, ..Counts::default() }),
        ("defered", Counts { deferred: 1, ..Counts::default() }),
        ("deferred", Counts { deferred: 1, ..Counts::default() }),
        ("suspended", Counts { dead_lettered: 1, ..Counts::default() }),
    ];
    for (status, counts) in expected {
        let desk = Desk::new();
        let token = desk.held().token;
        assert_eq!(desk.counts().locked, 1);
        assert_eq!(desk.settle(status, &[token]).status, 200, "{status}");
        assert_eq!(desk.counts(), counts, "{status}");
        let again = desk.settle(status, &[token]);
        assert_eq!(again.status, 410, "{status}");
        assert_eq!(again.condition.as_deref(), Some("com.microsoft:message-lock-lost"));
    }
}

#[test]
fn a_lock_that_is_gone_fails_the_request_but_not_the_others() {
    let desk = Desk::new();
    let tokens = [desk.held().token, Uuid::from_u128(1), desk.held().token];
    assert_eq!(desk.settle("completed", &tokens).status, 410);
    assert_eq!(desk.counts(), Counts::default());
}

#[test]
fn wrong_requests_are_refused_with_their_condition() {
    let desk = Desk::new();
    let argument = Some("com.microsoft:argument-error");
    let long = Value::String("x".to_owned());
    let cases = [
        ("orders", "update-disposition", vec![("lock-tokens", long.clone())], 400, argument),
        ("orders", "update-disposition", vec![("lock-tokens", uuids(&[]))], 400, argument),
        ("orders", "schedule-message", vec![("messages", long)], 400, argument),
        (
            "orders",
            "cancel-scheduled-message",
            vec![("sequence-numbers", numbers(&[7]))],
            404,
            Some("com.microsoft:message-not-found"),
        ),
        (
            "orders",
            "receive-by-sequence-number",
            vec![("sequence-numbers", numbers(&[7]))],
            404,
            Some("com.microsoft:message-not-found"),
        ),
        ("orders", "renew-session-lock", Vec::new(), 400, Some("amqp:not-allowed")),
        ("orders", "add-rule", Vec::new(), 400, Some("amqp:not-allowed")),
        ("sessions", "peek-message", Vec::new(), 400, Some("amqp:not-allowed")),
        ("orders", "unheard-of", Vec::new(), 501, Some("amqp:not-implemented")),
    ];
    for (entity, operation, body, status, condition) in cases {
        let seen = desk.ask(entity, &format!("com.microsoft:{operation}"), &body);
        assert_eq!((seen.status, seen.condition.as_deref()), (status, condition), "{operation}");
    }
    let unknown = desk.settle("forgotten", &[desk.held().token]);
    assert_eq!((unknown.status, unknown.condition.as_deref()), (400, argument));
}

/// The arguments of each operation, with what they must not be. Absent ones have defaults.
#[test]
fn malformed_arguments_are_refused_by_every_operation() {
    let subscription = "news/Subscriptions/s";
    let text = || Value::String("x".to_owned());
    let map = || Value::Map(OrderedMap::new());
    let tokens = || uuids(&[Uuid::from_u128(1)]);
    type Case = (&'static str, &'static str, Vec<(&'static str, Value)>);
    let cases: Vec<Case> = vec![
        ("orders", "renew-lock", vec![]),
        ("orders", "renew-lock", vec![("lock-tokens", numbers(&[1]))]),
        ("orders", "renew-lock", vec![("lock-tokens", map())]),
        ("orders", "update-disposition", vec![("disposition-status", text())]),
        (
            "orders",
            "update-disposition",
            vec![("lock-tokens", tokens()), ("disposition-status", Value::Int(1))],
        ),
        (
            "orders",
            "update-disposition",
            vec![
                ("lock-tokens", tokens()),
                ("disposition-status", Value::String("suspended".to_owned())),
                ("deadletter-reason", Value::Int(1)),
            ],
        ),
        (
            "orders",
            "update-disposition",
            vec![
                ("lock-tokens", tokens()),
                ("disposition-status", Value::String("abandoned".to_owned())),
                ("properties-to-modify", text()),
            ],
        ),
        ("orders", "peek-message", vec![("from-sequence-number", text())]),
        ("orders", "peek-message", vec![("message-count", text())]),
        ("orders", "peek-message", vec![("omit-message-body", text())]),
        ("orders", "peek-message", vec![("message-count", Value::Int(-1))]),
        ("orders", "peek-message", vec![("message-count", Value::Int(0))]),
        ("sessions", "peek-message", vec![("session-id", Value::Int(1))]),
        ("orders", "batch-delete-messages", vec![]),
        ("orders", "batch-delete-messages", vec![("message-count", text())]),
        (
            "orders",
            "batch-delete-messages",
            vec![("message-count", Value::Int(1)), ("enqueued-time-utc", text())],
        ),
        ("orders", "schedule-message", vec![]),
        ("orders", "schedule-message", vec![("messages", Value::List(vec![map()]))]),
        ("orders", "schedule-message", vec![("messages", Value::List(vec![text()]))]),
        ("orders", "cancel-scheduled-message", vec![("sequence-numbers", text())]),
        ("orders", "cancel-scheduled-message", vec![("sequence-numbers", numbers(&[]))]),
        ("orders", "receive-by-sequence-number", vec![]),
        ("orders", "receive-by-sequence-number", vec![("sequence-numbers", map())]),
        (
            "orders",
            "receive-by-sequence-number",
            vec![("sequence-numbers", numbers(&[1])), ("receiver-settle-mode", Value::Uint(7))],
        ),
        (
            "orders",
            "receive-by-sequence-number",
            vec![("sequence-numbers", numbers(&[1])), ("receiver-settle-mode", text())],
        ),
        ("sessions", "renew-session-lock", vec![]),
        ("sessions", "renew-session-lock", vec![("session-id", Value::Null)]),
        ("sessions", "get-session-state", vec![("session-id", map())]),
        (
            "sessions",
            "set-session-state",
            vec![("session-id", text()), ("session-state", Value::Int(1))],
        ),
        ("sessions", "get-message-sessions", vec![("skip", text())]),
        ("sessions", "get-message-sessions", vec![("skip", Value::Int(-1))]),
        ("sessions", "get-message-sessions", vec![("top", map())]),
        ("sessions", "get-message-sessions", vec![("last-updated-time", text())]),
        (subscription, "add-rule", vec![]),
        (subscription, "add-rule", vec![("rule-name", text())]),
        (subscription, "add-rule", vec![("rule-name", text()), ("rule-description", text())]),
        (subscription, "add-rule", vec![("rule-name", text()), ("rule-description", map())]),
        (subscription, "remove-rule", vec![("rule-name", Value::Int(1))]),
        (subscription, "enumerate-rules", vec![("skip", text())]),
        (subscription, "enumerate-rules", vec![("top", Value::Int(-1))]),
    ];
    let desk = Desk::new();
    for (entity, operation, body) in cases {
        let seen = desk.ask(entity, &format!("com.microsoft:{operation}"), &body);
        let expected = (400, Some("com.microsoft:argument-error"));
        assert_eq!((seen.status, seen.condition.as_deref()), expected, "{operation} {body:?}");
    }
}

#[test]
fn a_batch_of_messages_is_deleted_up_to_a_number_and_a_time() {
    let desk = Desk::new();
    let held = desk.held();
    let queue = desk.broker.node("orders").unwrap().queue;
    let send = |id: &str| {
        queue.send(vec![Submission { id: Some(id.into()), ..Submission::default() }]).unwrap();
    };
    ["a", "b", "c"].into_iter().for_each(send);
    let middle = desk.clock.now().plus(Duration::from_secs(1));
    desk.clock.advance(Duration::from_secs(2));
    send("late");
    let delete = |count, time: Timestamp| {
        let time = serde_amqp::primitives::Timestamp::from_milliseconds(time.milliseconds());
        let body =
            [("message-count", Value::Int(count)), ("enqueued-time-utc", Value::Timestamp(time))];
        desk.ask("orders", "com.microsoft:batch-delete-messages", &body)
    };
    let first = delete(2, middle);
    assert_eq!((first.status, field(&first.body, "message-count")), (200, Value::Int(2)));
    let second = delete(10, middle);
    assert_eq!(field(&second.body, "message-count"), Value::Int(1));
    assert_eq!(delete(10, middle).status, 204);
    assert_eq!(desk.counts(), Counts { active: 1, locked: 1, ..Counts::default() });
    assert_eq!(desk.broker.context.events.totals().deleted, 3);
    assert_eq!(desk.settle("completed", &[held.token]).status, 200, "what is held stays");

    let body = [("message-count", Value::Int(1)), ("session-id", Value::String("s".to_owned()))];
    let lost = desk.ask("sessions", "com.microsoft:batch-delete-messages", &body);
    assert_eq!(lost.condition.as_deref(), Some("com.microsoft:session-lock-lost"));
}

#[test]
fn a_request_without_an_operation_or_without_a_map_is_refused() {
    let desk = Desk::new();
    let expected = (400, Some("com.microsoft:argument-error"));
    for (operation, body) in [
        (None, Value::Map(OrderedMap::new())),
        (Some("com.microsoft:peek-message"), Value::String("x".to_owned())),
        (Some("com.microsoft:peek-message"), Value::Null),
    ] {
        let seen = desk.ask_with("orders", operation, body);
        assert_eq!((seen.status, seen.condition.as_deref()), expected, "{operation:?}");
    }
}

/// Whatever type an argument has, each operation answers.
#[test]
fn arguments_of_any_type_never_stop_an_operation() {
    let desk = Desk::new();
    let operations = [
        ("orders", "renew-lock"),
        ("orders", "update-disposition"),
        ("orders", "peek-message"),
        ("orders", "schedule-message"),
        ("orders", "cancel-scheduled-message"),
        ("orders", "receive-by-sequence-number"),
        ("orders", "batch-delete-messages"),
        ("sessions", "renew-session-lock"),
        ("sessions", "get-session-state"),
        ("sessions", "set-session-state"),
        ("sessions", "get-message-sessions"),
        ("sessions", "peek-message"),
        ("news/Subscriptions/s", "add-rule"),
        ("news/Subscriptions/s", "remove-rule"),
        ("news/Subscriptions/s", "enumerate-rules"),
    ];
    let names = [
        "lock-tokens",
        "disposition-status",
        "from-sequence-number",
        "message-count",
        "messages",
        "sequence-numbers",
        "receiver-settle-mode",
        "session-id",
        "session-state",
        "skip",
        "top",
        "last-updated-time",
        "rule-name",
        "rule-description",
        "enqueued-time-utc",
    ];
    let values = [
        Value::Null,
        Value::Bool(true),
        Value::Int(i32::MIN),
        Value::Long(i64::MAX),
        Value::Ulong(u64::MAX),
        Value::String(String::new()),
        Value::Binary(vec![0, 1].into()),
        Value::List(vec![Value::Null]),
        Value::Map(OrderedMap::new()),
        uuids(&[]),
        numbers(&[i64::MIN, i64::MAX]),
    ];
    for (entity, operation) in operations {
        for value in &values {
            let body: Vec<_> = names.iter().map(|name| (*name, value.clone())).collect();
            let seen = desk.ask(entity, &format!("com.microsoft:{operation}"), &body);
            let known = [200, 204, 400, 404, 410];
            assert!(known.contains(&seen.status), "{operation} {value:?}: {}", seen.status);
        }
    }
}

#[test]
fn a_message_is_peeked_without_its_body_on_request() {
    let desk = Desk::new();
    let sent: WireMessage<AmqpValue<Value>> = WireMessage::builder()
        .properties(Properties { subject: Some("s".to_owned()), ..Properties::default() })
        .body(AmqpValue(Value::String("a long body".to_owned())))
        .build();
    let bytes = serde_amqp::to_vec(&Serializable(&sent)).unwrap();
    let submission = crate::codec::message::submission(&Sections::split(&bytes).unwrap(), false);
    desk.broker.node("orders").unwrap().queue.send(vec![submission]).unwrap();
    for (omits, expected) in [(false, true), (true, false)] {
        let body = [("omit-message-body", Value::Bool(omits))];
        let seen = desk.ask("orders", "com.microsoft:peek-message", &body);
        let Value::List(messages) = field(&seen.body, "messages") else { panic!("{seen:?}") };
        let Value::Binary(peeked) = field(&messages[0], "message") else { panic!("{messages:?}") };
        let contains = |text: &str| peeked.windows(text.len()).any(|it| it == text.as_bytes());
        assert_eq!((contains("a long body"), contains("x-opt-sequence-number")), (expected, true));
    }
}

#[test]
fn sessions_are_listed_in_pages() {
    let desk = Desk::new();
    let queue = desk.broker.node("sessions").unwrap().queue;
    for session in ["a", "b", "c"] {
        let submission = Submission { session_id: Some(session.into()), ..Submission::default() };
        queue.send(vec![submission]).unwrap();
    }
    let page = |skip| {
        let end_of_time = serde_amqp::primitives::Timestamp::from_milliseconds(253_402_300_799_999);
        let body = [
            ("last-updated-time", Value::Timestamp(end_of_time)),
            ("skip", Value::Int(skip)),
            ("top", Value::Int(2)),
        ];
        desk.ask("sessions", "com.microsoft:get-message-sessions", &body)
    };
    let text = |text: &str| Value::String(text.to_owned());
    assert_eq!(field(&page(0).body, "sessions-ids"), Value::List(vec![text("a"), text("b")]));
    assert_eq!(field(&page(2).body, "sessions-ids"), Value::List(vec![text("c")]));
    assert_eq!(field(&page(2).body, "skip"), Value::Int(3));
    let end = page(3);
    assert_eq!(
        (end.status, end.condition.as_deref()),
        (204, Some("com.microsoft:session-not-found"))
    );
}

#[test]
fn a_session_without_state_has_null() {
    let desk = Desk::new();
    let id: Arc<str> = "s".into();
    let queue = desk.broker.node("sessions").unwrap().queue;
    let body = [("session-id", Value::String("s".to_owned()))];
    let lost = desk.ask("sessions", "com.microsoft:get-session-state", &body);
    assert_eq!(
        (lost.status, lost.condition.as_deref()),
        (410, Some("com.microsoft:session-lock-lost"))
    );
    let wish = SessionWish::Named(id);
    queue.accept_session(&wish, desk.broker.new_consumer(), Waker::noop()).unwrap();
    let seen = desk.ask("sessions", "com.microsoft:get-session-state", &body);
    assert_eq!((seen.status, field(&seen.body, "session-state")), (200, Value::Null));
}
