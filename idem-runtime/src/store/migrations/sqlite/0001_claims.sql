-- One row for each claim. The digest covers level, scope and key; the scope is kept for people.
CREATE TABLE idem_claim (
    digest     BLOB    NOT NULL PRIMARY KEY,
    scope      TEXT    NOT NULL,
    claimed_at INTEGER NOT NULL DEFAULT (unixepoch())
) STRICT, WITHOUT ROWID;
