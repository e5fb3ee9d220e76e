//! What happens at the edges of the protocol.

use std::time::Duration;

use azservicebus::{ServiceBusReceiverOptions, ServiceBusSenderOptions};
use idem_emulator::{Emulator, EntityError, EventKind, QueueOptions, StartError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::*;

const SASL_HEADER: &[u8] = b"AMQP\x03\x01\x00\x00";
pub(crate) const AMQP_HEADER: &[u8] = b"AMQP\x00\x01\x00\x00";
/// `sasl-init` with the mechanism ANONYMOUS.
const SASL_INIT: &[u8] =
    b"\x00\x00\x00\x19\x02\x01\x00\x00\x00\x53\x41\xc0\x0c\x01\xa3\x09ANONYMOUS";
/// `open` with the container id `x`.
pub(crate) const OPEN: &[u8] = b"\x00\x00\x00\x11\x02\x00\x00\x00\x00\x53\x10\xc0\x04\x01\xa1\x01x";
/// `begin` with windows of 10.
pub(crate) const BEGIN: &[u8] =
    b"\x00\x00\x00\x14\x02\x00\x00\x00\x00\x53\x11\xc0\x07\x04\x40\x43\x52\x0a\x52\x0a";

/// Sends bytes, and reads until the emulator hangs up.
async fn answer_to(emulator: &Emulator, parts: &[&[u8]]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
    socket.write_all(&parts.concat()).await.unwrap();
    rest(&mut socket).await
}

/// What comes until the emulator hangs up.
async fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer))
        .await
        .expect("it hangs up")
        .unwrap();
    answer
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn malformed_input_ends_the_connection_with_its_condition() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let framing = "amqp:connection:framing-error";
            let decode = "amqp:decode-error";
            let illegal = "amqp:illegal-state";
            let cases: [(&str, &[u8], &str); 17] = [
                ("a frame shorter than its header", &[0, 0, 0, 7, 2, 0, 0, 0], framing),
                ("a frame of 4 GiB", &[0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0], framing),
                ("a data offset of 4", &[0, 0, 0, 8, 1, 0, 0, 0], framing),
                ("a SASL frame", &[0, 0, 0, 8, 2, 1, 0, 0], framing),
                ("an unknown type code", &[0, 0, 0, 9, 2, 0, 0, 0, 0x3f], decode),
                (
                    "a list beyond its frame",
                    &[0, 0, 0, 13, 2, 0, 0, 0, 0, 0x53, 0x11, 0xc0, 0x50],
                    decode,
                ),
                (
                    "an unknown performative",
                    &[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45],
                    decode,
                ),
                (
                    "a flow without a session",
                    b"\0\0\0\x12\x02\0\0\x05\0\x53\x13\xc0\x05\x04\x40\x43\x43\x43",
                    illegal,
                ),
                ("a second open", OPEN, illegal),
                ("a session on a channel that has one", &[BEGIN, BEGIN].concat(), illegal),
                (
                    "a session on channel 4096",
                    b"\0\0\0\x14\x02\0\x10\0\0\x53\x11\xc0\x07\x04\x40\x43\x52\x0a\x52\x0a",
                    framing,
                ),
                (
                    "a session without windows",
                    &[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x11, 0x45],
                    decode,
                ),
                (
                    "an attach without a name",
                    &[BEGIN, &[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x12, 0x45]].concat(),
                    decode,
                ),
                (
                    "a handle that is no number",
                    &[BEGIN, b"\0\0\0\x11\x02\0\0\0\0\x53\x16\xc0\x04\x01\xa1\x01x"].concat(),
                    decode,
                ),
                (
                    "a link with handle 4096",
                    &[
                        BEGIN,
                        b"\0\0\0\x17\x02\0\0\0\0\x53\x12\xc0\x0a\x03\xa1\x01x\x70\0\0\x10\0\x41",
                    ]
                    .concat(),
                    framing,
                ),
                ("a body that is not described", &[0, 0, 0, 9, 2, 0, 0, 0, 0x45], decode),
                (
                    "an end without a session",
                    &[0, 0, 0, 12, 2, 0, 0, 5, 0, 0x53, 0x17, 0x45],
                    illegal,
                ),
            ];
            for (what, bytes, condition) in cases {
                let answer = answer_to(emulator, &[AMQP_HEADER, OPEN, bytes]).await;
                assert!(
                    contains(&answer, condition),
                    "{what}: {:?}",
                    String::from_utf8_lossy(&answer)
                );
            }
            let first = answer_to(emulator, &[AMQP_HEADER, BEGIN]).await;
            assert!(
                contains(&first, illegal) && contains(&first, "idem-emulator"),
                "open comes before close"
            );

            let opened = emulator.events().totals().connection_opened;
            event(emulator, |_| emulator.events().totals().connection_closed == opened).await;
        },
    );
}

