//! The places of deliveries in flight, and those beside them.
//!
//! A delivery whose key is busy has nothing to do but to wait. Where it kept its place meanwhile, the
//! copies of one message would take all places, and no other message would be handled. So it gives up
//! its place while it waits, and takes one again before it tries. How many may wait like this is
//! bounded; the next one keeps its place.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::broker::{ASIDE_MAX, LockId, Settler};

/// All places of a consumer.
#[derive(Debug)]
pub(super) struct Places {
    in_flight: Arc<Semaphore>,
    aside: Semaphore,
}

/// A place in flight that is taken.
pub(super) type Taken = OwnedSemaphorePermit;

/// The place of one delivery.
pub(super) struct Place<'a, L: Settler> {
    places: &'a Places,
    settler: &'a L,
    lock: LockId,
    in_flight: Option<Taken>,
    aside: Option<SemaphorePermit<'a>>,
}

impl Places {
    pub(super) fn new(in_flight_max: u32) -> Self {
        let in_flight_max = usize::try_from(in_flight_max).unwrap_or(usize::MAX);
        Self {
            in_flight: Arc::new(Semaphore::new(in_flight_max.min(Semaphore::MAX_PERMITS))),
            aside: Semaphore::new(ASIDE_MAX),
        }
    }

    /// Waits until a place is free, behind the deliveries that wait for one.
    pub(super) async fn one_is_free(&self) {
        // Nothing closes the semaphore.
        drop(self.in_flight.acquire().await);
    }

    /// Takes a place, if one is free.
    pub(super) fn try_take(&self) -> Option<Taken> {
        Arc::clone(&self.in_flight).try_acquire_owned().ok()
    }
}

impl<'a, L: Settler> Place<'a, L> {
    /// The place of a delivery that was received with this one, or has still to take one.
    pub(super) fn new(
        places: &'a Places,
        in_flight: Option<Taken>,
        settler: &'a L,
        lock: LockId,
    ) -> Self {
        Self { places, settler, lock, in_flight, aside: None }
    }

    /// Waits for a place, unless it has one.
    pub(super) async fn take(&mut self) {
        if self.in_flight.is_none() {
            // Nothing closes the semaphore.
            self.in_flight = Arc::clone(&self.places.in_flight).acquire_owned().await.ok();
            self.aside = None;
        }
    }

    /// Gives the place to others for as long as the delivery waits, if there is room beside them.
    pub(super) fn set_aside(&mut self) {
        if let Ok(aside) = self.places.aside.try_acquire() {
            self.aside = Some(aside);
            self.in_flight = None;
            self.settler.set_aside(self.lock);
        }
    }
}
