-- What must agree among messages of one key, the reply for duplicates, and an index to prune by.
ALTER TABLE idem_claim
    ADD COLUMN same  bytea NOT NULL DEFAULT '',
    ADD COLUMN reply bytea;
CREATE INDEX idem_claim_age ON idem_claim (scope, claimed_at);
