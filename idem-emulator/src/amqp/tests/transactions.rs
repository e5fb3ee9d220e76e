//! Transactions over the wire.

use fe2o3_amqp_types::messaging::{AmqpValue, Outcome, Released};
use fe2o3_amqp_types::primitives::Binary;
use fe2o3_amqp_types::transaction::{
    Coordinator, Declare, Declared, Discharge, TransactionalState,
};

use serde_amqp::described::Described;
use serde_amqp::descriptor::Descriptor;

use super::*;
use crate::events::EventTotals;

/// The handle of the coordinator link.
const COORDINATOR: u32 = 5;

fn accepted() -> DeliveryState {
    DeliveryState::Accepted(Accepted {})
}

fn within(id: &Binary, outcome: Option<Outcome>) -> DeliveryState {
    DeliveryState::TransactionalState(TransactionalState { txn_id: id.clone(), outcome })
}

fn error_of(state: &DeliveryState) -> String {
    let DeliveryState::Rejected(Rejected { error }) = state else { panic!("{state:?}") };
    condition(error.as_ref())
}

impl Peer {
    /// Attaches a sender to `orders` at handle 1, a receiver at 2, and a coordinator.
    fn with_coordinator() -> Self {
        let mut peer = Self::new(100, 65536);
        peer.attach_sender("orders");
        peer.receive_from("orders");
        let answers = peer.attach_coordinator();
        let [(Performative::Attach(attach), _), (Performative::Flow(_), _)] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert!(matches!(attach.target.as_deref(), Some(TargetArchetype::Coordinator(_))));
        peer
    }

    fn attach_coordinator(&mut self) -> Vec<Answer> {
        let target = TargetArchetype::Coordinator(Coordinator::default());
        self.exchange(&attach(Role::Sender, COORDINATOR, None, Some(Box::new(target))), &[])
    }

    fn detach(&mut self, handle: u32) {
        self.exchange(&Detach { handle: handle.into(), closed: true, error: None }, &[]);
    }

    fn ask_coordinator(&mut self, value: impl Serialize) -> DeliveryState {
        let request = Message::builder().body(AmqpValue(value)).build();
        let bytes = serde_amqp::to_vec(&Serializable(request)).unwrap();
        let transfer = Transfer { handle: COORDINATOR.into(), ..transfer(77, 0, false) };
        let answers = self.exchange(&transfer, &bytes);
        let disposition = only_disposition(&answers);
        assert!(disposition.settled && disposition.first == 77);
        disposition.state.clone().unwrap()
    }

    fn declare(&mut self) -> Binary {
        match self.ask_coordinator(Declare::new(None)) {
            DeliveryState::Declared(Declared { txn_id }) => txn_id,
            other => panic!("{other:?}"),
        }
    }

    fn discharge(&mut self, id: &Binary, fail: bool) -> DeliveryState {
        self.ask_coordinator(Discharge { txn_id: id.clone(), fail: Some(fail) })
    }

    fn send_within(&mut self, id: &Binary, body: &[u8]) -> DeliveryState {
        let transfer = Transfer { state: Some(within(id, None)), ..transfer(3, 0, false) };
        let answers = self.exchange(&transfer, &encoded(&wire_message(body)));
        let disposition = only_disposition(&answers);
        assert!(disposition.settled);
        disposition.state.clone().unwrap()
    }

    fn settle_within(&mut self, id: &Binary, delivery: u32, outcome: Outcome) -> DeliveryState {
        let answers = self.exchange(&settle(delivery, delivery, within(id, Some(outcome))), &[]);
        let disposition = only_disposition(&answers);
        assert!(disposition.settled);
        disposition.state.clone().unwrap()
    }

    fn totals(&self) -> EventTotals {
        self.broker.context.events.totals()
    }

    fn ended(&self) -> (u64, u64) {
        (self.totals().transaction_committed, self.totals().transaction_rolled_back)
    }

    /// Holds one message, as delivery 0.
    fn hold_one(&mut self) {
        self.store(&[b"a"]);
        assert_eq!(transfers(&self.exchange(&flow(100, 0, 1, false), &[])).len(), 1);
    }
}

