//! A commit whose answer was lost.

use std::time::Duration;

use super::calls::in_time;
use super::{Fate, Fault, ROLLED_BACK, Store, StoreError, TransactionId};
use crate::backoff::Backoff;
use crate::key::Digest;

/// How often we ask what became of a commit whose answer was lost. A server that has yet to notice
/// the loss answers that it does not know.
const DOUBT_ASKED_MAX: u32 = 4;

const DOUBT_PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// Asks what became of a commit whose answer was lost, and believes nothing but a proof.
pub(super) async fn settle<S: Store>(
    store: &S,
    claimed: Option<Digest>,
    id: Option<TransactionId>,
    doubt: StoreError,
) -> Result<(), StoreError> {
    for asked in 1.. {
        let fate = in_time("ask for the fate", Fault::Unavailable, fate(store, claimed, id)).await;
        match fate.unwrap_or(Fate::Unknown) {
            Fate::Committed => return Ok(()),
            Fate::RolledBack => {
                return Err(StoreError::new(ROLLED_BACK, Fault::Unavailable, doubt));
            }
            Fate::Unknown if asked == DOUBT_ASKED_MAX => break,
            Fate::Unknown => tokio::time::sleep(DOUBT_PAUSES.after(asked)).await,
        }
    }
    Err(doubt)
}

/// The claim's row proves a commit. Its absence proves nothing: the server may still be about to
/// commit. Only what the server says of the transaction by its id goes both ways.
async fn fate<S: Store>(
    store: &S,
    claimed: Option<Digest>,
    id: Option<TransactionId>,
) -> Result<Fate, StoreError> {
    if let Some(id) = id {
        return store.fate(id, claimed).await;
    }
    let Some(digest) = claimed else { return Ok(Fate::Unknown) };
    let found = store.find(digest).await?;
    Ok(if found.is_some() { Fate::Committed } else { Fate::Unknown })
}
