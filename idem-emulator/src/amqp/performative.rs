//! The performatives: read from peers with only the fields that we use, written with every field.
//!
//! Absent trailing fields are written as explicit nulls, because some clients index them all.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::Limits;
use super::error::AmqpError;
use super::frame::{FRAME_SIZE_MAX, Frame, FrameKind};
use super::transactions::{read_id, unknown_id};
use crate::broker::{SessionGrant, SessionWish};
use crate::clock::Timestamp;
use crate::codec::{DecodeError, Raw, encode};

const OPEN: u64 = 0x10;
const BEGIN: u64 = 0x11;
const ATTACH: u64 = 0x12;
const FLOW: u64 = 0x13;
const TRANSFER: u64 = 0x14;
const DISPOSITION: u64 = 0x15;
const DETACH: u64 = 0x16;
const END: u64 = 0x17;
const CLOSE: u64 = 0x18;

/// No more channels per connection than this, and no more links per session.
pub(super) const CHANNEL_MAX: u16 = 4095;
pub(super) const HANDLE_MAX: u32 = 4095;

/// The batch format of Service Bus: each data section is one encoded message.
pub(super) const BATCH_FORMAT: u32 = 0x8001_3700;

#[derive(Debug)]
pub(super) enum Performative<'a> {
    Open(Open),
    Begin(Begin),
    Attach(Attach),
    Flow(Flow),
    /// With the bytes that follow it in its frame.
    Transfer(Transfer, &'a [u8]),
    Disposition(Disposition<'a>),
    Detach(Detach),
    End,
    Close,
}

impl<'a> Performative<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, DecodeError> {
        let (performative, payload) = Raw::split(body)?;
        let (code, list) = performative
            .as_described()
            .filter(|(_, list)| list.is_list())
            .ok_or(DecodeError::Field("performative"))?;
        let fields = Fields::of(&list);
        Ok(match code {
            OPEN => Self::Open(Open::read(&fields)?),
            BEGIN => Self::Begin(Begin::read(&fields)?),
            ATTACH => Self::Attach(Attach::read(&fields)?),
            FLOW => Self::Flow(Flow::read(&fields)?),
            TRANSFER => Self::Transfer(Transfer::read(&fields)?, payload),
            DISPOSITION => Self::Disposition(Disposition::read(&fields)?),
            DETACH => Self::Detach(Detach::read(&fields)?),
            END => Self::End,
            CLOSE => Self::Close,
            _ => return Err(DecodeError::Field("performative")),
        })
    }
}

/// The fields of a list; what is missing at the end, or null, is absent.
struct Fields<'a> {
    values: [Option<Raw<'a>>; 14],
}

impl<'a> Fields<'a> {
    fn of(list: &Raw<'a>) -> Self {
        let mut values = [None; 14];
        for (place, value) in values.iter_mut().zip(list.items()) {
            *place = Some(value).filter(|value| !value.is_null());
        }
        Self { values }
    }

    fn get(&self, index: usize) -> Option<Raw<'a>> {
        self.values.get(index).copied().flatten()
    }

    /// A field that may be absent, but must have the right type if it is there.
    fn optional<T>(
        &self,
        index: usize,
        name: &'static str,
        read: impl FnOnce(&Raw<'a>) -> Option<T>,
    ) -> Result<Option<T>, DecodeError> {
        match self.get(index) {
            None => Ok(None),
            Some(value) => read(&value).map(Some).ok_or(DecodeError::Field(name)),
        }
    }

    fn u32(&self, index: usize, name: &'static str) -> Result<Option<u32>, DecodeError> {
        self.optional(index, name, Raw::as_u32)
    }

    fn required_u32(&self, index: usize, name: &'static str) -> Result<u32, DecodeError> {
        self.u32(index, name)?.ok_or(DecodeError::Field(name))
    }

    fn bool(&self, index: usize, name: &'static str) -> Result<Option<bool>, DecodeError> {
        self.optional(index, name, Raw::as_bool)
    }

    /// A source or a target, as it was sent.
    fn terminus(&self, index: usize, name: &'static str) -> Result<Option<Bytes>, DecodeError> {
        self.optional(index, name, |value| {
            value.undescribed().is_list().then(|| Bytes::copy_from_slice(value.bytes()))
        })
    }
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) frame_size_max: u32,
    /// In milliseconds: how long the peer waits for a frame from us.
    pub(super) idle_time_out: Option<u32>,
}