#[test]
fn work_within_a_transaction_is_done_at_its_discharge() {
    let mut peer = Peer::with_coordinator();
    peer.store(&[b"a", b"b", b"c", b"d", b"e"]);
    peer.exchange(&flow(100, 0, 5, false), &[]);
    let id = peer.declare();
    let outcomes = [
        Outcome::Accepted(Accepted {}),
        Outcome::Modified(modified(None, None)),
        Outcome::Modified(modified(Some(true), None)),
        Outcome::Rejected(Rejected { error: None }),
        Outcome::Released(Released {}),
    ];
    for (delivery, outcome) in (0..).zip(outcomes) {
        let state = peer.settle_within(&id, delivery, outcome.clone());
        let DeliveryState::TransactionalState(state) = state else { panic!("{state:?}") };
        assert_eq!(state.txn_id, id);
        assert_eq!(
            std::mem::discriminant(&state.outcome.unwrap()),
            std::mem::discriminant(&outcome),
            "the same outcome comes back"
        );
    }
    let sent = peer.send_within(&id, b"new");
    assert_eq!(sent, within(&id, Some(Outcome::Accepted(Accepted {}))));
    assert_eq!(peer.counts(), (0, 5, 0));
    assert_eq!(peer.discharge(&id, false), accepted());
    let counts = peer.broker.node("orders").unwrap().queue.counts();
    assert_eq!((counts.active, counts.deferred, counts.dead_lettered), (3, 1, 1));
    assert_eq!((counts.locked, peer.ended()), (0, (1, 0)));
    assert_eq!(error_of(&peer.discharge(&id, false)), "amqp:transaction:unknown-id");
}

#[test]
fn a_failed_discharge_undoes_the_work() {
    let mut peer = Peer::with_coordinator();
    peer.hold_one();
    let id = peer.declare();
    peer.settle_within(&id, 0, Outcome::Accepted(Accepted {}));
    peer.send_within(&id, b"new");
    assert_eq!(peer.discharge(&id, true), accepted());
    assert_eq!((peer.counts(), peer.ended()), ((0, 1, 0), (0, 1)));
    peer.clock.advance(Duration::from_secs(60));
    peer.broker.sweep();
    assert_eq!(peer.counts(), (1, 0, 0));
}

#[test]
fn the_end_of_the_coordinator_rolls_back() {
    type Ending = fn(&mut Peer);
    let endings: [Ending; 4] = [
        |peer| peer.detach(COORDINATOR),
        |peer| drop(peer.exchange(&End { error: None }, &[])),
        |peer| {
            peer.exchange(&Close { error: None }, &[]);
            peer.connection.end_sessions();
        },
        |peer| peer.connection.end_sessions(),
    ];
    for (number, end) in endings.into_iter().enumerate() {
        let mut peer = Peer::with_coordinator();
        peer.hold_one();
        let id = peer.declare();
        peer.settle_within(&id, 0, Outcome::Accepted(Accepted {}));
        peer.send_within(&id, b"new");
        assert_eq!(peer.ended(), (0, 0));
        end(&mut peer);
        assert_eq!((peer.counts(), peer.ended()), ((0, 1, 0), (0, 1)), "ending {number}");
    }
}

#[test]
fn transactions_are_known_only_to_their_connection_and_while_they_last() {
    let mut peer = Peer::with_coordinator();
    peer.store(&[b"a", b"b"]);
    peer.exchange(&flow(100, 0, 2, false), &[]);
    let mut other = Peer::with_coordinator();
    let foreign = other.declare();
    for (held, unknown) in (0..).zip([foreign, Binary::from(vec![1, 2, 3])]) {
        let expected = "amqp:transaction:unknown-id";
        assert_eq!(error_of(&peer.send_within(&unknown, b"new")), expected);
        assert_eq!(error_of(&peer.discharge(&unknown, false)), expected);
        let settled = peer.settle_within(&unknown, held, Outcome::Accepted(Accepted {}));
        assert_eq!(error_of(&settled), expected);
    }
    assert_eq!(peer.counts(), (0, 2, 0));

    let id = peer.declare();
    peer.send_within(&id, b"new");
    peer.clock.advance(Duration::from_secs(120));
    assert_eq!(error_of(&peer.send_within(&id, b"late")), "amqp:transaction:timeout");
    assert_eq!(error_of(&peer.discharge(&id, false)), "amqp:transaction:timeout");
    assert_eq!((peer.totals().enqueued, peer.ended()), (2, (0, 1)));
}

#[test]
fn a_commit_that_cannot_be_done_is_a_rollback() {
    let mut peer = Peer::with_coordinator();
    peer.hold_one();
    let id = peer.declare();
    peer.settle_within(&id, 0, Outcome::Accepted(Accepted {}));
    peer.broker.node("orders").unwrap().queue.purge();
    assert_eq!(error_of(&peer.discharge(&id, false)), "amqp:transaction:rollback");
    assert_eq!(peer.ended(), (0, 1));
}

