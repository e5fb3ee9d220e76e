//! One connection as a state machine: bytes in, bytes out, no sockets.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::error::{AmqpError, Violation};
use super::frame::{FRAME_SIZE_MAX, FRAME_SIZE_MIN, Frame, FrameKind, ProtocolHeader};
use super::idle::{Idle, IdleWatch};
use super::performative::{Begin, CHANNEL_MAX, Open, Performative, write_close, write_end};
use super::sasl;
use super::session::{Session, WINDOW};
use super::transactions::Transactions;
use super::wake::LinkKey;
use super::{Service, Shared};
use crate::faults::Ending;

/// How long a peer may be silent, as told in open; it is cut after twice as long.
pub(super) const IDLE_TIME_OUT: Duration = Duration::from_secs(60);

/// How many links a connection may have.
pub(super) const LINKS_MAX: usize = 5000;

/// Links that are served before the socket gets its turn.
const PUMPS_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Connection {
    stage: Stage,
    sessions: HashMap<u16, SessionState>,
    pub(super) shared: Shared,
    peer_idle_time_out: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A protocol header comes first, and again after SASL.
    Header,
    Sasl,
    Open,
    Running,
    /// Nothing more is read; what was written goes out.
    Finished,
}

#[derive(Debug)]
enum SessionState {
    Active(Session),
    /// We have ended it, and the peer has not yet. Whatever still comes for it is ignored.
    Ended,
}

impl Connection {
    pub(super) fn new(service: Service) -> Self {
        Self {
            stage: Stage::Header,
            sessions: HashMap::new(),
            shared: Shared::new(service),
            peer_idle_time_out: None,
        }
    }

    /// The connection is to be closed once everything is written.
    pub(super) fn is_finished(&self) -> bool {
        self.stage == Stage::Finished || self.shared.ending.is_some()
    }

    /// How often the peer wants to hear from us, at least.
    pub(super) fn heartbeat_interval(&self) -> Option<Duration> {
        self.peer_idle_time_out.map(|time_out| time_out / 2)
    }

