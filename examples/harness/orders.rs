//! The orders: what is sent, and in which order.

use idem_runtime::broker::OutgoingMessage;
use serde::{Deserialize, Serialize};

/// The message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlaceOrder {
    /// Who orders.
    pub customer_id: i64,
    /// The customer's own name for the order; unique for this customer.
    pub external_ref: String,
    /// What it costs.
    pub amount_cents: i64,
}

/// The orders of one run, a fifth of them published twice.
#[derive(Clone, Debug)]
pub struct Orders {
    run: String,
    seed: u64,
    count: u32,
}

impl Orders {
    /// The orders of a run are told from those of earlier runs, in a database that is kept, by
    /// their names.
    pub fn new(seed: u64, count: u32) -> Self {
        Self { run: format!("{:08x}", fastrand::u32(..)), seed, count }
    }

    /// The run's name, with which the orders' references begin.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// How many different orders there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many messages are sent for them.
    pub fn sent(&self) -> u64 {
        u64::from(self.count) + u64::from(self.republished())
    }

    fn republished(&self) -> u32 {
        self.count / 5
    }

    /// All messages, shuffled. A publisher that repeats itself gives a new MessageId each time:
    /// only the order's own fields tell that it is the same.
    ///
    /// # Errors
    ///
    /// When an order cannot be serialized.
    pub fn messages(&self) -> anyhow::Result<Vec<OutgoingMessage>> {
        let mut random = fastrand::Rng::with_seed(self.seed);
        let mut orders: Vec<_> = (0..self.count).map(|number| self.order(number)).collect();
        orders.extend((0..self.republished()).map(|number| self.order(number * 5)));
        random.shuffle(&mut orders);
        let numbered = orders.iter().enumerate();
        numbered
            .map(|(number, order)| {
                let message = OutgoingMessage::json(order)?;
                Ok(message.with_message_id(format!("{}-{number}", self.run)))
            })
            .collect()
    }

    fn order(&self, number: u32) -> PlaceOrder {
        PlaceOrder {
            customer_id: i64::from(number % 97),
            external_ref: format!("{}/{number}", self.run),
            amount_cents: i64::from(number) * 7 + 100,
        }
    }
}
