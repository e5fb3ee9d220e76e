//! Requests as clients encode them, by an independent implementation of the AMQP types.

use std::sync::Arc;
use std::task::Waker;

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
use crate::clock::Clock;
use crate::events::Events;
use crate::options::QueueOptions;

struct Desk {
    broker: Broker,
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
        let topology = Topology { queues, ..Topology::default() };
        let events = Events::new(Clock::manual(), 100);
        Self { broker: Broker::new(topology, Clock::manual(), events).unwrap() }
    }

    fn ask(&self, entity: &str, operation: &str, body: &[(&str, Value)]) -> Seen {
        let mut map = OrderedMap::new();
        for (name, value) in body {
            map.insert(Value::String((*name).to_owned()), value.clone());
        }
        let request: WireMessage<AmqpValue<Value>> = WireMessage::builder()
            .properties(Properties {
                message_id: Some(MessageId::String("request".to_owned())),
                ..Properties::default()
            })
            .application_properties(
                ApplicationProperties::builder().insert("operation", operation).build(),
            )
            .body(AmqpValue(Value::Map(map)))
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
