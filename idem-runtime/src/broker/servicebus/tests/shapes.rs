//! Messages of every shape that AMQP has, as they come off the wire.

use serde::Deserialize;

use super::raw::{data, properties, send_sections, sequence, text, value};
use super::support::{SettleAndWait, complete, receive, start_with_orders};
use crate::broker::{Receiver, Source};
use crate::delivery::{Decode, Delivery, Json};
use crate::outcome::Rejection;

#[derive(Debug, Deserialize, PartialEq)]
struct Order {
    number: i64,
}

fn decode(delivery: &Delivery) -> Result<Order, Rejection> {
    Json::decode(delivery)
}

const JSON: &str = r#"{"number": 7}"#;

/// C-12, and C-11 for what has no body: the body's shape does not matter as long as it is text or
/// bytes.
#[tokio::test]
async fn bodies_of_every_shape_are_read_or_rejected_with_a_reason() {
    let (emulator, bus) = start_with_orders().await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    let binary = [&[0xa0, 13], JSON.as_bytes()].concat();
    let good = [
        vec![data(JSON.as_bytes())],
        vec![data(br#"{"num"#), data(b""), data(br#"ber": 7}"#)],
        vec![value(&text(JSON))],
        vec![value(&binary)],
        vec![data(b"\xEF\xBB\xBF{\"number\": 7}")],
    ];
    for sections in &good {
        let sections: Vec<_> = sections.iter().map(Vec::as_slice).collect();
        send_sections(&emulator, &sections).await;
        let locked = receive(&mut receiver).await;
        assert_eq!(decode(&locked.delivery), Ok(Order { number: 7 }));
        receiver.settler().settled(locked.lock, complete()).await.unwrap();
    }
    let utf_16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(|unit| unit.to_le_bytes()).collect();
    let bad = [
        (sequence(&text(JSON)), "UnreadableBody", "sequence"),
        (value(&[0x54, 7]), "UnreadableBody", "neither text nor bytes"),
        (value(&[0x45]), "UnreadableBody", "neither text nor bytes"),
        (value(&[0x40]), "EmptyBody", "empty"),
        (data(b""), "EmptyBody", "empty"),
        (data(b"\xEF\xBB\xBF"), "EmptyBody", "empty"),
        (data(b"null"), "UndecodableBody", "does not fit"),
        (data(&utf_16), "UndecodableBody", "not JSON"),
        (data(b"eyJudW1iZXIiOiA3fQ=="), "UndecodableBody", "not JSON"),
        (data(b"\x1f\x8b\x08\x00"), "UndecodableBody", "not JSON"),
    ];
    for (body, reason, description) in bad {
        send_sections(&emulator, &[&body]).await;
        let locked = receive(&mut receiver).await;
        let rejection = decode(&locked.delivery).unwrap_err();
        assert_eq!(rejection.reason(), reason, "{rejection}");
        assert!(rejection.description().contains(description), "{rejection}");
        receiver.settler().settled(locked.lock, complete()).await.unwrap();
    }
    send_sections(&emulator, &[&properties(&text("no body"))]).await;
    let locked = receive(&mut receiver).await;
    assert_eq!(decode(&locked.delivery).unwrap_err().reason(), "EmptyBody");
}

/// C-10: ids of other types than text have one text each; an empty one is none.
#[tokio::test]
async fn message_ids_of_every_type_are_read() {
    let (emulator, bus) = start_with_orders().await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    let uuid = [&[0x98][..], &[0xAB; 16]].concat();
    let cases: [(&[u8], Option<&str>); 8] = [
        (&text("Order 7"), Some("Order 7")),
        (&text(""), None),
        (&[0x44], Some("0")),
        (&[0x53, 7], Some("7")),
        (&[0x80, 255, 255, 255, 255, 255, 255, 255, 255], Some("18446744073709551615")),
        (&uuid, Some("abababab-abab-abab-abab-abababababab")),
        (&[0xa0, 3, 0, 0x0f, 0xff], Some("000fff")),
        (&[0xa0, 0], None),
    ];
    for (encoded, expected) in cases {
        send_sections(&emulator, &[&properties(encoded), &data(b"{}")]).await;
        let locked = receive(&mut receiver).await;
        assert_eq!(locked.delivery.message_id(), expected, "{encoded:x?}");
        receiver.settler().settled(locked.lock, complete()).await.unwrap();
    }
    send_sections(&emulator, &[&data(b"{}")]).await;
    let locked = receive(&mut receiver).await;
    assert_eq!(locked.delivery.message_id(), None);
}
