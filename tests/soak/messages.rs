//! What is sent: decided by the seed, a fifth of it duplicates.

use std::collections::HashSet;

use fastrand::Rng;
use idem_runtime::broker::OutgoingMessage;
use serde::{Deserialize, Serialize};

/// The queue of the level 2 handler.
pub(crate) const ORDERS: &str = "orders";

/// The queue of the level 1 handler.
pub(crate) const ENTRIES: &str = "entries";

pub(crate) const QUEUES: [&str; 2] = [ORDERS, ENTRIES];

/// Of so many messages, one is for the level 1 handler.
const ENTRIES_ONE_IN: u32 = 10;

/// Of so many messages, one is a duplicate of an earlier one.
const DUPLICATES_ONE_IN: u32 = 5;

/// Of so many intents, one takes longer than half of a lock, so that the lock has to be renewed.
const SLOW_ONE_IN: u32 = 100;

const SLOW_MILLISECONDS: u64 = 3_000;

/// The body of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) customer_id: i64,
    /// Unique among all intents.
    pub(crate) name: String,
    /// How long the handler works after it has written.
    pub(crate) milliseconds: u64,
}

/// A message that is to be sent.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) queue: &'static str,
    intent: Intent,
    message_id: String,
}

impl Planned {
    pub(crate) fn message(&self) -> anyhow::Result<OutgoingMessage> {
        Ok(OutgoingMessage::json(&self.intent)?.with_message_id(&self.message_id))
    }
}

/// All messages in the order in which they are sent.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) planned: Vec<Planned>,
}

impl Messages {
    /// Half of the duplicates come right behind what they repeat, the others anywhere. Half of those
    /// of orders have a MessageId of their own; those of entries have the same one, which is all that
    /// level 1 goes by.
    pub(crate) fn new(seed: u64, count: u32) -> Self {
        let mut random = Rng::with_seed(seed);
        let duplicates = count / DUPLICATES_ONE_IN;
        let mut placed = Vec::new();
        for number in 0..count - duplicates {
            let place = random.u32(..);
            let planned = first(number, &mut random);
            if number < duplicates {
                let near = place.saturating_add(random.u32(..u32::MAX / count * 16));
                let again_at = if random.bool() { near } else { random.u32(..) };
                placed.push((again_at, again(&planned, &mut random)));
            }
            placed.push((place, planned));
        }
        placed.sort_by_key(|(place, _)| *place);
        Self { planned: placed.into_iter().map(|(_, planned)| planned).collect() }
    }

    /// The names of a queue's intents.
    pub(crate) fn intents(&self, queue: &str) -> HashSet<&str> {
        let of_queue = self.planned.iter().filter(|planned| planned.queue == queue);
        of_queue.map(|planned| planned.intent.name.as_str()).collect()
    }
}

fn first(number: u32, random: &mut Rng) -> Planned {
    let is_entry = random.u32(..ENTRIES_ONE_IN) == 0;
    let queue = if is_entry { ENTRIES } else { ORDERS };
    let is_slow = random.u32(..SLOW_ONE_IN) == 0;
    let milliseconds = if is_slow { SLOW_MILLISECONDS } else { random.u64(..10) };
    let name = format!("{queue}/{number}");
    let intent = Intent { customer_id: i64::from(number % 97), name, milliseconds };
    Planned { queue, message_id: format!("m{number}"), intent }
}

/// A duplicate of a message.
fn again(planned: &Planned, random: &mut Rng) -> Planned {
    let Planned { queue, intent, message_id } = planned;
    let has_own_id = *queue == ORDERS && random.bool();
    let message_id = if has_own_id { format!("{message_id}-again") } else { message_id.clone() };
    Planned { queue, intent: intent.clone(), message_id }
}
