//! Versions of the ledger's tables. A version is the number of migrations that were applied.

use super::{Fault, StoreError};

/// The migrations that are still to be applied, with their versions.
pub(super) fn pending(
    migrations: &'static [&'static str],
    version: i32,
) -> Result<impl Iterator<Item = (i32, &'static str)>, StoreError> {
    if version > latest(migrations) {
        return Err(too_new(migrations, version));
    }
    Ok((1..).zip(migrations.iter().copied()).filter(move |(v, _)| *v > version))
}

/// Refuses a ledger of another version.
pub(super) fn check(migrations: &[&str], version: i32) -> Result<(), StoreError> {
    let latest = latest(migrations);
    let remedy = "run `idem migrate`, or call `migrate()` on the store";
    match version {
        0 => Err(found(format!("the ledger's tables are missing; {remedy}"))),
        version if version < latest => Err(found(format!(
            "the ledger has version {version}, this build needs {latest}; {remedy}"
        ))),
        version if version > latest => Err(too_new(migrations, version)),
        _ => Ok(()),
    }
}

fn too_new(migrations: &[&str], version: i32) -> StoreError {
    let latest = latest(migrations);
    found(format!(
        "the ledger has version {version}, newer than this build's {latest}; update idem"
    ))
}

fn found(problem: String) -> StoreError {
    StoreError::found(problem, Fault::Refused)
}

fn latest(migrations: &[&str]) -> i32 {
    i32::try_from(migrations.len()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["first", "second"];

    #[test]
    fn only_what_is_missing_is_applied() {
        let versions = |from| pending(TWO, from).unwrap().collect::<Vec<_>>();
        assert_eq!(versions(0), [(1, "first"), (2, "second")]);
        assert_eq!(versions(1), [(2, "second")]);
        assert_eq!(versions(2), []);
    }

    #[test]
    fn another_version_is_refused_with_what_to_do() {
        let text = |version| check(TWO, version).unwrap_err().to_string();
        assert!(text(0).contains("run `idem migrate`"));
        assert!(text(1).contains("run `idem migrate`"));
        assert!(text(3).contains("update idem"));
        assert!(check(TWO, 2).is_ok());
        assert!(pending(TWO, 3).is_err(), "a newer ledger is never migrated down");
    }
}