    /// Takes what is complete from the input.
    pub(super) fn receive(&mut self, input: &mut BytesMut) {
        while !self.is_finished() {
            match self.step(input) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => self.close_with(&error),
            }
        }
    }

    /// Takes one header or frame; `false` if none is complete.
    fn step(&mut self, input: &mut BytesMut) -> Result<bool, AmqpError> {
        match self.stage {
            Stage::Header => Ok(self.header(input)),
            Stage::Sasl => {
                let Some(frame) = Frame::take(input, FrameKind::Sasl)? else {
                    return Ok(false);
                };
                let accepted = sasl::answer(&mut self.shared.out, &frame.body)?;
                self.stage = if accepted { Stage::Header } else { Stage::Finished };
                Ok(true)
            }
            Stage::Open | Stage::Running => {
                let Some(frame) = Frame::take(input, FrameKind::Amqp)? else {
                    return Ok(false);
                };
                self.frame(&frame)?;
                Ok(true)
            }
            Stage::Finished => Ok(false),
        }
    }

    fn header(&mut self, input: &mut BytesMut) -> bool {
        let Some(header) = ProtocolHeader::take(input) else {
            return false;
        };
        match header {
            Ok(ProtocolHeader::Sasl) => {
                self.shared.out.extend_from_slice(&ProtocolHeader::Sasl.bytes());
                sasl::offer(&mut self.shared.out);
                self.stage = Stage::Sasl;
            }
            Ok(ProtocolHeader::Amqp) => {
                self.shared.out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
                self.stage = Stage::Open;
            }
            Err(()) => {
                // The standard's answer to an unknown protocol: name ours, and hang up.
                self.shared.out.extend_from_slice(&ProtocolHeader::Amqp.bytes());
                self.stage = Stage::Finished;
            }
        }
        true
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), AmqpError> {
        if frame.body.is_empty() {
            return Ok(());
        }
        let performative = Performative::read(&frame.body)?;
        let channel = frame.channel;
        match (self.stage, performative) {
            (Stage::Open, Performative::Open(open)) => {
                self.open(&open);
                Ok(())
            }
            (Stage::Open, _) => Err(illegal_state("the first frame must be open")),
            (_, Performative::Open(_)) => Err(illegal_state("the connection is open already")),
            (_, Performative::Close) => {
                write_close(&mut self.shared.out, None);
                self.stage = Stage::Finished;
                Ok(())
            }
            (_, Performative::Begin(begin)) => self.begin(channel, &begin),
            (_, Performative::End) => self.end(channel),
            (_, performative) => match self.session_frame(channel, performative) {
                Ok(()) => Ok(()),
                Err(Violation::Connection(error)) => Err(error),
                Err(Violation::Session(error)) => {
                    if let Some(SessionState::Active(session)) =
                        self.sessions.insert(channel, SessionState::Ended)
                    {
                        session.end(&mut self.shared);
                    }
                    write_end(&mut self.shared.out, channel, Some(&error));
                    Ok(())
                }
                Err(Violation::Link(handle, error)) => {
                    if let Some(SessionState::Active(session)) = self.sessions.get_mut(&channel) {
                        session.detach_with(handle, &error, &mut self.shared);
                    }
                    Ok(())
                }
            },
        }
    }

    fn open(&mut self, open: &Open) {
        let frame_max = open.frame_size_max.clamp(FRAME_SIZE_MIN, FRAME_SIZE_MAX);
        self.shared.peer_frame_max = usize::try_from(frame_max).unwrap_or(usize::MAX);
        self.peer_idle_time_out =
            open.idle_time_out.map(|time_out| Duration::from_millis(u64::from(time_out)));
        if self.shared.service.idle_rules {
            self.shared.idle = Some(IdleWatch::new(Instant::now()));
        }
        self.write_open();
    }

    fn write_open(&mut self) {
        let idle = u32::try_from(IDLE_TIME_OUT.as_millis()).unwrap_or(u32::MAX);
        Open::write(&mut self.shared.out, idle);
        self.stage = Stage::Running;
    }

    fn begin(&mut self, channel: u16, begin: &Begin) -> Result<(), AmqpError> {
        if channel > CHANNEL_MAX {
            return Err(AmqpError::framing(format!("channel {channel} exceeds {CHANNEL_MAX}")));
        }
        if self.sessions.contains_key(&channel) {
            return Err(illegal_state(format!("channel {channel} has a session already")));
        }
        self.sessions.insert(channel, SessionState::Active(Session::new(channel, begin)));
        Begin::write(&mut self.shared.out, channel, WINDOW);
        Ok(())
    }

    fn end(&mut self, channel: u16) -> Result<(), AmqpError> {
        match self.sessions.remove(&channel) {
            Some(SessionState::Active(session)) => {
                session.end(&mut self.shared);
                write_end(&mut self.shared.out, channel, None);
            }
            Some(SessionState::Ended) => {}
            None => return Err(no_session(channel)),
        }
        Ok(())
    }

    fn session_frame(
        &mut self,
        channel: u16,
        performative: Performative<'_>,
    ) -> Result<(), Violation> {
        let is_full =
            matches!(performative, Performative::Attach(_)) && self.link_count() >= LINKS_MAX;
        let session = match self.sessions.get_mut(&channel) {
            Some(SessionState::Active(session)) => session,
            Some(SessionState::Ended) => return Ok(()),
            None => return Err(no_session(channel).into()),
        };
        if is_full {
            let text = format!("a connection has at most {LINKS_MAX} links");
            let error = AmqpError::new("amqp:resource-limit-exceeded", text);
            return Err(Violation::Session(error));
        }
        let shared = &mut self.shared;
        match performative {
            Performative::Attach(attach) => session.attach(attach, shared)?,
            Performative::Flow(flow) => session.flow(&flow, shared)?,
            Performative::Transfer(transfer, payload) => {
                session.transfer(&transfer, payload, shared)?
            }
            Performative::Disposition(disposition) => session.disposition(&disposition, shared),
            Performative::Detach(detach) => session.detach(&detach, shared),
            // They belong to the connection, which has dealt with them.
            Performative::Open(_)
            | Performative::Begin(_)
            | Performative::End
            | Performative::Close => {}
        }
        Ok(())
    }

    fn link_count(&self) -> usize {
        let counts = self.sessions.values().map(|session| match session {
            SessionState::Active(session) => session.link_count(),
            SessionState::Ended => 0,
        });
        counts.sum()
    }

    /// Ends the links to entities that are gone.
    pub(super) fn detach_deleted(&mut self) {
        for session in self.sessions.values_mut() {
            if let SessionState::Active(session) = session {
                session.detach_deleted(&mut self.shared);
            }
        }
    }

    /// Gives up what the peer had: it cannot use it any more.
    pub(super) fn end_sessions(&mut self) {
        self.sessions.clear();
        self.shared.transactions = Transactions::default();
    }

    /// When a link stops to wait for a session, or something was not used for too long.
    pub(super) fn next_time_out(&self) -> Option<Instant> {
        let session = self.shared.time_outs.first().map(|(at, _)| *at);
        let idle = self.shared.idle.as_ref().and_then(IdleWatch::next_deadline);
        session.into_iter().chain(idle).min()
    }

    /// Ends what was not used for too long.
    fn end_idle(&mut self) {
        if self.shared.idle.is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(due) = self.shared.idle.as_ref().and_then(|idle| idle.due(now)) {
            match due {
                Idle::Connection(error) => return self.close_with(&error),
                Idle::Link((channel, handle), error) => {
                    self.shared.link_ended(channel, handle);
                    if let Some(SessionState::Active(session)) = self.sessions.get_mut(&channel) {
                        session.detach_with(handle, &error, &mut self.shared);
                    }
                }
            }
        }
    }

    /// Sends what the links have to send, until the output is full, and closes the connection if a
    /// fault wants it.
    pub(super) fn pump(&mut self) {
        if !self.is_finished() {
            self.pump_links();
            self.end_idle();
        }
        if self.shared.ending == Some(Ending::Close) && self.stage != Stage::Finished {
            let text = "a fault rule of the emulator closes the connection; connect again";
            self.close_with(&AmqpError::new("amqp:connection:forced", text));
        }
    }

    fn pump_links(&mut self) {
        let woken = self.shared.wakes.take();
        for key in woken.into_iter().chain(self.take_timed_out()) {
            if let Some(SessionState::Active(session)) = self.sessions.get_mut(&key.channel) {
                session.woken(key, &mut self.shared);
            }
        }
        for _ in 0..self.shared.work.len().min(PUMPS_MAX) {
            let Some((channel, handle)) = self.shared.work.pop_front() else {
                return;
            };
            if let Some(SessionState::Active(session)) = self.sessions.get_mut(&channel) {
                session.pump(handle, &mut self.shared);
            }
            if self.shared.ending.is_some() {
                return;
            }
        }
    }

    fn take_timed_out(&mut self) -> Vec<LinkKey> {
        if self.shared.time_outs.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let (mut past, mut future) = (Vec::new(), std::mem::take(&mut self.shared.time_outs));
        while let Some((_, key)) = future.first().copied().filter(|(at, _)| *at <= now) {
            future.pop_first();
            past.push(key);
        }
        self.shared.time_outs = future;
        past
    }

    /// Links still have something to send that only waits for room in the output.
    pub(super) fn has_work(&self) -> bool {
        !self.shared.work.is_empty()
    }

    pub(super) fn close_with(&mut self, error: &AmqpError) {
        tracing::debug!(condition = error.condition, description = %error.description, "closing a connection");
        match self.stage {
            Stage::Open => {
                // The peer can read a close only after an open.
                self.write_open();
                write_close(&mut self.shared.out, Some(error));
            }
            Stage::Running => write_close(&mut self.shared.out, Some(error)),
            Stage::Sasl => sasl::refuse(&mut self.shared.out),
            Stage::Header | Stage::Finished => {}
        }
        self.stage = Stage::Finished;
    }
}

fn no_session(channel: u16) -> AmqpError {
    illegal_state(format!("channel {channel} has no session"))
}

/// The peer sent what it may not send now.
fn illegal_state(description: impl Into<Cow<'static, str>>) -> AmqpError {
    AmqpError::new("amqp:illegal-state", description)
}
