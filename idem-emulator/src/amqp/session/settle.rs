//! What a peer decides about the messages that it was sent.

use super::{Link, Session, schedule};
use crate::amqp::Shared;
use crate::amqp::outgoing::Late;
use crate::amqp::performative::{Disposition, Outcome, Role, write_disposition};
use crate::amqp::settlement::{self, Answers, Decision};
use crate::broker::Acknowledgement;

impl Session {
    /// Applies what a receiver decided, and answers what it has not settled itself.
    pub(in crate::amqp) fn disposition(
        &mut self,
        disposition: &Disposition<'_>,
        shared: &mut Shared,
    ) {
        if disposition.role == Role::Sender {
            // Our own messages are settled by us; a sender has nothing more to say about its own.
            return;
        }
        if disposition.state.is_none() && !disposition.settled {
            // There is nothing to apply, and only settling ends a delivery.
            return;
        }
        let decision = disposition.state.as_ref().map(settlement::read);
        let mut answers = Answers::default();
        for delivery_id in self.unsettled_between(disposition.first, disposition.last) {
            let outcome = match &decision {
                None => None,
                Some(Err(error)) => Some(Outcome::Rejected(Some(error.clone()))),
                Some(Ok(decision)) => {
                    match self.settle(delivery_id, decision, shared) {
                        Some(outcome) => Some(outcome),
                        // Lost on purpose: not answered, and the delivery stays unsettled.
                        None => continue,
                    }
                }
            };
            match outcome {
                Some(outcome) if !disposition.settled => answers.push(delivery_id, outcome),
                Some(_) => {}
                // Without a state there is nothing to apply: only settling ends the delivery.
                None if !disposition.settled => continue,
                None => {}
            }
            self.unsettled.remove(&delivery_id);
        }
        for (first, last, outcome) in answers.into_runs() {
            write_disposition(&mut shared.out, self.channel, Role::Sender, first, last, &outcome);
        }
    }

    fn settle(
        &mut self,
        delivery_id: u32,
        decision: &Decision,
        shared: &mut Shared,
    ) -> Option<Outcome> {
        let Decision { settlement, success, transaction } = decision;
        let unsettled = self.unsettled.get(&delivery_id)?;
        shared.link_used(self.channel, unsettled.handle);
        let Some(Link::Outgoing(link)) = self.links.get_mut(&unsettled.handle) else {
            return None;
        };
        let node = link.node()?;
        if let Some(id) = transaction {
            let settled = shared.transactions.find(*id).and_then(|transaction| {
                let settlement = settlement.clone();
                Ok(transaction.settle(&node.queue, node.part, unsettled.token, settlement)?)
            });
            return Some(match settled {
                Ok(()) => success.clone(),
                Err(error) => Outcome::Rejected(Some(error)),
            });
        }
        match node.queue.settle(node.part, unsettled.token, settlement.clone()) {
            Ok(Acknowledgement::Now) => Some(success.clone()),
            Ok(Acknowledgement::Never | Acknowledgement::LinkEnds) => None,
            Ok(Acknowledgement::At(at)) => {
                let late = Late::Settlement(delivery_id, success.clone());
                link.put_off(shared.service.broker_ref(), at, late);
                schedule(link, self.channel, unsettled.handle, shared);
                None
            }
            Ok(Acknowledgement::ConnectionEnds(how)) => {
                shared.ending = Some(how);
                None
            }
            Err(error) => Some(settlement::refusal(error)),
        }
    }

    /// The unsettled deliveries of a range, which may wrap around.
    fn unsettled_between(&self, first: u32, last: u32) -> Vec<u32> {
        if first <= last {
            return self.unsettled.range(first..=last).map(|(id, _)| *id).collect();
        }
        self.unsettled
            .range(first..)
            .chain(self.unsettled.range(..=last))
            .map(|(id, _)| *id)
            .collect()
    }
}
