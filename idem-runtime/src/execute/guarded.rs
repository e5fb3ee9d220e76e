//! A constraint of the handler's own table in place of a claim.

use std::error::Error;

use super::Proof;
use crate::key::{Fingerprint, KeyValue};
use crate::outcome::{Conflict, Outcome};
use crate::store::{self, Constraint, Store, StoreError};

/// What makes a message the same as an earlier one: the row that that one has left under a unique
/// constraint.
pub(super) struct Guarded {
    pub(super) constraint: &'static str,
    /// The names of the key's fields.
    pub(super) names: &'static [&'static str],
    /// Their values, in the order of the constraint's columns.
    pub(super) key: Vec<KeyValue>,
    pub(super) same: Fingerprint,
}

impl Guarded {
    /// The outcome by the row of an earlier message, if that is committed.
    pub(super) async fn earlier<S: Store>(&self, store: &S) -> Result<Option<Outcome>, StoreError> {
        let constraint = self.find(store).await?;
        self.by_row(store, &constraint).await
    }

    /// The same for a handler that has failed, if its error is the violation of the constraint.
    pub(super) async fn met<S: Store>(
        &self,
        store: &S,
        error: &(dyn Error + Send + Sync + 'static),
    ) -> Result<Option<Outcome>, StoreError> {
        if S::fault_of(error).is_none() {
            return Ok(None);
        }
        let constraint = self.find(store).await?;
        match S::violates(error, &constraint) {
            true => self.by_row(store, &constraint).await,
            false => Ok(None),
        }
    }

    async fn find<S: Store>(&self, store: &S) -> Result<Constraint, StoreError> {
        let same: Vec<_> = self.same.fields().map(|(name, _)| name).collect();
        store::constraint(store, self.constraint, self.names, &same).await
    }

    async fn by_row<S: Store>(
        &self,
        store: &S,
        constraint: &Constraint,
    ) -> Result<Option<Outcome>, StoreError> {
        let same: Vec<_> = self.same.fields().collect();
        let agreement = store::agreement(store, constraint, &self.key, &same).await?;
        Ok(agreement.map(|agrees| {
            let fields = same.iter().zip(agrees);
            let differing: Vec<_> =
                fields.filter(|(_, agrees)| !agrees).map(|((name, _), _)| *name).collect();
            match differing.is_empty() {
                true => Outcome::Duplicate(Proof::earlier(None, None)),
                false => Outcome::Conflict(Conflict::new(differing)),
            }
        }))
    }
}
