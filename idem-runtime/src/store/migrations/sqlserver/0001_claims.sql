-- One row for each claim. The digest covers level, scope and key; the scope is kept for people.
-- The holder is a random number of the transaction that claimed.
-- The primary key must never get IGNORE_DUP_KEY: such an insert locks ranges of keys, and claims of
-- different keys would wait for each other. Locks must stay with their rows for the same reason.
CREATE TABLE idem_claim (
    digest     binary(16)    NOT NULL,
    scope      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    holder     bigint        NOT NULL,
    claimed_at datetime2(6)  NOT NULL CONSTRAINT idem_claim_claimed_at DEFAULT SYSUTCDATETIME(),
    CONSTRAINT idem_claim_pk PRIMARY KEY CLUSTERED (digest)
);
ALTER TABLE idem_claim SET (LOCK_ESCALATION = DISABLE);