impl Open {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        fields
            .optional(0, "container-id", Raw::as_text)?
            .ok_or(DecodeError::Field("container-id"))?;
        Ok(Self {
            frame_size_max: fields.u32(2, "max-frame-size")?.unwrap_or(u32::MAX),
            idle_time_out: fields.u32(4, "idle-time-out")?.filter(|milliseconds| *milliseconds > 0),
        })
    }

    pub(super) fn write(out: &mut BytesMut, idle_time_out: u32) {
        write(out, 0, OPEN, 10, |out| {
            encode::string(out, "idem-emulator");
            encode::null(out);
            encode::uint(out, FRAME_SIZE_MAX);
            encode::ushort(out, CHANNEL_MAX);
            encode::uint(out, idle_time_out);
            nulls(out, 5);
        });
    }
}

#[derive(Debug)]
pub(super) struct Begin {
    pub(super) next_outgoing_id: u32,
    pub(super) incoming_window: u32,
}

impl Begin {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            next_outgoing_id: fields.required_u32(1, "next-outgoing-id")?,
            incoming_window: fields.required_u32(2, "incoming-window")?,
        })
    }

    /// Answers a begin, on the same channel.
    pub(super) fn write(out: &mut BytesMut, channel: u16, window: u32) {
        write(out, channel, BEGIN, 8, |out| {
            encode::ushort(out, channel);
            encode::uint(out, 0);
            encode::uint(out, window);
            encode::uint(out, window);
            encode::uint(out, HANDLE_MAX);
            nulls(out, 3);
        });
    }
}

/// Which end of a link somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Sender,
    Receiver,
}

impl Role {
    fn of(receiver: bool) -> Self {
        if receiver { Self::Receiver } else { Self::Sender }
    }

    fn is_receiver(self) -> bool {
        self == Self::Receiver
    }

    fn opposite(self) -> Self {
        Self::of(self == Self::Sender)
    }
}

/// The descriptor of a source, the place of the filters in it, and the one that we know.
const SOURCE: u64 = 0x28;
const FILTERS_FIELD: usize = 7;
const SESSION_FILTER: &str = "com.microsoft:session-filter";

const TRANSFER_DESTINATION: &str = "com.microsoft:transfer-destination-address";

const SEND_SETTLED: u8 = 1;
const SEND_MIXED: u8 = 2;
const RECEIVE_FIRST: u8 = 0;

#[derive(Debug)]
pub(super) struct Attach {
    name: String,
    pub(super) handle: u32,
    /// The peer's role.
    pub(super) role: Role,
    send_mode: u8,
    receive_mode: u8,
    /// Source and target as they were sent, to be echoed.
    source: Option<Bytes>,
    target: Option<Bytes>,
    pub(super) initial_delivery_count: u32,
    /// How long the peer waits for a session.
    pub(super) session_time_out: Option<Duration>,
    /// Where a sending peer wants its messages sent on.
    pub(super) transfer_destination: Option<String>,
}

