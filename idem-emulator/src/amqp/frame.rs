//! Frames and protocol headers.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::error::AmqpError;
use crate::codec::encode;

/// The largest frame that we accept, in bytes, as told to peers in open.
pub(super) const FRAME_SIZE_MAX: u32 = 64 * 1024;

/// What peers must accept at least, also before open.
pub(super) const FRAME_SIZE_MIN: u32 = 512;

const HEADER_BYTES: usize = 8;

/// An AMQP protocol header: what the peer wants to speak next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProtocolHeader {
    Amqp,
    Sasl,
}

impl ProtocolHeader {
    pub(super) fn bytes(self) -> [u8; HEADER_BYTES] {
        match self {
            Self::Amqp => *b"AMQP\x00\x01\x00\x00",
            Self::Sasl => *b"AMQP\x03\x01\x00\x00",
        }
    }

    /// Takes a header off the input, if all of it is there; `Err` if it is not one of ours.
    pub(super) fn take(input: &mut BytesMut) -> Option<Result<Self, ()>> {
        let bytes = *input.first_chunk::<HEADER_BYTES>()?;
        input.advance(HEADER_BYTES);
        let known = [Self::Amqp, Self::Sasl].into_iter().find(|header| header.bytes() == bytes);
        Some(known.ok_or(()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    Amqp,
    Sasl,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            Self::Amqp => 0,
            Self::Sasl => 1,
        }
    }
}

#[derive(Debug)]
pub(super) struct Frame {
    pub(super) channel: u16,
    /// The performative and its payload; empty for a heartbeat.
    pub(super) body: Bytes,
}

impl Frame {
    /// Takes a frame off the input, if all of it is there.
    pub(super) fn take(
        input: &mut BytesMut,
        expected: FrameKind,
    ) -> Result<Option<Self>, AmqpError> {
        let Some([s0, s1, s2, s3, offset, kind, c0, c1]) =
            input.first_chunk::<HEADER_BYTES>().copied()
        else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([s0, s1, s2, s3]);
        if size > FRAME_SIZE_MAX {
            return Err(AmqpError::framing(format!(
                "a frame of {size} bytes exceeds {FRAME_SIZE_MAX}"
            )));
        }
        let size = usize::try_from(size).map_err(|_| AmqpError::framing("a frame is too large"))?;
        let data_at = usize::from(offset) * 4;
        if size < HEADER_BYTES || data_at < HEADER_BYTES || data_at > size {
            return Err(AmqpError::framing("the size or data offset of a frame is wrong"));
        }
        if kind != expected.code() {
            return Err(AmqpError::framing(format!(
                "a frame of type {kind} came where {} belongs",
                expected.code()
            )));
        }
        if input.len() < size {
            return Ok(None);
        }
        let mut body = input.split_to(size);
        body.advance(data_at);
        Ok(Some(Self { channel: u16::from_be_bytes([c0, c1]), body: body.freeze() }))
    }

    /// Writes a frame around what `write` adds.
    pub(super) fn write(
        out: &mut BytesMut,
        kind: FrameKind,
        channel: u16,
        write: impl FnOnce(&mut BytesMut),
    ) {
        let start = out.len();
        out.put_u32(0);
        out.put_slice(&[2, kind.code()]);
        out.put_u16(channel);
        write(out);
        encode::patch_length(out, start, start);
    }

    pub(super) fn write_heartbeat(out: &mut BytesMut) {
        Self::write(out, FrameKind::Amqp, 0, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_off_whole_or_not_at_all() {
        let mut bytes = BytesMut::new();
        Frame::write(&mut bytes, FrameKind::Amqp, 3, |out| out.put_slice(b"abc"));
        let last = bytes.split_off(bytes.len() - 1);
        assert!(Frame::take(&mut bytes, FrameKind::Amqp).unwrap().is_none());
        bytes.unsplit(last);
        let frame = Frame::take(&mut bytes, FrameKind::Amqp).unwrap().unwrap();
        assert_eq!((frame.channel, &frame.body[..]), (3, &b"abc"[..]));
        assert!(bytes.is_empty());
    }

    #[test]
    fn wrong_frames_are_framing_errors() {
        let wrong: [&[u8]; 5] = [
            &[0, 0, 0, 7, 2, 0, 0, 0],
            &[0xff, 0, 0, 8, 2, 0, 0, 0],
            &[0, 0, 0, 8, 1, 0, 0, 0],
            &[0, 0, 0, 8, 3, 0, 0, 0],
            &[0, 0, 0, 8, 2, 1, 0, 0],
        ];
        for bytes in wrong {
            let error = Frame::take(&mut BytesMut::from(bytes), FrameKind::Amqp).unwrap_err();
            assert_eq!(error.condition, "amqp:connection:framing-error", "{bytes:?}");
        }
    }
}