#[test]
fn commands_may_be_described_by_their_names() {
    let described = |name: &str, fields: Vec<Value>| {
        Value::Described(Box::new(Described {
            descriptor: Descriptor::Name(Symbol::from(name)),
            value: Value::List(fields),
        }))
    };
    let mut peer = Peer::with_coordinator();
    let declared = peer.ask_coordinator(described("amqp:declare:list", vec![Value::Null]));
    let DeliveryState::Declared(Declared { txn_id }) = declared else { panic!("{declared:?}") };
    peer.send_within(&txn_id, b"new");
    let fields = vec![Value::Binary(txn_id), Value::Bool(false)];
    assert_eq!(peer.ask_coordinator(described("amqp:discharge:list", fields)), accepted());
    assert_eq!((peer.counts(), peer.ended()), ((1, 0, 0), (1, 0)));
}

#[test]
fn what_a_coordinator_does_not_know_is_not_implemented() {
    let mut peer = Peer::with_coordinator();
    let distributed = peer.ask_coordinator(Declare::new(Binary::from(vec![1])));
    let not_a_command = peer.ask_coordinator(Value::String("declare".to_owned()));
    for state in [distributed, not_a_command] {
        let error = format!("{state:?}");
        assert!(error.contains("NotImplemented"), "{error}");
    }
    assert_eq!(peer.totals().transaction_declared, 0);
}

#[test]
fn a_connection_has_at_most_100_open_transactions() {
    let mut peer = Peer::with_coordinator();
    for _ in 0..100 {
        peer.declare();
    }
    let refused = format!("{:?}", peer.ask_coordinator(Declare::new(None)));
    assert!(refused.contains("ResourceLimitExceeded"), "{refused}");
    peer.clock.advance(Duration::from_secs(120));
    peer.declare();
    assert_eq!(peer.ended(), (0, 100));
}

#[test]
fn nothing_is_received_from_a_coordinator() {
    let mut peer = Peer::new(100, 65536);
    let target = TargetArchetype::Coordinator(Coordinator::default());
    let answers = peer.exchange(&attach(Role::Receiver, 5, None, Some(Box::new(target))), &[]);
    let [(Performative::Attach(_), _), (Performative::Detach(detach), _)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(format!("{:?}", detach.error).contains("NotAllowed"), "{detach:?}");
}

/// Attaches a sender to `orders` that wants its messages sent on.
fn attach_through(peer: &mut Peer, handle: u32, destination: &str) -> Vec<Answer> {
    let target = TargetArchetype::Target(Target::builder().address("orders").build());
    let mut properties = Fields::new();
    let name = Symbol::from("com.microsoft:transfer-destination-address");
    properties.insert(name, Value::String(destination.to_owned()));
    let attach = attach(Role::Sender, handle, None, Some(Box::new(target)));
    peer.exchange(&Attach { properties: Some(properties), ..attach }, &[])
}

#[test]
fn a_transaction_reaches_another_entity_through_the_one_that_it_is_about() {
    let mut peer = Peer::with_coordinator();
    peer.hold_one();
    let attached = attach_through(&mut peer, 6, "amqp://localhost/Other");
    assert!(matches!(attached[0].0, Performative::Attach(_)), "{attached:?}");
    let id = peer.declare();
    peer.settle_within(&id, 0, Outcome::Accepted(Accepted {}));
    let sent =
        Transfer { handle: 6.into(), state: Some(within(&id, None)), ..transfer(3, 0, false) };
    let answers = peer.exchange(&sent, &encoded(&wire_message(b"new")));
    let expected = within(&id, Some(Outcome::Accepted(Accepted {})));
    assert_eq!(only_disposition(&answers).state, Some(expected));
    let other = peer.broker.node("other").unwrap().queue;
    assert_eq!((peer.counts(), other.counts().active), ((0, 1, 0), 0));
    assert_eq!(peer.discharge(&id, false), accepted());
    assert_eq!((peer.counts(), other.counts().active), ((0, 0, 0), 1));

    // Without a transaction they pass too; what cannot be delivered stays on the way.
    let sent = Transfer { handle: 6.into(), ..transfer(4, 0, false) };
    peer.exchange(&sent, &encoded(&wire_message(b"plain")));
    assert_eq!((peer.counts(), other.counts().active), ((0, 0, 0), 2));
    peer.broker.delete("other").unwrap();
    peer.exchange(&Transfer { delivery_id: Some(5), ..sent }, &encoded(&wire_message(b"late")));
    let counts = peer.broker.node("orders").unwrap().queue.counts();
    assert_eq!((counts.active, counts.transfer_dead_lettered), (0, 1));
}

#[test]
fn messages_are_sent_on_only_to_where_they_can_be_sent() {
    for (destination, condition) in
        [("nowhere", "NotFound"), ("other/$DeadLetterQueue", "NotAllowed")]
    {
        let mut peer = Peer::new(100, 65536);
        let answers = attach_through(&mut peer, 6, destination);
        let [(Performative::Attach(_), _), (Performative::Detach(detach), _)] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert!(format!("{:?}", detach.error).contains(condition), "{detach:?}");
    }
}
