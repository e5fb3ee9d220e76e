//! The statements of the ledger.
//!
//! Three rules hold for all of them. Settings are made by each batch that depends on them, since a
//! connection keeps what handlers have set; those made inside a statement with parameters end with
//! it. Nothing is told by the counts that come with an answer, which a handler may have switched
//! off: whatever we want to know is selected. And whoever reads claims reads what is committed, by
//! locks even where the database reads versions of rows: what is locked is either passed over
//! (`READPAST`) or not waited for. They are found by a value of the key's own type, so that the server
//! reads one row and no others.

use std::fmt::Write;

use crate::key::Digest;
use crate::store::Names;

/// A statement outside any handler's transaction. It waits for locks a little, since those who
/// hold them are statements like it.
macro_rules! alone {
    ($($sql:literal)+) => {
        concat!(
            "SET QUOTED_IDENTIFIER ON; SET IMPLICIT_TRANSACTIONS OFF; \
             SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET XACT_ABORT ON; \
             SET LOCK_TIMEOUT 5000; SET ROWCOUNT 0; ",
            $($sql),+
        )
    };
}

/// Begins a transaction in one round trip, and says its id and the database's.
///
/// `XACT_ABORT` makes any error of a statement roll the transaction back. Otherwise some would, and
/// some would leave the statements before and after them to be committed.
///
/// With `IMPLICIT_TRANSACTIONS`, what a handler writes after such an error is in another
/// transaction, which the guard finds and rolls back, and not committed at once. It is set after
/// the transaction has begun, since it would begin another one around it.
pub(super) const BEGIN: &str = "\
    SET QUOTED_IDENTIFIER ON; SET IMPLICIT_TRANSACTIONS OFF; \
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET XACT_ABORT ON; SET LOCK_TIMEOUT -1; \
    SET ROWCOUNT 0; SET NOCOUNT OFF; \
    BEGIN TRANSACTION; SET IMPLICIT_TRANSACTIONS ON; \
    SELECT CURRENT_TRANSACTION_ID(), CAST(DB_ID() AS int)";

/// Claims, or reads the claim that is there, in one round trip. The first answer is 0, or the
/// number of the error that was met.
///
/// Whether the key is free is decided by the plain insert, and by the error that it meets. It waits
/// for nobody: with a lock time-out of 0, a key that another open transaction has inserted, by a
/// claim of one or of many, is an error at once. An insert after `NOT EXISTS` with `HOLDLOCK`, or
/// into a key with `IGNORE_DUP_KEY`, would lock the gap around the key until the transaction ends,
/// and claims of different keys would wait for each other.
///
/// `XACT_ABORT` would doom the transaction, in which the claim is then to be read.
pub(super) const CLAIM: &str = "\
    SET XACT_ABORT OFF; SET LOCK_TIMEOUT 0; \
    DECLARE @met int = 0; \
    BEGIN TRY \
        INSERT INTO idem_claim WITH (ROWLOCK) (digest, scope, holder, same) \
        VALUES (@P1, @P2, @P3, @P4); \
    END TRY \
    BEGIN CATCH \
        IF ERROR_NUMBER() NOT IN (1222, 2601, 2627) OR XACT_STATE() <> 1 THROW; \
        SET @met = ERROR_NUMBER(); \
    END CATCH; \
    SET LOCK_TIMEOUT -1; SET XACT_ABORT ON; \
    SELECT @met; \
    SELECT DATEDIFF_BIG(microsecond, '19700101', claimed_at), same, reply \
    FROM idem_claim WITH (READCOMMITTEDLOCK, READPAST) \
    WHERE digest = CAST(@P1 AS binary(16)) AND @met IN (2601, 2627)";

/// Claims many keys, and answers with the digests that are ours and the claims that were there.
///
/// Those that are there are left out first, since one error would undo the whole statement. One
/// that comes in between is such an error, and a lost race. Others' open keys are waited for a
/// little.
pub(super) const CLAIM_MANY: &str = "\
    SET LOCK_TIMEOUT 500; \
    DECLARE @batch TABLE (digest binary(16) NOT NULL PRIMARY KEY, same varbinary(max) NOT NULL); \
    INSERT INTO @batch (digest, same) \
    SELECT CONVERT(binary(16), digest, 2), CONVERT(varbinary(max), same, 2) \
    FROM OPENJSON(@P1) WITH (digest char(32), same varchar(max)); \
    INSERT INTO idem_claim WITH (ROWLOCK) (digest, scope, holder, same) \
    OUTPUT inserted.digest \
    SELECT batch.digest, @P2, @P3, batch.same FROM @batch AS batch \
    WHERE NOT EXISTS (SELECT 1 FROM idem_claim AS claim WITH (READCOMMITTEDLOCK, ROWLOCK) \
                      WHERE claim.digest = batch.digest) \
    ORDER BY batch.digest; \
    SELECT claim.digest, DATEDIFF_BIG(microsecond, '19700101', claim.claimed_at), claim.same, \
           claim.reply \
    FROM @batch AS batch INNER LOOP JOIN idem_claim AS claim WITH (READCOMMITTEDLOCK, READPAST) \
        ON claim.digest = batch.digest \
    WHERE claim.holder <> @P3; \
    SET LOCK_TIMEOUT -1";

