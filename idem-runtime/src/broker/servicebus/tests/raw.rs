//! A sender of the barest kind, for messages that no client would send.

use idem_emulator::Emulator;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::support::eventually;

const NULL: &[u8] = &[0x40];
const TRUE: &[u8] = &[0x41];
const FALSE: &[u8] = &[0x42];
const ZERO: &[u8] = &[0x43];
const HUNDRED: &[u8] = &[0x52, 100];

/// Sends a message one of whose application properties is an empty list. AMQP allows no such
/// property, the emulator takes it, and the client cannot decode it.
pub(super) async fn send_with_list_property(emulator: &Emulator) {
    let property = [text("list"), vec![0x45]].concat();
    let properties = [&[0x00, 0x53, 0x74, 0xc1, length(&property) + 1, 2], &property[..]].concat();
    send_sections(emulator, &[&properties, &data(b"{}")]).await;
}

/// Sends a message that consists of these sections.
pub(super) async fn send_sections(emulator: &Emulator, sections: &[&[u8]]) {
    let target = composite(0x29, &[&text("orders")]);
    let attach = [&text("raw"), ZERO, FALSE, NULL, NULL, NULL, &target, NULL, NULL, ZERO];
    let transfer = composite(0x14, &[ZERO, ZERO, &[0xa0, 1, 7], ZERO, TRUE]);
    let bytes = [
        b"AMQP\x00\x01\x00\x00".to_vec(),
        frame(&composite(0x10, &[&text("raw")])),
        frame(&composite(0x11, &[NULL, ZERO, HUNDRED, HUNDRED])),
        frame(&composite(0x12, &attach)),
        frame(&[transfer, sections.concat()].concat()),
    ];
    let enqueued = || emulator.events().totals().enqueued;
    let before = enqueued();
    let mut stream = TcpStream::connect(("localhost", emulator.port())).await.unwrap();
    stream.write_all(&bytes.concat()).await.unwrap();
    eventually("arrival", || enqueued() == before + 1).await;
}

/// The properties of a message, of which there is only an encoded id.
pub(super) fn properties(message_id: &[u8]) -> Vec<u8> {
    composite(0x73, &[message_id])
}

/// A body of bytes, or a part of one.
pub(super) fn data(bytes: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, 0x75, 0xa0, length(bytes)], bytes].concat()
}

/// A body that is an encoded value.
pub(super) fn value(encoded: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, 0x77], encoded].concat()
}

/// A body that is a sequence of one encoded value.
pub(super) fn sequence(encoded: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, 0x76, 0xc0, length(encoded) + 1, 1], encoded].concat()
}

fn frame(body: &[u8]) -> Vec<u8> {
    let size = u32::from(length(body)) + 8;
    [&size.to_be_bytes(), &[2, 0, 0, 0][..], body].concat()
}

/// A list of fields with a descriptor.
fn composite(code: u8, fields: &[&[u8]]) -> Vec<u8> {
    let count = u8::try_from(fields.len()).unwrap();
    let fields = fields.concat();
    [&[0x00, 0x53, code, 0xc0, length(&fields) + 1, count], &fields[..]].concat()
}

/// An encoded text.
pub(super) fn text(text: &str) -> Vec<u8> {
    [&[0xa1, length(text.as_bytes())], text.as_bytes()].concat()
}

fn length(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap()
}
