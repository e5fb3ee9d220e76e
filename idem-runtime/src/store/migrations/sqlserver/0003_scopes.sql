-- One row for each scope: what its keys are made of, and how long its claims are kept, both in
-- seconds; without a retention they are kept for ever.
-- Times are seconds since 1970 by this database's clock: when a consumer was last running; for how
-- long none was, and since when one has been; and up to when claims have been pruned.
CREATE TABLE idem_scope (
    scope         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    level         smallint      NOT NULL,
    key_fields    nvarchar(max) NOT NULL,
    horizon       bigint        NULL,
    retention     bigint        NULL,
    seen_at       bigint        NOT NULL,
    downtime      bigint        NOT NULL CONSTRAINT idem_scope_downtime DEFAULT 0,
    running_since bigint        NOT NULL,
    pruned_before bigint        NOT NULL CONSTRAINT idem_scope_pruned_before DEFAULT 0,
    CONSTRAINT idem_scope_pk PRIMARY KEY (scope)
);
