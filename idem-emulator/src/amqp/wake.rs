//! From the broker to a connection: which links may have messages.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use tokio::sync::Notify;

use crate::broker::ConsumerId;

/// Names a link of a connection. A later link on the same channel and handle has another consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkKey {
    pub(super) channel: u16,
    pub(super) handle: u32,
    pub(super) consumer: ConsumerId,
}

/// The links of one connection that were woken. The broker wakes a link once until the link
/// receives again, so the list is never longer than the number of links.
#[derive(Debug, Default)]
pub(super) struct WakeList {
    woken: Mutex<Vec<LinkKey>>,
    changed: Notify,
}

impl WakeList {
    /// What the broker calls when there may be messages for the link.
    pub(super) fn waker(self: &Arc<Self>, link: LinkKey) -> Waker {
        Waker::from(Arc::new(LinkWaker { list: Arc::clone(self), link }))
    }

    pub(super) fn take(&self) -> Vec<LinkKey> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until a link is woken. A wake-up before the call counts.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

struct LinkWaker {
    list: Arc<WakeList>,
    link: LinkKey,
}

impl Wake for LinkWaker {
    fn wake(self: Arc<Self>) {
        self.list.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.link);
        self.list.changed.notify_one();
    }
}
