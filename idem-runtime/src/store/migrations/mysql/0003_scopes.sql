-- One row for each scope: what its keys are made of, and how long its claims are kept, both in
-- seconds; without a retention they are kept for ever.
-- Times are seconds since 1970 by this database's clock: when a consumer was last running; for how
-- long none was, and since when one has been; and up to when claims have been pruned.
-- One statement: on this engine a migration cannot be rolled back.
CREATE TABLE idem_scope (
    scope         VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    level         SMALLINT NOT NULL,
    key_fields    TEXT     NOT NULL,
    horizon       BIGINT,
    retention     BIGINT,
    seen_at       BIGINT   NOT NULL,
    downtime      BIGINT   NOT NULL DEFAULT 0,
    running_since BIGINT   NOT NULL,
    pruned_before BIGINT   NOT NULL DEFAULT 0
) ENGINE = InnoDB;