impl Attach {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let byte = |value: &Raw<'_>| u8::try_from(value.as_u32()?).ok();
        let name = fields.optional(0, "name", Raw::as_text)?.ok_or(DecodeError::Field("name"))?;
        let receiver = fields.bool(2, "role")?.ok_or(DecodeError::Field("role"))?;
        Ok(Self {
            name: name.to_owned(),
            handle: fields.required_u32(1, "handle")?,
            role: Role::of(receiver),
            send_mode: fields.optional(3, "snd-settle-mode", byte)?.unwrap_or(SEND_MIXED),
            receive_mode: fields.optional(4, "rcv-settle-mode", byte)?.unwrap_or(RECEIVE_FIRST),
            source: fields.terminus(5, "source")?,
            target: fields.terminus(6, "target")?,
            initial_delivery_count: fields.u32(9, "initial-delivery-count")?.unwrap_or(0),
            session_time_out: fields
                .get(13)
                .and_then(|properties| properties.get("com.microsoft:timeout")?.as_u32())
                .map(|milliseconds| Duration::from_millis(u64::from(milliseconds))),
            transfer_destination: fields
                .get(13)
                .and_then(|properties| properties.get(TRANSFER_DESTINATION)?.as_text())
                .map(str::to_owned),
        })
    }

    /// The peer, a receiver, wants deliveries that are settled already.
    pub(super) fn wants_settled(&self) -> bool {
        self.send_mode == SEND_SETTLED
    }

    /// The address of our end: the target if the peer sends, the source if it receives.
    pub(super) fn address(&self) -> Option<&str> {
        let ours = match self.role {
            Role::Sender => &self.target,
            Role::Receiver => &self.source,
        };
        first_field(ours.as_ref()?)?.as_text()
    }

    /// The address of a receiving peer's own end, which it names as the reply address of requests.
    pub(super) fn reply_address(&self) -> Option<&str> {
        first_field(self.target.as_ref()?)?.as_text()
    }

    pub(super) fn is_coordinator(&self) -> bool {
        let target = self.target.as_ref().and_then(|target| Raw::split(target).ok());
        target.and_then(|(target, _)| target.as_described()).is_some_and(|(code, _)| code == 0x30)
    }

    /// The session that a receiving peer asks for, if it asks for one.
    pub(super) fn session_wish(&self) -> Result<Option<SessionWish>, AmqpError> {
        let Some(filter) = self.session_filter() else {
            return Ok(None);
        };
        match filter.as_text() {
            Some(id) => Ok(Some(SessionWish::Named(id.into()))),
            None if filter.is_null() => Ok(Some(SessionWish::NextAvailable)),
            None => {
                let text = "the session filter must be the id of a session, a string, or null";
                Err(AmqpError::new("com.microsoft:argument-error", text))
            }
        }
    }

    fn session_filter(&self) -> Option<Raw<'_>> {
        let (source, _) = Raw::split(self.source.as_ref()?).ok()?;
        let filters = source.undescribed().items().nth(FILTERS_FIELD)?;
        Some(filters.get(SESSION_FILTER)?.undescribed())
    }

    /// Accepts the link: the same name, handle, source and target, with our role. Where the peer
    /// asked for a session, the source names the one that it was granted.
    pub(super) fn write_answer(
        &self,
        out: &mut BytesMut,
        channel: u16,
        limits: Limits,
        session: Option<&SessionGrant>,
    ) {
        let initial_delivery_count = (self.role == Role::Receiver).then_some(0);
        // A sender that is answered with mode second waits for dispositions that it then ignores.
        let receive_mode =
            if self.role == Role::Sender { RECEIVE_FIRST } else { self.receive_mode };
        write(out, channel, ATTACH, 14, |out| {
            self.write_start(out, receive_mode);
            match (&self.source, session) {
                (Some(source), Some(grant)) => write_granted_source(out, source, &grant.id),
                (Some(source), None) => out.put_slice(source),
                (None, _) => encode::null(out),
            }
            encode::optional(out, self.target.as_ref(), |out, target| out.put_slice(target));
            encode::null(out);
            encode::boolean(out, false);
            encode::optional(out, initial_delivery_count, encode::uint);
            encode::ulong(out, limits.message_size());
            nulls(out, 2);
            encode::map(out, 1 + u32::from(session.is_some()), |out| {
                encode::symbol(out, "com.microsoft:max-message-batch-size");
                encode::ulong(out, limits.batch_size());
                if let Some(grant) = session {
                    encode::symbol(out, "com.microsoft:locked-until-utc");
                    encode::long(out, dot_net_ticks(grant.until));
                }
            });
        });
    }

    /// Refuses the link: an attach without source and target; a detach with the reason must follow.
    pub(super) fn write_refusal(&self, out: &mut BytesMut, channel: u16) {
        let initial_delivery_count = (self.role == Role::Receiver).then_some(0);
        write(out, channel, ATTACH, 14, |out| {
            self.write_start(out, self.receive_mode);
            nulls(out, 3);
            encode::boolean(out, false);
            encode::optional(out, initial_delivery_count, encode::uint);
            nulls(out, 4);
        });
    }

    fn write_start(&self, out: &mut BytesMut, receive_mode: u8) {
        encode::string(out, &self.name);
        encode::uint(out, self.handle);
        encode::boolean(out, self.role.opposite().is_receiver());
        encode::ubyte(out, self.send_mode);
        encode::ubyte(out, receive_mode);
    }
}

