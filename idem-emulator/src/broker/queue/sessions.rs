//! Sessions: who may receive from which, and for how long.

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;

use super::{Part, Queue, SendError, State};
use crate::broker::limits::{LimitError, check_session_id};
use crate::broker::message::{OVERHEAD_BYTES, bytes};
use crate::broker::waiters::ConsumerId;
use crate::clock::Timestamp;
use crate::events::EventKind;

/// Which session a receiver asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionWish {
    Named(Arc<str>),
    /// The one with the oldest message that nobody holds.
    NextAvailable,
}

/// A session that a receiver holds from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionGrant {
    pub(crate) id: Arc<str>,
    pub(crate) until: Timestamp,
}

/// Why a session cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("Another receiver holds the session; it can be accepted once that lock has ended.")]
    CannotBeLocked,
    #[error("The session lock has expired, or was given up. Accept the session again.")]
    LockLost,
    #[error(transparent)]
    NoRoom(SendError),
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl SessionError {
    /// The AMQP error condition.
    pub(crate) fn condition(&self) -> &'static str {
        match self {
            Self::CannotBeLocked => "com.microsoft:session-cannot-be-locked",
            Self::LockLost => "com.microsoft:session-lock-lost",
            Self::NoRoom(error) => error.condition(),
            Self::Limit(error) => error.condition(),
        }
    }
}

impl Queue {
    /// Gives a session to a receiver, which is woken when its lock ends. Without an available one the receiver waits: it is woken once
    /// when there may be one, and must then ask again or be forgotten.
    pub(crate) fn accept_session(
        &self,
        wish: &SessionWish,
        consumer: ConsumerId,
        waker: &Waker,
    ) -> Result<Option<SessionGrant>, SessionError> {
        if let SessionWish::Named(id) = wish {
            check_session_id(id)?;
        }
        self.step(|state, now| {
            let id = match wish {
                SessionWish::Named(id) => Arc::clone(id),
                SessionWish::NextAvailable => {
                    let sessions =
                        state.main.sessions.as_mut().ok_or(SessionError::CannotBeLocked)?;
                    let Some(id) = sessions.next_available() else {
                        sessions.wait_for_session(consumer, waker);
                        return Ok(None);
                    };
                    id
                }
            };
            let until = now.plus(self.settings.lock_duration);
            if !state.main.take_session(&id, consumer, waker, until) {
                return Err(SessionError::CannotBeLocked);
            }
            state.main.pass_on();
            self.record_session(EventKind::SessionAccepted { session_id: Arc::clone(&id) });
            Ok(Some(SessionGrant { id, until }))
        })
    }

    /// Extends the lock of a session by the lock duration from now.
    pub(crate) fn renew_session(&self, id: &str) -> Result<Timestamp, SessionError> {
        self.step(|state, now| {
            let until = now.plus(self.settings.lock_duration);
            if !state.main.renew_session(id, until) {
                return Err(SessionError::LockLost);
            }
            self.record_session(EventKind::SessionLockRenewed { session_id: id.into() });
            Ok(until)
        })
    }

    /// The state of a session that is locked.
    pub(crate) fn session_state(&self, id: &str) -> Result<Option<Bytes>, SessionError> {
        self.step(|state, _| {
            self.check_locked(state, Some(id))?;
            Ok(state.main.sessions.as_ref().and_then(|sessions| sessions.state(id)))
        })
    }

    /// Sets the state of a session that is locked, or clears it. States take room in the queue.
    pub(crate) fn set_session_state(
        &self,
        id: &str,
        value: Option<Bytes>,
    ) -> Result<(), SessionError> {
        self.step(|state, now| {
            self.check_locked(state, Some(id))?;
            let size = charge_of_state(value.as_ref());
            if !self.has_room(state, size) {
                return Err(SessionError::NoRoom(self.full()));
            }
            if let Some(sessions) = &mut state.main.sessions {
                let before = charge_of_state(sessions.set_state(&id.into(), value, now).as_ref());
                state.charge = state.charge.saturating_add(size).saturating_sub(before);
            }
            Ok(())
        })
    }

    /// The ids of sessions, in their order: those whose state was set after a time, or those with
    /// messages.
    pub(crate) fn session_ids(
        &self,
        state_set_after: Option<Timestamp>,
        skip: usize,
        top: usize,
    ) -> Vec<Arc<str>> {
        let state = self.lock();
        let Some(sessions) = &state.main.sessions else {
            return Vec::new();
        };
        match state_set_after {
            None => sessions.with_messages().skip(skip).take(top).cloned().collect(),
            Some(time) => sessions.with_state_since(time).skip(skip).take(top).cloned().collect(),
        }
    }

    /// A receiver of sessions must still hold its own.
    pub(super) fn check_held(
        &self,
        state: &State,
        part: Part,
        consumer: ConsumerId,
    ) -> Result<(), SessionError> {
        let holds = |state: &State| state.main.sessions.as_ref()?.of(consumer).map(|_| ());
        if self.requires_sessions(part) {
            holds(state).ok_or(SessionError::LockLost)?;
        }
        Ok(())
    }

    pub(super) fn check_locked(&self, state: &State, id: Option<&str>) -> Result<(), SessionError> {
        let lock = state.main.sessions.as_ref().zip(id).and_then(|(all, id)| all.lock(id));
        lock.map(|_| ()).ok_or(SessionError::LockLost)
    }

    /// The holder is gone: its messages are available at once, and their deliveries have not failed.
    pub(super) fn release_session(&self, state: &mut State, part: Part, consumer: ConsumerId) {
        if part != Part::Main {
            return;
        }
        if let Some((id, lock)) = state.main.give_up_session(consumer) {
            for token in lock.tokens {
                self.unlock(state, part, token);
            }
            self.record_session(EventKind::SessionReleased { session_id: Arc::clone(&id) });
        }
    }

    /// The lock of a session ends: the deliveries of its holder have failed.
    pub(super) fn expire_session(&self, state: &mut State, consumer: ConsumerId) {
        if let Some((id, lock)) = state.main.give_up_session(consumer) {
            self.record_session(EventKind::SessionLockLost { session_id: Arc::clone(&id) });
            for token in lock.tokens {
                self.expire_lock(state, Part::Main, token);
            }
            lock.holder.wake();
        }
    }

    fn record_session(&self, kind: EventKind) {
        self.context.events.record_message(&self.name, None, None, kind);
    }
}

/// An empty state keeps its session, which takes room too.
pub(super) fn charge_of_state(state: Option<&Bytes>) -> u64 {
    state.map_or(0, |state| bytes(state.len()) + OVERHEAD_BYTES)
}
