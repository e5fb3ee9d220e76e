//! Which keys are busy in this process.
//!
//! The claim is what keeps two deliveries of one key from running at once, here and elsewhere. But
//! whoever meets another's open claim can only ask again and again, and where the other is in this
//! very process there is no need to ask the database. So a delivery that has claimed its key, or
//! asks for one that is held elsewhere, is known here, and the others of its key wait for its end.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::key::Digest;

/// The busy keys, each with a channel that closes when it is so no more.
#[derive(Clone, Default)]
pub(crate) struct BusyKeys(Arc<Mutex<HashMap<Digest, watch::Receiver<()>>>>);

/// Keeps a key among the busy ones until it is dropped.
struct Busy {
    keys: BusyKeys,
    digest: Digest,
    _ends: watch::Sender<()>,
}

/// One delivery among those of its key.
#[derive(Clone)]
pub(crate) struct Asker {
    keys: BusyKeys,
    relation: Arc<Mutex<Relation>>,
}

enum Relation {
    /// Its key is not known, or not busy.
    None,
    /// Its key is busy with it.
    Ahead(#[expect(dead_code, reason = "dropping it lets the others go on")] Busy),
    /// Its key is busy with another one, until the channel closes.
    Behind(watch::Receiver<()>),
}

impl BusyKeys {
    /// A delivery that has not tried its key yet.
    pub(crate) fn enter(&self) -> Asker {
        Asker { keys: self.clone(), relation: Arc::new(Mutex::new(Relation::None)) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, watch::Receiver<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.digest);
    }
}

impl Asker {
    /// Whether it has found its key busy.
    pub(crate) fn has_waited(&self) -> bool {
        !matches!(*self.lock(), Relation::None)
    }

    /// Whether the key is busy with another delivery, so that there is no need to try it.
    pub(crate) fn is_behind(&self, digest: Digest) -> bool {
        let mut relation = self.lock();
        if matches!(*relation, Relation::Ahead(_)) {
            return false;
        }
        *relation = match self.keys.lock().get(&digest) {
            Some(ends) => Relation::Behind(ends.clone()),
            None => Relation::None,
        };
        matches!(*relation, Relation::Behind(_))
    }

    /// Makes the key busy with this delivery, until it [leaves](Self::leave), unless it is busy with
    /// another one by now.
    pub(crate) fn go_ahead(&self, digest: Digest) {
        let mut relation = self.lock();
        if matches!(*relation, Relation::Ahead(_)) {
            return;
        }
        let mut keys = self.keys.lock();
        *relation = match keys.get(&digest) {
            Some(ends) => Relation::Behind(ends.clone()),
            None => {
                let (ends, ended) = watch::channel(());
                keys.insert(digest, ended);
                Relation::Ahead(Busy { keys: self.keys.clone(), digest, _ends: ends })
            }
        };
    }

    /// Lets the others of its key go on, if they wait for this delivery.
    pub(crate) fn leave(&self) {
        // What was there is dropped after the lock.
        let _left = std::mem::replace(&mut *self.lock(), Relation::None);
    }

    /// What completes when the delivery ahead has left; `None` where there is none.
    pub(crate) fn one_ahead(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let Relation::Behind(ended) = &*self.lock() else { return None };
        let mut ended = ended.clone();
        Some(async move {
            // Nothing is ever sent: this is the closing.
            ended.changed().await.ok();
        })
    }

    fn lock(&self) -> MutexGuard<'_, Relation> {
        self.relation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for BusyKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyKeys").field("len", &self.lock().len()).finish()
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::delivery::SourceId;

    fn digest(id: &str) -> Digest {
        Digest::of_message_id("scope", &SourceId::new("h", "q"), id)
    }

    #[tokio::test]
    async fn whoever_is_behind_waits_until_the_one_ahead_has_left() {
        let keys = BusyKeys::default();
        let (first, second, other) = (keys.enter(), keys.enter(), keys.enter());
        assert!(!first.is_behind(digest("a")) && !second.is_behind(digest("a")));
        first.go_ahead(digest("a"));
        first.go_ahead(digest("a"));
        assert!(!first.is_behind(digest("a")) && first.one_ahead().is_none());
        assert!(!other.is_behind(digest("b")) && other.one_ahead().is_none());

        // Both had asked the database at once.
        second.go_ahead(digest("a"));
        let mut waits = Box::pin(second.one_ahead().expect("the first one"));
        let early = timeout(Duration::from_millis(20), &mut waits).await;
        assert!(early.is_err(), "the first one has not left");
        first.leave();
        timeout(Duration::from_secs(5), waits).await.expect("the first one has left");
        assert!(!second.is_behind(digest("a")));
        second.go_ahead(digest("a"));
        assert!(first.is_behind(digest("a")));
    }

    #[tokio::test]
    async fn a_delivery_that_is_dropped_leaves_nothing_behind() {
        let keys = BusyKeys::default();
        let (first, second) = (keys.enter(), keys.enter());
        first.go_ahead(digest("a"));
        assert!(second.is_behind(digest("a")));
        let waits = second.one_ahead().expect("the first one");
        drop(first);
        timeout(Duration::from_secs(5), waits).await.expect("the first one has gone");
        assert!(!second.is_behind(digest("a")));
        assert!(keys.lock().is_empty());
    }
}