/// A source as it was sent, but for the session filter, which names the granted session.
fn write_granted_source(out: &mut BytesMut, source: &Bytes, session_id: &str) {
    let Some((source, _)) = Raw::split(source).ok() else {
        return encode::null(out);
    };
    let fields: Vec<_> = source.undescribed().items().collect();
    encode::descriptor(out, SOURCE);
    encode::list(out, encode::length(fields.len()), |out| {
        for (index, field) in fields.iter().enumerate() {
            if index == FILTERS_FIELD {
                write_granted_filters(out, field, session_id);
            } else {
                out.put_slice(field.bytes());
            }
        }
    });
}

fn write_granted_filters(out: &mut BytesMut, filters: &Raw<'_>, session_id: &str) {
    encode::map(out, encode::length(filters.pairs().count()), |out| {
        for (key, value) in filters.pairs() {
            out.put_slice(key.bytes());
            if key.as_text() != Some(SESSION_FILTER) {
                out.put_slice(value.bytes());
                continue;
            }
            if let Some(descriptor) = value.descriptor() {
                out.put_u8(0x00);
                out.put_slice(descriptor.bytes());
            }
            encode::string(out, session_id);
        }
    });
}

/// A time in units of 100 ns since the year 1, as clients expect it in the answer to an attach.
fn dot_net_ticks(time: Timestamp) -> i64 {
    time.milliseconds().saturating_mul(10_000).saturating_add(621_355_968_000_000_000)
}

fn first_field(terminus: &Bytes) -> Option<Raw<'_>> {
    let (terminus, _) = Raw::split(terminus).ok()?;
    terminus.undescribed().items().next()
}

#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) next_incoming_id: Option<u32>,
    pub(super) incoming_window: u32,
    pub(super) next_outgoing_id: u32,
    pub(super) link: Option<LinkFlow>,
    pub(super) echo: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct LinkFlow {
    pub(super) handle: u32,
    pub(super) delivery_count: Option<u32>,
    pub(super) credit: Option<u32>,
    pub(super) drain: bool,
}

