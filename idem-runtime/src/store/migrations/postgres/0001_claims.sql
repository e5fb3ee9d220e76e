-- One row for each claim. The digest covers level, scope and key; the scope is kept for people.
-- The primary key must never become deferrable: the claim is decided when the row is inserted.
CREATE TABLE idem_claim (
    digest     uuid        NOT NULL,
    scope      text        NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT idem_claim_pk PRIMARY KEY (digest) NOT DEFERRABLE
);
