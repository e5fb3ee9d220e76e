-- What must agree among messages of one key, the reply for duplicates, and an index to prune by.
-- One statement: on this engine a migration cannot be rolled back.
ALTER TABLE idem_claim
    ADD COLUMN same  VARBINARY(3072) NOT NULL DEFAULT '',
    ADD COLUMN reply MEDIUMBLOB,
    ADD INDEX idem_claim_age (scope(191), claimed_at);
