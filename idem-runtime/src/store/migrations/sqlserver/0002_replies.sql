-- What must agree among messages of one key, the reply for duplicates, and an index to prune by.
ALTER TABLE idem_claim ADD
    same  varbinary(max) NOT NULL CONSTRAINT idem_claim_same DEFAULT 0x,
    reply varbinary(max) NULL;
CREATE INDEX idem_claim_age ON idem_claim (scope, claimed_at);
