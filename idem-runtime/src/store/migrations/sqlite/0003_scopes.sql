-- One row for each scope: what its keys are made of, and how long its claims are kept, both in
-- seconds; without a retention they are kept for ever.
-- Times are seconds since 1970 by this database's clock: when a consumer was last running; for how
-- long none was, and since when one has been; and up to when claims have been pruned.
CREATE TABLE idem_scope (
    scope         TEXT    NOT NULL PRIMARY KEY,
    level         INTEGER NOT NULL,
    key_fields    TEXT    NOT NULL,
    horizon       INTEGER,
    retention     INTEGER,
    seen_at       INTEGER NOT NULL,
    downtime      INTEGER NOT NULL DEFAULT 0,
    running_since INTEGER NOT NULL,
    pruned_before INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
