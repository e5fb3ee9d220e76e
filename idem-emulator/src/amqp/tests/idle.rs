//! Connections and links that nobody uses.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn idle_peer() -> Peer {
    Peer::with_idle_rules(true)
}

impl Peer {
    async fn wait(&mut self, time: Duration) -> Vec<Answer> {
        tokio::time::advance(time).await;
        self.answers()
    }

    fn attach_at(&mut self, role: Role, handle: u32, address: &str) {
        let target = TargetArchetype::Target(Target::builder().address(address).build());
        let source = Source::builder().address(address).build();
        let answers = self
            .exchange(&attach(role, handle, Some(Box::new(source)), Some(Box::new(target))), &[]);
        assert!(matches!(answers[0], (Performative::Attach(_), _)), "{answers:?}");
    }

    /// Puts a token over links that are then detached, or stay.
    fn put_token(&mut self, stays: bool) {
        self.attach_at(Role::Sender, 1, "$cbs");
        self.attach_at(Role::Receiver, 2, "$cbs");
        self.exchange(&flow(100, 0, 10, false), &[]);
        let operation = ApplicationProperties::builder().insert("operation", "put-token").build();
        let request = Message::builder()
            .application_properties(operation)
            .value(Value::String("token".to_owned()))
            .build();
        let bytes = serde_amqp::to_vec(&Serializable(&request)).unwrap();
        assert_eq!(transfers(&self.exchange(&transfer(0, 0, false), &bytes)).len(), 1);
        if !stays {
            for handle in [1, 2] {
                let detach = Detach { handle: handle.into(), closed: true, error: None };
                self.exchange(&detach, &[]);
            }
        }
    }
}

fn is_forced_close(answers: &[Answer]) -> bool {
    matches!(answers, [(Performative::Close(close), _)] if format!("{:?}", close.error).contains("ConnectionForced"))
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_token_is_closed_after_20_seconds() {
    let mut peer = idle_peer();
    peer.attach_at(Role::Receiver, 2, "orders");
    assert!(peer.wait(20 * SECOND - Duration::from_millis(1)).await.is_empty());
    let answers = peer.wait(Duration::from_millis(1)).await;
    assert!(is_forced_close(&answers), "{answers:?}");
    assert!(peer.connection.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_links_is_closed() {
    let mut peer = idle_peer();
    peer.put_token(false);
    assert!(peer.wait(5 * MINUTE - SECOND).await.is_empty());
    let answers = peer.wait(SECOND).await;
    assert!(is_forced_close(&answers), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn a_link_must_come_within_a_minute() {
    let mut watch = IdleWatch::new(Instant::now());
    watch.token_came();
    let opened = Instant::now();
    assert_eq!(watch.next_deadline(), Some(opened + MINUTE));
    assert_eq!(watch.due(opened + MINUTE - SECOND), None);
    assert!(matches!(watch.due(opened + MINUTE), Some(Idle::Connection(_))));
    watch.link_used((0, 1), opened + SECOND);
    assert_eq!(watch.due(opened + MINUTE), None);
    watch.session_ended(0, opened + MINUTE);
    assert_eq!(watch.next_deadline(), Some(opened + 6 * MINUTE));
}

#[tokio::test(start_paused = true)]
async fn a_link_without_frames_is_detached_after_10_minutes_and_others_stay() {
    let mut peer = idle_peer();
    peer.put_token(true);
    peer.attach_at(Role::Sender, 3, "orders");
    assert!(peer.wait(6 * MINUTE).await.is_empty());
    let used = Transfer { handle: 3.into(), ..transfer(0, 0, false) };
    assert_eq!(peer.exchange(&used, &encoded(&wire_message(b"a"))).len(), 1);
    let answers = peer.wait(4 * MINUTE).await;
    let detached: Vec<_> = answers
        .iter()
        .map(|(performative, _)| match performative {
            Performative::Detach(detach) => {
                assert!(format!("{:?}", detach.error).contains("DetachForced"), "{detach:?}");
                detach.handle.0
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(detached.iter().copied().collect::<BTreeSet<_>>(), [1, 2].into());
    assert!(!peer.connection.is_finished());
    assert_eq!(
        peer.exchange(&Transfer { delivery_id: Some(1), ..used }, b"\0\x53\x75\xa0\0").len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn by_default_nothing_is_too_idle() {
    let mut peer = Peer::new(100, 65536);
    peer.attach_at(Role::Receiver, 2, "orders");
    assert!(peer.wait(60 * MINUTE).await.is_empty());
    assert!(!peer.connection.is_finished());
}