/// Writes replies to our own claims, and says how many were there.
pub(super) const KEEP: &str = "\
    UPDATE claim SET reply = CONVERT(varbinary(max), batch.reply, 2) \
    FROM OPENJSON(@P1) WITH (digest char(32), reply varchar(max)) AS batch \
    INNER LOOP JOIN idem_claim AS claim WITH (ROWLOCK) \
        ON claim.digest = CONVERT(binary(16), batch.digest, 2) \
    WHERE claim.holder = @P2; \
    SELECT @@ROWCOUNT";

/// What the guard has found.
pub(super) mod found {
    /// The transaction is over, or another one.
    pub(in super::super) const LOST: i32 = 0;
    /// It is the one that was begun, and is committed now.
    pub(in super::super) const COMMITTED: i32 = 1;
    /// It is, and the handler has left another one open inside it.
    pub(in super::super) const NESTED: i32 = 2;
}

/// Commits the transaction with this id if it is still open, healthy and alone, in one round trip.
/// The answer begins with a number that proves whose answer it is.
pub(super) fn guard_and_commit(id: i64, mark: i64) -> String {
    format!(
        "DECLARE @found int = CASE \
             WHEN XACT_STATE() <> 1 OR CURRENT_TRANSACTION_ID() <> {id} THEN {lost} \
             WHEN @@TRANCOUNT <> 1 THEN {nested} ELSE {committed} END; \
         IF @found = {committed} \
         BEGIN COMMIT TRANSACTION; SET IMPLICIT_TRANSACTIONS OFF; END; \
         SELECT CAST({mark} AS bigint), @found, CAST(DB_ID() AS int)",
        lost = found::LOST,
        nested = found::NESTED,
        committed = found::COMMITTED,
    )
}

/// Says whether the claim was committed by somebody other than us, and first rolls back what has
/// come after it. While the transaction is the one that was begun, it was not.
pub(super) fn was_committed(names: &Names, id: i64, mark: i64, digest: Digest) -> String {
    format!(
        "DECLARE @committed int = 0; \
         IF XACT_STATE() = 0 OR CURRENT_TRANSACTION_ID() <> {id} \
         BEGIN \
             IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; \
             SET IMPLICIT_TRANSACTIONS OFF; \
             SET @committed = (SELECT count(*) FROM {table} WITH (READCOMMITTEDLOCK, READPAST) \
                               WHERE digest = 0x{digest} AND holder = {mark}); \
         END; \
         SELECT CAST({mark} AS bigint), @committed, CAST(DB_ID() AS int)",
        table = names.apply("idem_claim"),
        digest = hex(digest.as_bytes()),
    )
}

/// Rolls back whatever is open.
pub(super) fn roll_back(mark: i64) -> String {
    format!(
        "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET IMPLICIT_TRANSACTIONS OFF; \
         SELECT CAST({mark} AS bigint), 0, CAST(DB_ID() AS int)"
    )
}

/// Whose claim is there. A row that is locked is one that is not decided.
pub(super) const HOLDER: &str = alone!(
    "SET LOCK_TIMEOUT 0; SELECT holder FROM idem_claim WITH (READCOMMITTEDLOCK) \
     WHERE digest = CAST(@P1 AS binary(16))"
);

pub(super) const FIND: &str = alone!(
    "SELECT DATEDIFF_BIG(microsecond, '19700101', claimed_at), same, reply \
     FROM idem_claim WITH (READCOMMITTEDLOCK, READPAST) \
     WHERE digest = CAST(@P1 AS binary(16))"
);