impl Flow {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        let link = match fields.u32(4, "handle")? {
            None => None,
            Some(handle) => Some(LinkFlow {
                handle,
                delivery_count: fields.u32(5, "delivery-count")?,
                credit: fields.u32(6, "link-credit")?,
                drain: fields.bool(8, "drain")?.unwrap_or(false),
            }),
        };
        Ok(Self {
            next_incoming_id: fields.u32(0, "next-incoming-id")?,
            incoming_window: fields.required_u32(1, "incoming-window")?,
            next_outgoing_id: fields.required_u32(2, "next-outgoing-id")?,
            link,
            echo: fields.bool(9, "echo")?.unwrap_or(false),
        })
    }

    pub(super) fn write(&self, out: &mut BytesMut, channel: u16, outgoing_window: u32) {
        write(out, channel, FLOW, 11, |out| {
            encode::optional(out, self.next_incoming_id, encode::uint);
            encode::uint(out, self.incoming_window);
            encode::uint(out, self.next_outgoing_id);
            encode::uint(out, outgoing_window);
            encode::optional(out, self.link.map(|link| link.handle), encode::uint);
            encode::optional(out, self.link.and_then(|link| link.delivery_count), encode::uint);
            encode::optional(out, self.link.and_then(|link| link.credit), encode::uint);
            encode::null(out);
            encode::boolean(out, self.link.is_some_and(|link| link.drain));
            encode::boolean(out, self.echo);
            encode::null(out);
        });
    }
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) handle: u32,
    pub(super) delivery_id: Option<u32>,
    pub(super) format: Option<u32>,
    pub(super) settled: bool,
    pub(super) more: bool,
    pub(super) aborted: bool,
    pub(super) transaction: Option<Enlisted>,
}

const TRANSACTIONAL_STATE: u64 = 0x34;

/// The transaction that a transfer or a settlement names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enlisted {
    In(Uuid),
    /// In one whose id is of another form than ours.
    InUnknown,
}

impl Enlisted {
    /// Reads a transactional state: its transaction, and the outcome in it.
    pub(super) fn read<'a>(state: &Raw<'a>) -> Option<(Self, Option<Raw<'a>>)> {
        let (_, fields) = state.as_described().filter(|(code, _)| *code == TRANSACTIONAL_STATE)?;
        let mut fields = fields.items();
        let id = fields.next().and_then(|id| read_id(&id));
        let outcome = fields.next().filter(|outcome| !outcome.is_null());
        Some((id.map_or(Self::InUnknown, Self::In), outcome))
    }

    pub(super) fn id(self) -> Result<Uuid, AmqpError> {
        match self {
            Self::In(id) => Ok(id),
            Self::InUnknown => Err(unknown_id()),
        }
    }
}

impl Transfer {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            handle: fields.required_u32(0, "handle")?,
            delivery_id: fields.u32(1, "delivery-id")?,
            format: fields.u32(3, "message-format")?,
            settled: fields.bool(4, "settled")?.unwrap_or(false),
            more: fields.bool(5, "more")?.unwrap_or(false),
            aborted: fields.bool(9, "aborted")?.unwrap_or(false),
            transaction: fields.get(7).and_then(|state| Enlisted::read(&state)).map(|(it, _)| it),
        })
    }
}

/// A frame of a delivery to a receiver. `first` is its id and tag, on the first frame only.
pub(super) fn write_transfer(
    out: &mut BytesMut,
    channel: u16,
    handle: u32,
    first: Option<(u32, &[u8; 16])>,
    settled: bool,
    more: bool,
    payload: &[u8],
) {
    Frame::write(out, FrameKind::Amqp, channel, |out| {
        encode::descriptor(out, TRANSFER);
        encode::list(out, 11, |out| {
            encode::uint(out, handle);
            encode::optional(out, first, |out, (id, _)| encode::uint(out, id));
            encode::optional(out, first, |out, (_, tag)| encode::binary(out, tag));
            encode::optional(out, first, |out, _| encode::uint(out, 0));
            encode::boolean(out, settled);
            encode::boolean(out, more);
            nulls(out, 2);
            encode::boolean(out, false);
            encode::boolean(out, false);
            encode::boolean(out, false);
        });
        out.put_slice(payload);
    });
}

/// What a transfer frame takes beside its payload, at most.
pub(super) const TRANSFER_OVERHEAD: usize = 80;

#[derive(Debug)]
pub(super) struct Disposition<'a> {
    pub(super) role: Role,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) settled: bool,
    pub(super) state: Option<Raw<'a>>,
}