#[test]
fn a_login_that_cannot_be_read_is_refused_with_its_code() {
    with_orders(
        |queue| queue,
        async |emulator| {
            // The outcome's descriptor, a list of two with its size, and a code.
            let outcome = |code| [&b"\0\x53\x44\xd0\0\0\0\x07\0\0\0\x02\x50"[..], &[code]].concat();
            let unknown: &[u8] = b"\0\0\0\x13\x02\x01\0\0\0\x53\x41\xc0\x06\x01\xa3\x03OIL";
            let cases: [(&str, &[u8], u8); 5] = [
                ("an unknown mechanism", unknown, 1),
                ("no mechanism", b"\0\0\0\x0c\x02\x01\0\0\0\x53\x41\x45", 2),
                ("another performative", b"\0\0\0\x0c\x02\x01\0\0\0\x53\x44\x45", 2),
                ("an AMQP frame", OPEN, 2),
                ("no value", b"\0\0\0\x09\x02\x01\0\0\x3f", 2),
            ];
            for (what, bytes, code) in cases {
                let answer = answer_to(emulator, &[SASL_HEADER, bytes]).await;
                let outcome = outcome(code);
                let is_there = answer.windows(outcome.len()).any(|window| window == outcome);
                assert!(is_there, "{what}: {answer:x?}");
            }
            let accepted = answer_to(emulator, &[SASL_HEADER, SASL_INIT, &[0; 8]]).await;
            assert!(accepted.ends_with(AMQP_HEADER), "what follows is another protocol");
        },
    );
}

#[test]
fn unknown_protocols_are_told_ours() {
    with_orders(
        |queue| queue,
        async |emulator| {
            for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"AMQP\x00\x00\x09\x01", &[0; 8]] {
                assert_eq!(answer_to(emulator, &[bytes]).await, AMQP_HEADER);
            }
        },
    );
}

#[test]
fn random_bytes_after_open_never_stop_the_emulator() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut state = 7u64;
            for round in 0..200 {
                let mut body = Vec::new();
                for _ in 0..round {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    body.push(state.to_be_bytes()[0]);
                }
                let size = u32::try_from(body.len() + 12).unwrap();
                let mut frame = size.to_be_bytes().to_vec();
                frame.extend_from_slice(&[
                    2,
                    0,
                    0,
                    0,
                    0,
                    0x53,
                    0x10 + u8::try_from(round % 9).unwrap(),
                    0xc0,
                ]);
                frame.extend_from_slice(&body);
                let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
                socket.write_all(&[AMQP_HEADER, OPEN, BEGIN, &frame].concat()).await.unwrap();
            }
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn everything_may_be_pipelined() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
            let input = [
                SASL_HEADER,
                SASL_INIT,
                AMQP_HEADER,
                OPEN,
                BEGIN,
                &[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x18, 0x45],
            ];
            socket.write_all(&input.concat()).await.unwrap();
            let mut answer = Vec::new();
            let read = async {
                let mut buffer = [0; 1024];
                // `close` (0x18) is the last performative that comes.
                while !contains(&answer, "\x00\x53\x18") {
                    let length = socket.read(&mut buffer).await.unwrap();
                    assert_ne!(length, 0, "{answer:x?}");
                    answer.extend_from_slice(&buffer[..length]);
                }
            };
            tokio::time::timeout(PATIENCE, read).await.unwrap();
            for expected in
                ["ANONYMOUS", "PLAIN", "MSSBCBS", "\x00\x53\x44", "\x00\x53\x10", "\x00\x53\x11"]
            {
                assert!(contains(&answer, expected), "{expected:?} in {answer:x?}");
            }
        },
    );
}

