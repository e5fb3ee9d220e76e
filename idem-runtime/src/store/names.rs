//! What the ledger's tables are called.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use sqlx::AssertSqlSafe;

use super::{Fault, StoreError};

/// What the ledger's tables are called: `idem_claim` and so on, unless a schema or a prefix is given,
/// so that several ledgers fit into one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Kind);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Plain,
    Schema(Arc<str>),
    Prefix(Arc<str>),
}

/// Leaves room for the longest name within the 63 bytes that PostgreSQL takes.
const LENGTH_MAX: usize = 40;

const TABLES: [&str; 3] = ["idem_claim", "idem_scope", "idem_migration"];

impl Names {
    /// Puts the tables into a schema, on PostgreSQL and SQL Server. A migration makes it where it is missing.
    ///
    /// The statements then name the schema, so that no `search_path` matters.
    ///
    /// # Errors
    ///
    /// Unless the name has 1 to 40 lower-case letters, digits and underscores, a letter first.
    pub fn schema(name: &str) -> Result<Self, StoreError> {
        checked("schema", name).map(|name| Self(Kind::Schema(name)))
    }

    /// Puts a prefix before the names of the tables: `shop_` makes `shop_idem_claim`.
    ///
    /// # Errors
    ///
    /// Unless the prefix has 1 to 40 lower-case letters, digits and underscores, a letter first.
    pub fn prefix(prefix: &str) -> Result<Self, StoreError> {
        checked("prefix", prefix).map(|prefix| Self(Kind::Prefix(prefix)))
    }

    /// The schema, where there is one.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
    pub(super) fn schema_name(&self) -> Option<&str> {
        match &self.0 {
            Kind::Schema(name) => Some(name),
            Kind::Plain | Kind::Prefix(_) => None,
        }
    }

    /// A statement of ours with these names in it.
    pub fn apply(&self, sql: &'static str) -> Cow<'static, str> {
        match &self.0 {
            Kind::Plain => Cow::Borrowed(sql),
            Kind::Schema(schema) => replaced(sql, |name| match TABLES.contains(&name) {
                true => format!("\"{schema}\".{name}"),
                // Constraints and indexes go by their table.
                false => name.to_owned(),
            }),
            Kind::Prefix(prefix) => replaced(sql, |name| format!("{prefix}{name}")),
        }
    }

    /// The same for sqlx: the text is ours, and so are the names, which have been checked.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(super) fn sql(&self, sql: &'static str) -> AssertSqlSafe<Cow<'static, str>> {
        AssertSqlSafe(self.apply(sql))
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Plain => f.write_str("no schema or prefix"),
            Kind::Schema(name) => write!(f, "schema `{name}`"),
            Kind::Prefix(prefix) => write!(f, "prefix `{prefix}`"),
        }
    }
}

fn checked(what: &str, name: &str) -> Result<Arc<str>, StoreError> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase();
    let fits = (1..=LENGTH_MAX).contains(&name.len())
        && name.bytes().next().is_some_and(is_letter)
        && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit() || byte == b'_');
    if fits {
        return Ok(name.into());
    }
    let problem = format!(
        "the {what} `{}` cannot name the ledger's tables; use 1 to {LENGTH_MAX} lower-case letters, \
         digits and underscores, with a letter first",
        name.escape_debug()
    );
    Err(StoreError::found(problem, Fault::Refused))
}

/// Replaces each name that begins with `idem_`.
fn replaced(sql: &'static str, name: impl Fn(&str) -> String) -> Cow<'static, str> {
    let mut text = String::with_capacity(sql.len() + 64);
    let mut rest = sql;
    while let Some(start) = rest.find("idem_") {
        let (before, found) = rest.split_at(start);
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = found.find(|c| !is_part(c)).unwrap_or(found.len());
        let (found, after) = found.split_at(end);
        text.push_str(before);
        text.push_str(&name(found));
        rest = after;
    }
    text.push_str(rest);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQL: &str = "INSERT INTO idem_claim (digest) VALUES (1) \
                       ON CONFLICT ON CONSTRAINT idem_claim_pk DO NOTHING; SAVEPOINT idem";

    #[test]
    fn a_schema_goes_before_tables_and_a_prefix_before_all() {
        assert_eq!(Names::default().apply(SQL), SQL);
        assert_eq!(
            Names::schema("shop").unwrap().apply(SQL),
            "INSERT INTO \"shop\".idem_claim (digest) VALUES (1) \
             ON CONFLICT ON CONSTRAINT idem_claim_pk DO NOTHING; SAVEPOINT idem"
        );
        assert_eq!(
            Names::prefix("shop_").unwrap().apply(SQL),
            "INSERT INTO shop_idem_claim (digest) VALUES (1) \
             ON CONFLICT ON CONSTRAINT shop_idem_claim_pk DO NOTHING; SAVEPOINT idem"
        );
    }

    #[test]
    fn what_could_be_anything_but_a_name_is_refused() {
        let too_long = "x".repeat(41);
        for name in ["", "1", "_x", "Shop", "shop;", "sh\"op", "s p", "é", "a.b", "a-b", &too_long]
        {
            for refused in [Names::schema(name), Names::prefix(name)] {
                let problem = refused.unwrap_err().to_string();
                assert!(problem.contains("lower-case letters"), "{problem}");
            }
        }
        assert!(Names::schema(&"x".repeat(40)).is_ok());
    }
}