pub(super) const REGISTER: &str = alone!(
    "DECLARE @now bigint = DATEDIFF_BIG(second, '19700101', SYSUTCDATETIME()); \
     INSERT INTO idem_scope (scope, level, key_fields, seen_at, running_since) \
     SELECT @P1, @P2, @P3, @now, @now \
     WHERE NOT EXISTS (SELECT 1 FROM idem_scope WITH (UPDLOCK, HOLDLOCK) WHERE scope = @P1); \
     SELECT level, key_fields FROM idem_scope WHERE scope = @P1"
);

pub(super) const KEEP_ALIVE: &str = alone!(
    "DECLARE @now bigint = DATEDIFF_BIG(second, '19700101', SYSUTCDATETIME()); \
     UPDATE idem_scope SET \
         downtime = CASE \
             WHEN @now - seen_at > 90 THEN downtime + (@now - seen_at) \
             WHEN @now - running_since > downtime + \
                 CASE WHEN horizon > retention THEN horizon ELSE retention END THEN 0 \
             ELSE downtime END, \
         running_since = CASE WHEN @now - seen_at > 90 THEN @now ELSE running_since END, \
         seen_at = CASE WHEN @now > seen_at THEN @now ELSE seen_at END, \
         horizon = CASE WHEN horizon > @P2 THEN horizon ELSE @P2 END, \
         retention = CASE WHEN retention > @P3 THEN retention ELSE @P3 END \
     WHERE scope = @P1"
);

pub(super) const SCOPES: &str =
    alone!("SELECT scope FROM idem_scope WHERE retention IS NOT NULL ORDER BY scope");

/// Deletes the oldest claims, and says how many; -1 where somebody else is pruning.
///
/// The scope's row is locked first: the consumers' signs of life wait, and what is pruned is written
/// down before it is. The time is taken apart, since no interval has more than 2^31 seconds here.
pub(super) const PRUNE: &str = alone!(
    "DECLARE @lock int, @before bigint, @deleted int = -1; \
     BEGIN TRANSACTION; \
     EXEC @lock = sp_getapplock @Resource = N'idem_prune', @LockMode = N'Exclusive', \
         @LockOwner = N'Transaction', @LockTimeout = 0; \
     IF @lock >= 0 \
     BEGIN \
         SELECT @before = seen_at - downtime - \
             CASE WHEN horizon > retention THEN horizon ELSE retention END \
         FROM idem_scope WITH (UPDLOCK) WHERE scope = @P1 AND retention IS NOT NULL; \
         UPDATE idem_scope SET pruned_before = @before \
         WHERE scope = @P1 AND pruned_before < @before; \
         IF @before IS NULL OR @before < 0 SET @before = 0; \
         WITH oldest AS ( \
             SELECT TOP (@P2) digest FROM idem_claim WITH (ROWLOCK) \
             WHERE scope = @P1 AND claimed_at < DATEADD(second, CAST(@before % 86400 AS int), \
                 DATEADD(day, CAST(@before / 86400 AS int), CAST('19700101' AS datetime2(6)))) \
             ORDER BY claimed_at) \
         DELETE FROM oldest; \
         SET @deleted = @@ROWCOUNT; \
     END; \
     COMMIT TRANSACTION; \
     SELECT @deleted"
);

/// In seconds; -1 where there is no claim.
pub(super) const OLDEST_CLAIM_AGE: &str = alone!(
    "SELECT coalesce(DATEDIFF_BIG(second, min(claimed_at), sysutcdatetime()), -1) \
     FROM idem_claim WITH (READCOMMITTEDLOCK) WHERE scope = @P1"
);

/// Waits for a pruning that runs, whatever the database's default.
pub(super) const PRUNED_BEFORE: &str =
    "SELECT pruned_before FROM idem_scope WITH (READCOMMITTEDLOCK) WHERE scope = @P1";

/// Begins a migration, while others of the same database wait; less than 0 if it waited in vain.
pub(super) const LOCK_MIGRATION: &str = "\
    SET XACT_ABORT ON; SET LOCK_TIMEOUT 60000; BEGIN TRANSACTION; \
    DECLARE @lock int; \
    EXEC @lock = sp_getapplock @Resource = N'idem_migration', @LockMode = N'Exclusive', \
        @LockOwner = N'Transaction', @LockTimeout = 60000; \
    SELECT @lock";

/// Makes the ledger's schema if there is none.
pub(super) fn make_schema(name: &str) -> String {
    format!("IF SCHEMA_ID(N'{name}') IS NULL EXEC(N'CREATE SCHEMA [{name}]')")
}

