-- One row for each claim. The digest covers level, scope and key; the scope is kept for people.
-- The holder is a random number of the transaction that claimed.
-- One statement: on this engine a migration cannot be rolled back.
CREATE TABLE IF NOT EXISTS idem_claim (
    digest     BINARY(16)   NOT NULL,
    scope      TEXT         CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    holder     BIGINT       NOT NULL,
    claimed_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    PRIMARY KEY (digest)
) ENGINE = InnoDB;
