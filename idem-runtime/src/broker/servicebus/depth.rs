//! Counts the messages in an entity by looking at each of them.

use std::sync::Arc;

use super::error::Place;
use super::link::ReceiverLink;
use super::message;
use super::worker::Worker;
use crate::broker::BrokerError;
use crate::broker::connection_string::ConnectionString;

/// How many messages one request asks for.
const PAGE: u32 = 100;

pub(super) async fn count(
    connection_string: Arc<ConnectionString>,
    place: Place,
    at_most: u32,
) -> Result<u32, BrokerError> {
    let there = place.clone();
    let (_, counted) = Worker::start(&place, move |answer| async move {
        match ReceiverLink::open(&connection_string, there.clone(), 0).await {
            Ok(mut link) => {
                answer.send(count_on(&mut link, &there, at_most).await).ok();
                link.dispose().await;
            }
            Err(error) => {
                answer.send(Err(error)).ok();
            }
        }
    })
    .await?;
    Ok(counted)
}

async fn count_on(
    link: &mut ReceiverLink,
    place: &Place,
    at_most: u32,
) -> Result<u32, BrokerError> {
    let mut counted = 0;
    let mut from = 0;
    while counted < at_most {
        let page = link.peek(from, PAGE.min(at_most - counted)).await?;
        let Some(last) = page.last() else { break };
        let last = message::sequence_number(last.raw_amqp_message());
        from = last.filter(|last| *last >= from).and_then(|last| last.checked_add(1)).ok_or_else(
            || place.refused("peek", "the messages are not in order of their numbers"),
        )?;
        counted += u32::try_from(page.len()).unwrap_or(u32::MAX).min(at_most - counted);
    }
    Ok(counted)
}
