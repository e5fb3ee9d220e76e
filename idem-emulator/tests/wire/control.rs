//! The configuration file and the control API, over real sockets.

use std::time::Duration;

use idem_emulator::{Clock, Emulator, EmulatorBuilder, EventKind, QueueOptions, StartError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

fn with_control(builder: EmulatorBuilder, test: impl AsyncFnOnce(&Emulator)) {
    run(builder.http_port(0), test);
}

fn with_control_of_orders(test: impl AsyncFnOnce(&Emulator)) {
    with_control(Emulator::builder().queue(QueueOptions::new("orders")), test);
}

/// The status and the body of the response.
async fn call(emulator: &Emulator, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let port = emulator.http_port().expect("the control API is served");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).await.unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("there is a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = if body.is_empty() { Value::Null } else { serde_json::from_str(body).unwrap() };
    (status, body)
}

async fn get(emulator: &Emulator, path: &str) -> Value {
    let (status, body) = call(emulator, "GET", path, b"").await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

async fn send_json(emulator: &Emulator, method: &str, path: &str, body: Value) -> (u16, Value) {
    call(emulator, method, path, body.to_string().as_bytes()).await
}

/// The status, and the text of the error.
fn error((status, body): (u16, Value)) -> (u16, String) {
    (status, body["error"].as_str().expect("an error").to_owned())
}

#[test]
fn a_client_works_with_the_entities_of_a_configuration_file() {
    let file = json!({"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
        {"Name": "orders", "Properties": {"MaxDeliveryCount": 1}}
    ]}], "Logging": {"Type": "Console"}}});
    let builder = Emulator::builder().config(&file.to_string()).unwrap();
    run(builder, async |emulator| {
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let received = next(&mut receiver).await;
        receiver.abandon_message(&received, None).await.unwrap();
        let reason = Some("MaxDeliveryCountExceeded".into());
        event_of(emulator, "m-1", EventKind::DeadLettered { reason }).await;
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_wrong_configuration_is_no_builder() {
    let error = Emulator::builder().config(r#"{"UserConfig": {}}"#).unwrap_err();
    assert_eq!(error.path.as_deref(), Some("UserConfig"));
    assert!(error.to_string().contains("missing field `Namespaces`"), "{error}");
}

#[test]
fn health_is_answered_as_by_the_official_emulator() {
    with_control_of_orders(async |emulator| {
        let health = get(emulator, "/health").await;
        assert_eq!(health, json!({"status": "healthy", "message": "Service is healthy."}));
    });
}

#[test]
fn a_queue_lives_from_put_to_delete() {
    with_control(Emulator::builder(), async |emulator| {
        assert_eq!(get(emulator, "/control/entities").await, json!([]));
        let none = json!({"active": 0, "locked": 0, "deferred": 0, "scheduled": 0, "dead_lettered": 0,
                "transfer_dead_lettered": 0});
        let shown = json!({"name": "orders", "kind": "queue", "counts": none});
        let created = call(emulator, "PUT", "/control/queues/orders", b"").await;
        assert_eq!(created, (201, shown.clone()));
        let twice = call(emulator, "PUT", "/control/queues/Orders", b"{}").await;
        let (status, text) = error(twice);
        assert!(status == 409 && text.contains("`Orders` exists already"), "{text}");

        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let one = get(emulator, "/control/entities/orders").await;
        assert_eq!(one["counts"]["active"], 1);
        assert_eq!(get(emulator, "/control/entities").await, json!([one]));
        assert_eq!(call(emulator, "POST", "/control/purge/orders", b"").await, (204, Value::Null));
        assert_eq!(get(emulator, "/control/entities/orders").await, shown);

        assert_eq!(call(emulator, "DELETE", "/control/queues/orders", b"").await.0, 204);
        for (method, path) in [
            ("DELETE", "/control/queues/orders"),
            ("GET", "/control/entities/orders"),
            ("POST", "/control/purge/orders"),
        ] {
            let (status, text) = error(call(emulator, method, path, b"").await);
            assert!(status == 404 && text.contains("no entity `orders`"), "{path}: {text}");
        }
    });
}

#[test]
fn the_body_of_a_queue_is_what_the_configuration_file_says_of_it() {
    with_control(Emulator::builder().clock(Clock::manual()), async |emulator| {
        let properties = json!({"LockDuration": "PT5S", "MaxDeliveryCount": 1});
        send_json(emulator, "PUT", "/control/queues/orders", properties).await;
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let _held = next(&mut receiver).await;
        let advance = json!({"advance_ms": 4999});
        send_json(emulator, "POST", "/control/clock", advance).await;
        assert_eq!(counts(emulator), (0, 1, 0));
        send_json(emulator, "POST", "/control/clock", json!({"advance_ms": 1})).await;
        assert_eq!(counts(emulator), (0, 0, 1));
        client.dispose().await.unwrap();
    });
}

#[test]
fn wrong_properties_are_refused_with_their_names_and_ranges() {
    let cases = [
        ("queues/q", json!({"LockDuration": "PT6M"}), "`LockDuration`: must be", "1 ms to 5 min"),
        ("queues/q", json!({"MaxDeliveryCount": 0}), "`MaxDeliveryCount`", "1 to 2000, found 0"),
        ("queues/q", json!({"Colour": 1}), "unknown field `Colour`", "`RequiresSession`"),
        ("queues/q", json!({"ForwardTo": "x"}), "`q`: it must forward", "found `x`"),
        ("queues/a$b", json!({}), "`a$b`: the name", "found `$`"),
        ("topics/t", json!({"Properties": {"X": 1}}), "`Properties.X`", "unknown field"),
        ("topics/t", json!({"Subscriptions": [{}]}), "`Subscriptions[0]`", "missing field `Name`"),
        (
            "topics/orders/subscriptions/s",
            json!({"Properties": {"LockDuration": "x"}}),
            "`Properties.LockDuration`",
            "found `x`",
        ),
    ];
    with_control_of_orders(async |emulator| {
        for (path, body, place, text) in cases {
            let path = format!("/control/{path}");
            let (status, problem) = error(send_json(emulator, "PUT", &path, body).await);
            assert_eq!(status, 400, "{problem}");
            assert!(problem.contains(place) && problem.contains(text), "{problem}");
        }
        assert_eq!(emulator.entities().len(), 1, "nothing was created");
    });
}

#[test]
fn topics_and_subscriptions_come_and_go() {
    let sql = json!({"FilterType": "Sql", "SqlFilter": {"SqlExpression": "sys.MessageId = 'm-2'"}});
    let rules = json!([{"Name": "second", "Properties": sql}]);
    with_control(Emulator::builder(), async |emulator| {
        let body = json!({
            "Properties": {"DefaultMessageTimeToLive": "PT5M"},
            "Subscriptions": [{"Name": "all"}]
        });
        let (status, _) = send_json(emulator, "PUT", "/control/topics/orders", body).await;
        assert_eq!(status, 201);
        let path = "/control/topics/orders/subscriptions/some";
        let (status, shown) = send_json(emulator, "PUT", path, json!({"Rules": rules})).await;
        assert_eq!((status, &shown["name"]), (201, &json!("orders/Subscriptions/some")));
        assert_eq!(error(call(emulator, "PUT", path, b"").await).0, 409);

        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        send_once(&mut client, message("m-2")).await;
        let all = get(emulator, "/control/entities/orders%2FSubscriptions%2Fall").await;
        let some = get(emulator, "/control/entities/orders/subscriptions/some").await;
        assert_eq!((&all["counts"]["active"], &some["counts"]["active"]), (&json!(2), &json!(1)));

        assert_eq!(call(emulator, "DELETE", path, b"").await.0, 204);
        assert_eq!(error(call(emulator, "DELETE", path, b"").await).0, 404);
        let no_queue = error(call(emulator, "DELETE", "/control/queues/orders", b"").await);
        assert_eq!(no_queue.0, 404, "a topic is no queue");
        assert_eq!(call(emulator, "DELETE", "/control/topics/orders", b"").await.0, 204);
        assert_eq!(get(emulator, "/control/entities").await, json!([]));
        let (status, text) = error(call(emulator, "PUT", path, b"").await);
        assert!(status == 404 && text.contains("no topic `orders`"), "{text}");
        client.dispose().await.unwrap();
    });
}

#[test]
fn names_with_a_slash_are_percent_encoded() {
    with_control(Emulator::builder(), async |emulator| {
        let (status, shown) = call(emulator, "PUT", "/control/queues/a%2Fb", b"").await;
        assert_eq!((status, &shown["name"]), (201, &json!("a/b")));
        assert_eq!(get(emulator, "/control/entities/a%2fb").await, shown);
        assert_eq!(call(emulator, "DELETE", "/control/queues/A%2Fb", b"").await.0, 204);
    });
}

#[test]
fn a_fault_fires_and_is_counted() {
    with_control_of_orders(async |emulator| {
        let rule = json!({"kind": "expire_lock", "on": "orders", "message": "m-1", "times": 1});
        let (status, added) = send_json(emulator, "POST", "/control/faults", rule).await;
        assert_eq!(status, 201);
        let armed = json!({"id": added["id"], "fired": 0, "kind": "expire_lock", "on": "orders",
            "message": "m-1", "times": 1, "seed": 0});
        assert_eq!(get(emulator, "/control/faults").await, json!([armed]));

        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;
        let second = next(&mut receiver).await;
        assert_eq!((count(&first), count(&second)), (0, 1));
        assert_eq!(get(emulator, "/control/faults").await[0]["fired"], 1);
        let events = get(emulator, "/control/events").await;
        assert_eq!(events["totals"]["fault_fired"], 1);
        let fired = events["events"].as_array().unwrap().iter();
        let fired: Vec<_> = fired.filter(|event| event["kind"] == "fault_fired").collect();
        assert_eq!((fired.len(), &fired[0]["fault"]), (1, &json!("expire_lock")));

        let path = format!("/control/faults/{}", added["id"]);
        assert_eq!(call(emulator, "DELETE", &path, b"").await.0, 204);
        assert_eq!(error(call(emulator, "DELETE", &path, b"").await).0, 404);
        assert_eq!(get(emulator, "/control/faults").await, json!([]));
        client.dispose().await.unwrap();
    });
}

#[test]
fn every_kind_of_fault_can_be_armed() {
    let kinds = [
        "redeliver",
        "expire_lock",
        "lose_session_lock",
        "delay_delivery",
        "reorder",
        "drop_connection_at_delivery",
        "close_connection_at_delivery",
        "lose_settlement",
        "drop_connection_at_settlement",
        "close_connection_at_settlement",
        "lose_settlement_answer",
        "drop_connection_after_settlement",
        "delay_settlement_answer",
        "forget_completion",
        "drop_connection_at_send",
        "drop_connection_after_send",
        "refuse_send",
        "detach_at_send",
        "lose_request",
        "drop_connection_at_request",
        "refuse_request",
        "time_out_request",
    ];
    with_control_of_orders(async |emulator| {
        for kind in kinds {
            let mut rule = json!({"kind": kind, "nth": 2, "probability": 0.5, "seed": 7});
            if kind.starts_with("delay") {
                rule["by_ms"] = json!(1500);
            }
            let (status, body) = send_json(emulator, "POST", "/control/faults", rule).await;
            assert_eq!(status, 201, "{kind}: {body}");
        }
        let armed = get(emulator, "/control/faults").await;
        let shown: Vec<_> = armed.as_array().unwrap().iter().map(|rule| &rule["kind"]).collect();
        assert_eq!(shown, kinds);
        assert_eq!((&armed[0]["nth"], &armed[0]["probability"]), (&json!(2), &json!(0.5)));
        assert_eq!((&armed[0]["by_ms"], &armed[3]["by_ms"]), (&json!(null), &json!(1500)));
    });
}

#[test]
fn wrong_faults_are_refused() {
    let cases = [
        (json!({}), "missing field `kind`"),
        (json!({"kind": "rain"}), "`kind`: unknown variant `rain`"),
        (json!({"kind": "redeliver", "probability": 1.5}), "`probability`: must be 0 to 1"),
        (json!({"kind": "redeliver", "nth": 0}), "`nth`"),
        (json!({"kind": "redeliver", "by_ms": 5}), "`by_ms`"),
        (json!({"kind": "delay_delivery"}), "`by_ms`"),
        (json!({"kind": "redeliver", "queue": "x"}), "expected one of `kind`, `on`"),
    ];
    with_control_of_orders(async |emulator| {
        for (rule, expected) in cases {
            let (status, text) = error(send_json(emulator, "POST", "/control/faults", rule).await);
            assert!(status == 400 && text.contains(expected), "{text}");
        }
    });
}

#[test]
fn a_manual_clock_is_advanced_and_the_systems_is_not() {
    with_control(Emulator::builder().clock(Clock::manual()), async |emulator| {
        let before = get(emulator, "/control/clock").await;
        assert_eq!(before["manual"], true);
        let (status, after) =
            send_json(emulator, "POST", "/control/clock", json!({"advance_ms": 1500})).await;
        let moved = after["now_ms"].as_i64().unwrap() - before["now_ms"].as_i64().unwrap();
        assert_eq!((status, moved), (200, 1500));
        let wrong = send_json(emulator, "POST", "/control/clock", json!({"advance_ms": -1})).await;
        assert!(error(wrong).1.contains("`advance_ms`"));
    });
    with_control_of_orders(async |emulator| {
        assert_eq!(get(emulator, "/control/clock").await["manual"], false);
        let refused = send_json(emulator, "POST", "/control/clock", json!({"advance_ms": 1})).await;
        let (status, text) = error(refused);
        assert!(status == 409 && text.contains("manual clock"), "{text}");
    });
}

#[test]
fn events_are_read_in_pages() {
    with_control_of_orders(async |emulator| {
        let mut client = connect(emulator).await;
        for id in ["m-1", "m-2", "m-3"] {
            send_once(&mut client, message(id)).await;
        }
        let all = get(emulator, "/control/events").await;
        assert_eq!(all["totals"]["enqueued"], 3);
        let events = all["events"].as_array().unwrap();
        assert_eq!(all["last_sequence"], events.len());
        let enqueued: Vec<_> = events.iter().filter(|event| event["kind"] == "enqueued").collect();
        assert_eq!(enqueued[1]["message_id"], "m-2");
        assert_eq!(enqueued[1]["sequence_number"], 2);
        assert_eq!(enqueued[1]["entity"], "orders");
        assert!(enqueued[1]["time_ms"].as_u64().unwrap() > 0);
        let path = format!("/control/events?after={}&limit=1", enqueued[1]["sequence"]);
        let page = get(emulator, &path).await;
        assert_eq!(page["events"], json!([enqueued[2]]));
        let last = u64::MAX;
        let page = get(emulator, &format!("/control/events?after={last}")).await;
        assert_eq!(page["events"], json!([]));
        let wrong = call(emulator, "GET", "/control/events?since=1", b"").await;
        assert_eq!(error(wrong).0, 400);
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_reset_empties_everything_and_keeps_the_entities() {
    with_control_of_orders(async |emulator| {
        call(emulator, "PUT", "/control/queues/other", b"").await;
        send_json(emulator, "POST", "/control/faults", json!({"kind": "redeliver"})).await;
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        assert_eq!(call(emulator, "POST", "/control/reset", b"").await, (204, Value::Null));
        assert_eq!(counts(emulator), (0, 0, 0));
        assert_eq!(get(emulator, "/control/faults").await, json!([]));
        assert_eq!(get(emulator, "/control/events").await["totals"]["enqueued"], 0);
        assert_eq!(emulator.entities().len(), 2);
        client.dispose().await.unwrap();
    });
}

#[test]
fn what_is_no_request_of_ours_is_answered_in_json_too() {
    with_control_of_orders(async |emulator| {
        // Only its last byte is too much, so the server has read it all when it answers.
        let large = vec![b' '; 1024 * 1024 + 1];
        let cases: [(&str, &str, &[u8], u16); 7] = [
            ("GET", "/", b"", 404),
            ("GET", "/control/queues", b"", 404),
            ("POST", "/health", b"", 405),
            ("PUT", "/control/queues/%ff", b"", 400),
            ("PUT", "/control/queues/x", b"{", 400),
            ("PUT", "/control/queues/x", &large, 413),
            ("DELETE", "/control/faults/first", b"", 400),
        ];
        for (method, path, body, expected) in cases {
            let (status, text) = error(call(emulator, method, path, body).await);
            assert_eq!(status, expected, "{method} {path}: {text}");
            assert!(!text.is_empty());
        }
    });
}

#[tokio::test]
async fn each_emulator_has_ports_of_its_own_until_it_is_shut_down() {
    let start = || Emulator::builder().http_port(0).start();
    let (one, other) = (start().await.unwrap(), start().await.unwrap());
    let (http, amqp) = (one.http_port().unwrap(), one.port());
    for port in [http, amqp] {
        let error = Emulator::builder().http_port(port).start().await.unwrap_err();
        assert!(matches!(error, StartError::PortInUse { port: named } if named == port));
    }
    call(&other, "PUT", "/control/queues/orders", b"").await;
    assert_eq!((one.entities().len(), other.entities().len()), (0, 1));
    let mut idle = TcpStream::connect(("127.0.0.1", http)).await.unwrap();
    one.shutdown().await;
    let ended = tokio::time::timeout(Duration::from_secs(60), idle.read(&mut [0])).await;
    assert!(!matches!(ended.expect("the connection ends"), Ok(1..)));
    let again = Emulator::builder().http_port(http).port(amqp).start().await.unwrap();
    assert_eq!(again.http_port(), Some(http));
}

#[test]
fn the_end_of_time_stops_nothing() {
    with_control(Emulator::builder().clock(Clock::manual()), async |emulator| {
        for path in ["/control/queues/orders", "/control/queues/other"] {
            call(emulator, "PUT", path, b"").await;
        }
        let body = json!({"advance_ms": u64::MAX});
        for _ in 0..2 {
            assert_eq!(send_json(emulator, "POST", "/control/clock", body.clone()).await.0, 200);
        }
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        event_of(emulator, "m-1", EventKind::Enqueued).await;
        assert!(get(emulator, "/control/events").await["last_sequence"].as_u64() > Some(0));
        assert_eq!(get(emulator, "/health").await["status"], "healthy");
        client.dispose().await.unwrap();
    });
}