#[test]
fn a_silent_connection_hears_heartbeats() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
            // An idle time-out of 100 ms, as the fifth field of open.
            let open = b"\x00\x00\x00\x16\x02\x00\x00\x00\x00\x53\x10\xc0\x09\x05\xa1\x01x\x40\x40\x40\x52\x64";
            socket.write_all(&[AMQP_HEADER, open].concat()).await.unwrap();
            let heartbeat = [0, 0, 0, 8, 2, 0, 0, 0];
            let mut received = Vec::new();
            while received.windows(8).filter(|window| *window == heartbeat).count() < 3 {
                let mut buffer = [0; 256];
                let length = socket.read(&mut buffer).await.unwrap();
                assert_ne!(length, 0, "{received:x?}");
                received.extend_from_slice(&buffer[..length]);
            }
        },
    );
}

/// Time stands still only while it is moved: otherwise it would leap ahead of what the sockets do.
async fn advance(duration: Duration) {
    tokio::time::pause();
    tokio::time::advance(duration).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_connection_is_closed_two_minutes_after_the_peer_was_last_heard() {
    let emulator = Emulator::builder().start().await.unwrap();
    let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
    socket.write_all(&[AMQP_HEADER, OPEN].concat()).await.unwrap();
    for channel in 0..3 {
        advance(Duration::from_secs(119)).await;
        let mut begin = BEGIN.to_vec();
        begin[7] = channel;
        socket.write_all(&begin).await.unwrap();
        // The descriptor of begin.
        let expected = [0x00, 0x53, 0x11];
        let mut answer = Vec::new();
        while !answer.windows(3).any(|window| window == expected) {
            let mut buffer = [0; 512];
            let length = socket.read(&mut buffer).await.unwrap();
            assert_ne!(length, 0, "it is closed: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..length]);
        }
    }
    advance(Duration::from_secs(121)).await;
    let answer = rest(&mut socket).await;
    assert!(contains(&answer, "nothing was received"), "{}", String::from_utf8_lossy(&answer));
    drop(socket);
    event(&emulator, |event| event.kind == EventKind::ConnectionClosed).await;
    emulator.shutdown().await;
}

#[test]
fn unknown_queues_are_not_found() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let refused = client.create_sender("nowhere", ServiceBusSenderOptions::default()).await;
            let error = format!("{:?}", refused.expect_err("there is no such queue"));
            assert!(error.contains("NotFound"), "{error}");
            let refused = client
                .create_receiver_for_queue("nowhere", ServiceBusReceiverOptions::default())
                .await;
            let error = format!("{:?}", refused.expect_err("there is no such queue"));
            assert!(error.contains("NotFound"), "{error}");
            assert_eq!(emulator.counts("nowhere").unwrap_err().name, "nowhere");
            client.dispose().await.unwrap();
        },
    );
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let first = Emulator::builder().start().await.unwrap();
    let error = Emulator::builder().port(first.port()).start().await.unwrap_err();
    assert!(matches!(error, StartError::PortInUse { port } if port == first.port()));
    assert!(error.to_string().contains(&first.port().to_string()), "{error}");
    let port = first.port();
    first.shutdown().await;
    Emulator::builder().port(port).start().await.expect("the port is free again").shutdown().await;
}

#[tokio::test]
async fn wrong_options_are_named() {
    let twice = Emulator::builder()
        .queue(QueueOptions::new("a"))
        .queue(QueueOptions::new("A"))
        .start()
        .await;
    let exists = EntityError::Exists { entity: "A".to_owned() };
    assert!(matches!(twice.unwrap_err(), StartError::Entity(error) if error == exists));
    let wrong =
        Emulator::builder().queue(QueueOptions::new("a").max_delivery_count(0)).start().await;
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("`a`") && error.contains("max_delivery_count"), "{error}");
}

#[test]
fn a_dropped_emulator_cuts_its_connections() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let emulator = Emulator::builder().start().await.unwrap();
        let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
        event(&emulator, |event| event.kind == EventKind::ConnectionOpened).await;
        drop(emulator);
        let mut buffer = [0; 1];
        let read =
            tokio::time::timeout(PATIENCE, socket.read(&mut buffer)).await.expect("it hangs up");
        assert!(matches!(read, Ok(0) | Err(_)));
    });
}
