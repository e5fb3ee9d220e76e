//! The SASL layer: every credential is accepted.

use bytes::BytesMut;

use super::error::AmqpError;
use super::frame::{Frame, FrameKind};
use crate::codec::{DecodeError, Raw, encode};

const MECHANISMS: u64 = 0x40;
const INIT: u64 = 0x41;
const OUTCOME: u64 = 0x44;

const OFFERED: [&str; 3] = ["MSSBCBS", "PLAIN", "ANONYMOUS"];

const OK: u8 = 0;
const AUTHENTICATION_FAILED: u8 = 1;
const SYSTEM_ERROR: u8 = 2;

pub(super) fn offer(out: &mut BytesMut) {
    write(out, MECHANISMS, 1, |out| encode::symbols(out, &OFFERED));
}

/// Answers the peer's choice; `false` if it did not choose what was offered.
pub(super) fn answer(out: &mut BytesMut, body: &[u8]) -> Result<bool, AmqpError> {
    let (init, _) = Raw::split(body)?;
    let (_, fields) = init
        .as_described()
        .filter(|(code, _)| *code == INIT)
        .ok_or(DecodeError::Field("sasl-init"))?;
    let mechanism = fields
        .items()
        .next()
        .and_then(|value| value.as_text())
        .ok_or(DecodeError::Field("mechanism"))?;
    let accepted = OFFERED.contains(&mechanism);
    outcome(out, if accepted { OK } else { AUTHENTICATION_FAILED });
    Ok(accepted)
}

/// Tells the peer that what it sent cannot be read.
pub(super) fn refuse(out: &mut BytesMut) {
    outcome(out, SYSTEM_ERROR);
}

fn outcome(out: &mut BytesMut, code: u8) {
    write(out, OUTCOME, 2, |out| {
        encode::ubyte(out, code);
        encode::null(out);
    });
}

fn write(out: &mut BytesMut, code: u64, fields: u32, fill: impl FnOnce(&mut BytesMut)) {
    Frame::write(out, FrameKind::Sasl, 0, |out| {
        encode::descriptor(out, code);
        encode::list(out, fields, fill);
    });
}
