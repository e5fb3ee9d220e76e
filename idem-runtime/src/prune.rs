//! Forgetting claims that nothing can meet any more.

use std::time::Duration;

use tokio::time::sleep;

use crate::store::{self, Store, StoreError};

/// How many claims a transaction deletes at most, to bound its locks.
const ROWS_MAX: u32 = 5000;

/// Between two transactions, so that claims of live messages get their turn.
const PAUSE: Duration = Duration::from_millis(50);

/// What a pruning came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruned {
    /// All claims that have outlived their retention are gone; so many were deleted.
    All(u64),
    /// Somebody else is pruning this ledger; so many were deleted before that was found out.
    Elsewhere(u64),
}

/// Deletes the claims of a scope, or of all scopes, that have outlived their retention, in small
/// transactions, and reports after each how many have been deleted so far.
///
/// A scope's retention is what its consumers declare with
/// [`horizon`](crate::ConsumerBuilder::horizon); claims of other scopes are kept. The time is the
/// database's, and ends when a consumer of the scope was last running: while none is, nothing
/// grows old, since its messages wait too. At most one process prunes a ledger at a time.
///
/// Dropping the future is safe: the transaction that runs ends by itself.
///
/// # Errors
///
/// When the database fails; what was deleted before stays deleted.
pub async fn prune<S: Store>(
    store: &S,
    scope: Option<&str>,
    mut progress: impl FnMut(u64),
) -> Result<Pruned, StoreError> {
    let scopes = match scope {
        Some(scope) => vec![scope.to_owned()],
        None => store.scopes().await?,
    };
    let mut deleted = 0;
    for scope in scopes {
        loop {
            let Some(more) = store::prune(store, &scope, ROWS_MAX).await? else {
                return Ok(Pruned::Elsewhere(deleted));
            };
            deleted += more;
            progress(deleted);
            if more < u64::from(ROWS_MAX) {
                break;
            }
            sleep(PAUSE).await;
        }
    }
    Ok(Pruned::All(deleted))
}

/// How old the oldest claim of a scope is by the database's clock; `None` if there is none. Beyond the
/// retention it is what pruning is behind.
///
/// # Errors
///
/// When the database fails.
pub async fn oldest_claim_age<S: Store>(
    store: &S,
    scope: &str,
) -> Result<Option<Duration>, StoreError> {
    store::oldest_claim_age(store, scope).await
}