impl<'a> Disposition<'a> {
    fn read(fields: &Fields<'a>) -> Result<Self, DecodeError> {
        let first = fields.required_u32(1, "first")?;
        Ok(Self {
            role: Role::of(fields.bool(0, "role")?.ok_or(DecodeError::Field("role"))?),
            first,
            last: fields.u32(2, "last")?.unwrap_or(first),
            settled: fields.bool(3, "settled")?.unwrap_or(false),
            state: fields.get(4),
        })
    }
}

/// How a delivery ended, as told to the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Accepted,
    Rejected(Option<AmqpError>),
    Released,
    Modified,
    /// A transaction was declared, under this id.
    Declared(Uuid),
    /// The outcome takes place when this transaction is committed.
    InTransaction(Uuid, Box<Self>),
}

impl Outcome {
    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Accepted => {
                encode::descriptor(out, 0x24);
                encode::list(out, 0, |_| {});
            }
            Self::Rejected(error) => {
                encode::descriptor(out, 0x25);
                encode::list(out, 1, |out| {
                    encode::optional(out, error.as_ref(), |out, error: &AmqpError| {
                        error.write(out)
                    });
                });
            }
            Self::Released => {
                encode::descriptor(out, 0x26);
                encode::list(out, 0, |_| {});
            }
            Self::Modified => {
                encode::descriptor(out, 0x27);
                encode::list(out, 3, |out| nulls(out, 3));
            }
            Self::Declared(id) => {
                encode::descriptor(out, 0x33);
                encode::list(out, 1, |out| encode::binary(out, id.as_bytes()));
            }
            Self::InTransaction(id, outcome) => {
                encode::descriptor(out, TRANSACTIONAL_STATE);
                encode::list(out, 2, |out| {
                    encode::binary(out, id.as_bytes());
                    outcome.write(out);
                });
            }
        }
    }
}

/// Settles deliveries; `role` is ours.
pub(super) fn write_disposition(
    out: &mut BytesMut,
    channel: u16,
    role: Role,
    first: u32,
    last: u32,
    outcome: &Outcome,
) {
    write(out, channel, DISPOSITION, 6, |out| {
        encode::boolean(out, role.is_receiver());
        encode::uint(out, first);
        encode::uint(out, last);
        encode::boolean(out, true);
        outcome.write(out);
        encode::boolean(out, false);
    });
}

#[derive(Debug)]
pub(super) struct Detach {
    pub(super) handle: u32,
    pub(super) closed: bool,
}

impl Detach {
    fn read(fields: &Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            handle: fields.required_u32(0, "handle")?,
            closed: fields.bool(1, "closed")?.unwrap_or(false),
        })
    }

    pub(super) fn write(&self, out: &mut BytesMut, channel: u16, error: Option<&AmqpError>) {
        write(out, channel, DETACH, 3, |out| {
            encode::uint(out, self.handle);
            encode::boolean(out, self.closed);
            encode::optional(out, error, |out, error| error.write(out));
        });
    }
}

pub(super) fn write_end(out: &mut BytesMut, channel: u16, error: Option<&AmqpError>) {
    write(out, channel, END, 1, |out| encode::optional(out, error, |out, error| error.write(out)));
}

pub(super) fn write_close(out: &mut BytesMut, error: Option<&AmqpError>) {
    write(out, 0, CLOSE, 1, |out| encode::optional(out, error, |out, error| error.write(out)));
}

fn write(
    out: &mut BytesMut,
    channel: u16,
    code: u64,
    fields: u32,
    fill: impl FnOnce(&mut BytesMut),
) {
    Frame::write(out, FrameKind::Amqp, channel, |out| {
        encode::descriptor(out, code);
        encode::list(out, fields, fill);
    });
}

fn nulls(out: &mut BytesMut, count: usize) {
    out.put_bytes(0x40, count);
}