/// Makes the table of versions if there is none, and reads it.
pub(super) const MIGRATED: &str = "\
    IF OBJECT_ID(N'idem_migration', N'U') IS NULL \
        CREATE TABLE idem_migration (version int NOT NULL PRIMARY KEY, \
            applied_at datetime2(6) NOT NULL DEFAULT SYSUTCDATETIME()); \
    SELECT coalesce(max(version), 0) FROM idem_migration";

pub(super) const WRITE_VERSION: &str = "INSERT INTO idem_migration (version) VALUES (@P1)";

pub(super) const COMMIT_MIGRATION: &str = "COMMIT TRANSACTION";

/// The ledger's version, and how new the database's SQL is.
pub(super) const VERSION: &str = alone!(
    "SELECT coalesce(max(version), 0), \
         (SELECT CAST(compatibility_level AS int) FROM sys.databases WHERE database_id = DB_ID()) \
     FROM idem_migration"
);

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string does not fail.
        write!(text, "{byte:02x}").ok();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyEncoder;

    const STATEMENTS: &[(&str, usize)] = &[
        (BEGIN, 0),
        (CLAIM, 4),
        (CLAIM_MANY, 3),
        (KEEP, 2),
        (HOLDER, 1),
        (FIND, 1),
        (REGISTER, 3),
        (KEEP_ALIVE, 3),
        (SCOPES, 0),
        (PRUNE, 2),
        (OLDEST_CLAIM_AGE, 1),
        (PRUNED_BEFORE, 1),
        (LOCK_MIGRATION, 0),
        (MIGRATED, 0),
        (WRITE_VERSION, 1),
        (COMMIT_MIGRATION, 0),
        (VERSION, 0),
    ];

    fn digest() -> Digest {
        let mut key = KeyEncoder::default();
        key.part("r1");
        Digest::of_fields("test", &key).expect("a key")
    }

    #[test]
    fn the_guard_commits_nothing_but_the_transaction_that_was_begun() {
        let expected = "DECLARE @found int = CASE \
            WHEN XACT_STATE() <> 1 OR CURRENT_TRANSACTION_ID() <> 815 THEN 0 \
            WHEN @@TRANCOUNT <> 1 THEN 2 ELSE 1 END; \
            IF @found = 1 BEGIN COMMIT TRANSACTION; SET IMPLICIT_TRANSACTIONS OFF; END; \
            SELECT CAST(42 AS bigint), @found, CAST(DB_ID() AS int)";
        assert_eq!(guard_and_commit(815, 42), expected);
    }

    #[test]
    fn a_claim_is_looked_for_only_where_the_transaction_has_ended() {
        let expected = format!(
            "DECLARE @committed int = 0; \
            IF XACT_STATE() = 0 OR CURRENT_TRANSACTION_ID() <> 815 \
            BEGIN IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET IMPLICIT_TRANSACTIONS OFF; \
            SET @committed = (SELECT count(*) FROM idem_claim WITH (READCOMMITTEDLOCK, READPAST) \
            WHERE digest = 0x{} AND holder = 42); END; \
            SELECT CAST(42 AS bigint), @committed, CAST(DB_ID() AS int)",
            hex(digest().as_bytes())
        );
        assert_eq!(was_committed(&Names::default(), 815, 42, digest()), expected);
        assert_eq!(hex(&[0, 0x0a, 0xff]), "000aff");
        let names = Names::schema("shop").expect("a name");
        assert!(was_committed(&names, 815, 42, digest()).contains("FROM \"shop\".idem_claim "));
    }

    #[test]
    fn each_statement_takes_as_many_parameters_as_are_given() {
        for (statement, parameters) in STATEMENTS {
            for number in 1..=9 {
                let is_there = statement.contains(&format!("@P{number}"));
                assert_eq!(is_there, number <= *parameters, "@P{number} in {statement}");
            }
        }
    }

    /// A plain read waits for open transactions of other deliveries, or passes over what is
    /// committed, depending on a setting of the database.
    #[test]
    fn claims_are_read_by_locks_whatever_the_databases_default() {
        let was_committed = was_committed(&Names::default(), 815, 42, digest());
        let generated = [(was_committed.as_str(), 0)];
        for (statement, _) in STATEMENTS.iter().chain(&generated) {
            for (at, table) in statement.match_indices("FROM idem_claim") {
                let hint = &statement[at + table.len()..];
                let hint = hint.trim_start_matches(" AS claim").trim_start_matches(" WITH (");
                let is_hinted =
                    hint.starts_with("READCOMMITTEDLOCK") || hint.starts_with("ROWLOCK");
                assert!(is_hinted, "{statement}");
            }
        }
    }
}
