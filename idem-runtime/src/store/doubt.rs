//! A commit whose answer was lost.

use std::time::Duration;

use super::calls::{find, in_time};
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
    claimed: &[Digest],
    id: Option<TransactionId>,
    doubt: StoreError,
) -> Result<(), StoreError> {
    for asked in 1.. {
        match fate(store, claimed, id).await.unwrap_or(Fate::Unknown) {
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

/// Nothing but the rows of all its claims proves a commit. Their absence proves nothing by itself:
/// the server may still be about to commit.
///
/// What the server says of the transaction by its id is believed when it says that it was rolled
/// back. When it says that it was committed, it may mean another one: a server that has crashed gives
/// the ids of transactions that were lost to those that come after. With a claim missing it is so, and
/// ours is gone.
async fn fate<S: Store>(
    store: &S,
    claimed: &[Digest],
    id: Option<TransactionId>,
) -> Result<Fate, StoreError> {
    let said = match id {
        Some(id) => {
            let asked = store.fate(id, claimed.first().copied());
            Some(in_time("ask for the fate", Fault::Unavailable, asked).await?)
        }
        None => None,
    };
    match said {
        Some(fate @ (Fate::RolledBack | Fate::Unknown)) => Ok(fate),
        Some(Fate::Committed) | None if claimed.is_empty() => Ok(Fate::Unknown),
        Some(Fate::Committed) if !are_there(store, claimed).await? => Ok(Fate::RolledBack),
        None if !are_there(store, claimed).await? => Ok(Fate::Unknown),
        Some(Fate::Committed) | None => Ok(Fate::Committed),
    }
}

/// Whether all these claims are committed.
async fn are_there<S: Store>(store: &S, claims: &[Digest]) -> Result<bool, StoreError> {
    for digest in claims {
        if find(store, *digest).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
