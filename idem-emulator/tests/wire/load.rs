//! Many connections, long queues, and peers that take more than they should.

use std::time::{Duration, Instant};

use idem_emulator::Emulator;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::protocol::{AMQP_HEADER, BEGIN, OPEN};
use crate::support::*;

const CONNECTIONS: usize = 1000;

/// How many messages make a long queue, and how many of them fit into one frame.
const MESSAGES: usize = 100_000;
const BATCH: usize = 250;

/// `open` with the container id `x` and an idle time-out of 2 ms.
const IMPATIENT_OPEN: &[u8] =
    b"\x00\x00\x00\x16\x02\x00\x00\x00\x00\x53\x10\xc0\x09\x05\xa1\x01x\x40\x40\x40\x52\x02";

/// `begin` with windows of 1,000,000,000.
const WIDE_BEGIN: &[u8] = b"\x00\x00\x00\x1a\x02\x00\x00\x00\x00\x53\x11\xc0\x0d\x04\x40\x43\x70\
      \x3b\x9a\xca\x00\x70\x3b\x9a\xca\x00";

/// Far beyond a round trip, for machines under load.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(20);

fn frame(performative: u8, fields: u8, list: &[u8], payload: &[u8]) -> Vec<u8> {
    let size = u8::try_from(list.len() + 1).unwrap();
    let body = [&[0, 0x53, performative, 0xc0, size, fields], list, payload].concat();
    let length = u32::try_from(8 + body.len()).unwrap().to_be_bytes();
    [&length[..], &[2, 0, 0, 0], &body].concat()
}

/// `attach` of the link `x` with handle 0 between a peer and `orders`.
fn attach(is_receiver: bool) -> Vec<u8> {
    const NODE: &[u8] = b"\x00\x53\x28\xc0\x09\x01\xa1\x06orders";
    const NONE: &[u8] = b"\x40";
    let (role, source, target) = if is_receiver { (0x41, NODE, NONE) } else { (0x42, NONE, NODE) };
    let list = [b"\xa1\x01x\x43", &[role][..], b"\x40\x40", source, target].concat();
    frame(0x12, 7, &list, b"")
}

/// `flow` that grants the link credit, with windows of 1,000,000,000.
fn credit(credit: u32) -> Vec<u8> {
    let wide = b"\x43\x70\x3b\x9a\xca\x00\x43\x70\x3b\x9a\xca\x00\x43\x43\x70";
    frame(0x13, 7, &[&wide[..], &credit.to_be_bytes()].concat(), b"")
}

/// `transfer` of a settled batch of messages with bodies of this size.
fn batch(id: u32, size: u8) -> Vec<u8> {
    let message = [b"\0\x53\x75\xa0", &[size][..], &vec![b'x'; size.into()]].concat();
    let length = u8::try_from(message.len()).unwrap();
    let section = [b"\0\x53\x75\xa0", &[length][..], &message].concat();
    let list = [b"\x43\x70", &id.to_be_bytes()[..], b"\xa0\x01t\x70\x80\x01\x37\x00\x41"].concat();
    frame(0x14, 5, &list, &section.repeat(BATCH))
}

async fn peer(emulator: &Emulator, parts: &[&[u8]]) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", emulator.port())).await.unwrap();
    socket.write_all(&parts.concat()).await.unwrap();
    socket
}

/// Queues messages with bodies of this size, and hangs up.
async fn fill(emulator: &Emulator, size: u8) {
    let mut socket = peer(emulator, &[AMQP_HEADER, OPEN, BEGIN, &attach(false)]).await;
    for (id, _) in (0..).zip(0..MESSAGES / BATCH) {
        socket.write_all(&batch(id, size)).await.unwrap();
    }
    let enqueued = u64::try_from(MESSAGES).unwrap();
    event(emulator, |_| emulator.events().totals().enqueued == enqueued).await;
}

/// Another client sends, receives and completes.
async fn assert_responsive(emulator: &Emulator) {
    let completed = emulator.events().totals().completed;
    let started = Instant::now();
    let mut client = connect(emulator).await;
    send_once(&mut client, message("other")).await;
    let mut receiver = receiver(&mut client).await;
    let received = receiver.receive_message_with_max_wait_time(PATIENCE).await.unwrap().unwrap();
    receiver.complete_message(&received).await.unwrap();
    event(emulator, |_| emulator.events().totals().completed == completed + 1).await;
    assert!(started.elapsed() < ROUND_TRIP_MAX, "{:?}", started.elapsed());
    client.dispose().await.unwrap();
}

#[test]
fn a_thousand_links_and_a_long_queue_do_not_slow_the_others() {
    with_orders(
        |queue| queue,
        async |emulator| {
            fill(emulator, 1).await;
            let mut peers = Vec::new();
            for _ in 0..CONNECTIONS {
                let parts = [AMQP_HEADER, OPEN, BEGIN, &attach(true), &credit(1)];
                peers.push(peer(emulator, &parts).await);
            }
            let delivered = u64::try_from(CONNECTIONS).unwrap();
            event(emulator, |_| emulator.events().totals().delivered == delivered).await;
            assert_responsive(emulator).await;
            assert_eq!(counts(emulator), (MESSAGES - CONNECTIONS, CONNECTIONS, 0));
            drop(peers);
        },
    );
}

/// Waits until no more messages are handed out; returns how many are locked.
async fn locked_at_rest(emulator: &Emulator) -> usize {
    let mut locked = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = counts(emulator).1;
        if now == locked && locked > 0 {
            return locked;
        }
        locked = now;
    }
}

#[test]
fn a_peer_that_does_not_read_is_sent_only_what_the_socket_takes() {
    with_orders(
        |queue| queue,
        async |emulator| {
            fill(emulator, 200).await;
            let started = Instant::now();
            let parts = [AMQP_HEADER, IMPATIENT_OPEN, WIDE_BEGIN, &attach(true), &credit(1 << 30)];
            let mut deaf = peer(emulator, &parts).await;
            let locked = locked_at_rest(emulator).await;
            // Each message takes some 500 bytes on the wire.
            assert!(locked < MESSAGES / 2, "{locked} are on their way");
            assert_responsive(emulator).await;

            // It has also not been sent more heartbeats than it wanted: one in half of 2 ms.
            let mut output = Vec::new();
            let mut buffer = vec![0; 1 << 20];
            // More than the sockets hold, behind which they would come.
            while output.len() < 16 << 20 {
                let length = deaf.read(&mut buffer).await.unwrap();
                output.extend_from_slice(&buffer[..length]);
            }
            let heartbeats = output.windows(8).filter(|window| *window == HEARTBEAT).count();
            let wanted = started.elapsed().as_millis();
            assert!(u128::try_from(heartbeats).unwrap() <= wanted, "{heartbeats} in {wanted} ms");
        },
    );
}

const HEARTBEAT: [u8; 8] = [0, 0, 0, 8, 2, 0, 0, 0];
