//! A unique constraint of the handler's own table.

use std::collections::HashSet;

use tiberius::error::Error;
use tiberius::{Row, ToSql};

use super::{Answer, value_in};
use crate::key::KeyValue;
use crate::store::{Constraint, StoreError, ledger};

/// The columns of all unique and other indexes of this name, in their order.
pub(super) const INDEXES: &str = "\
    SELECT schemas.name, tables.name, columns.name, indexes.is_unique, indexes.is_disabled, \
           indexes.has_filter, indexes.ignore_dup_key, columns.is_nullable, tables.object_id \
    FROM sys.indexes AS indexes \
    JOIN sys.tables AS tables ON tables.object_id = indexes.object_id \
    JOIN sys.schemas AS schemas ON schemas.schema_id = tables.schema_id \
    JOIN sys.index_columns AS parts ON parts.object_id = indexes.object_id \
        AND parts.index_id = indexes.index_id AND parts.key_ordinal > 0 \
    JOIN sys.columns AS columns ON columns.object_id = parts.object_id \
        AND columns.column_id = parts.column_id \
    WHERE indexes.name = @P1 \
    ORDER BY tables.object_id, parts.key_ordinal";

/// The columns of a table, and whether their text is in a code page.
pub(super) const COLUMNS: &str = "\
    SELECT name, CAST(CASE WHEN TYPE_NAME(system_type_id) IN (N'char', N'varchar') \
                      THEN 1 ELSE 0 END AS bit) \
    FROM sys.columns WHERE object_id = OBJECT_ID(@P1)";

/// A column of an index that has the name of the constraint.
struct Part {
    schema: String,
    table: String,
    column: String,
    is_unique: bool,
    is_disabled: bool,
    has_filter: bool,
    ignores: bool,
    is_nullable: bool,
    object: i32,
}

impl Part {
    fn read(row: &Row) -> Result<Self, Error> {
        let text = |column| value_in::<&str>(row, column).map(str::to_owned);
        Ok(Self {
            schema: text(0)?,
            table: text(1)?,
            column: text(2)?,
            is_unique: value_in(row, 3)?,
            is_disabled: value_in(row, 4)?,
            has_filter: value_in(row, 5)?,
            ignores: value_in(row, 6)?,
            is_nullable: value_in(row, 7)?,
            object: value_in(row, 8)?,
        })
    }
}

/// The constraint as the catalogue shows it, without the columns of its table.
pub(super) fn read(
    name: &str,
    found: &Answer,
    failed: impl Fn(Error) -> StoreError,
) -> Result<Constraint, StoreError> {
    let parts = found.rows(0).iter().map(Part::read).collect::<Result<Vec<_>, _>>();
    let parts = parts.map_err(failed)?;
    let Some(first) = parts.first() else { return Err(ledger::no_constraint(name)) };
    let all = |holds: fn(&Part) -> bool| parts.iter().all(holds);
    let is_one = parts.iter().all(|part| part.object == first.object);
    ledger::proves(
        name,
        &[
            (is_one, "is there in more than one table"),
            (all(|part| part.is_unique), "is not unique"),
            (all(|part| !part.is_disabled), "is disabled"),
            (all(|part| !part.has_filter), "is for a part of the rows"),
            (all(|part| !part.ignores), "has IGNORE_DUP_KEY, by which a duplicate is no error"),
            (all(|part| !part.is_nullable), "has a column that may be null, which no key is"),
        ],
    )?;
    Ok(Constraint {
        name: name.to_owned(),
        schema: Some(first.schema.clone()),
        table: first.table.clone(),
        columns: parts.iter().map(|part| part.column.clone()).collect(),
        table_columns: Vec::new(),
    })
}

pub(super) fn quoted_table(constraint: &Constraint) -> String {
    let table = quoted(&constraint.table);
    match &constraint.schema {
        Some(schema) => format!("{}.{table}", quoted(schema)),
        None => table,
    }
}

fn quoted(name: &str) -> String {
    format!("[{}]", name.replace(']', "]]"))
}

/// Whether the message of an error about a taken value is about this constraint. The names are in
/// it in every language, before the value.
pub(super) fn is_named(message: &str, constraint: &Constraint) -> bool {
    let message = message.split(" (").next().unwrap_or_default();
    let table = match &constraint.schema {
        Some(schema) => format!("{schema}.{}", constraint.table),
        None => constraint.table.clone(),
    };
    has_word(message, &constraint.name) && has_word(message, &table)
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_@$#".contains(c);
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

/// The statement that reads the row of a constraint and compares columns of it, and its parameters.
pub(super) struct Agreement {
    pub(super) sql: String,
    pub(super) parameters: Vec<Box<dyn ToSql>>,
}

impl Agreement {
    /// A column whose text is in a code page is compared with such text: otherwise the column would
    /// be converted row by row, and its index be of no use.
    pub(super) fn new(
        constraint: &Constraint,
        in_code_page: &HashSet<String>,
        key: &[KeyValue],
        same: &[(&'static str, &KeyValue)],
    ) -> Result<Self, StoreError> {
        let mut parameters = Vec::new();
        let mut equation = |column: &str, value: &KeyValue| {
            let value = expression(value, in_code_page.contains(column), &mut parameters)?;
            Ok::<_, StoreError>(format!("{} = {value}", quoted(column)))
        };
        let mut results = String::new();
        for (column, value) in same {
            let equation = equation(column, value)?;
            results += &format!("CAST(CASE WHEN {equation} THEN 1 ELSE 0 END AS bit), ");
        }
        let columns = constraint.columns.iter().zip(key);
        let conditions = columns.map(|(column, value)| equation(column, value));
        let conditions = conditions.collect::<Result<Vec<_>, _>>()?.join(" AND ");
        let table = quoted_table(constraint);
        let sql = format!(
            "SET LOCK_TIMEOUT 500; \
             SELECT {results}1 FROM {table} WITH (READCOMMITTEDLOCK) WHERE {conditions}"
        );
        Ok(Self { sql, parameters })
    }
}

/// A value as it is compared with a column.
fn expression(
    value: &KeyValue,
    in_code_page: bool,
    parameters: &mut Vec<Box<dyn ToSql>>,
) -> Result<String, StoreError> {
    /// The Julian day of the first day of 1970.
    const EPOCH: i32 = 2_440_588;
    let mut bind = |value: Box<dyn ToSql>| {
        parameters.push(value);
        format!("@P{}", parameters.len())
    };
    Ok(match value {
        KeyValue::Integer(value) => bind(Box::new(ledger::integer(*value)?)),
        KeyValue::Bool(value) => bind(Box::new(*value)),
        KeyValue::Text(value) => {
            let text = bind(Box::new(value.clone()));
            if in_code_page { format!("CAST({text} AS varchar(8000))") } else { text }
        }
        KeyValue::Bytes(value) => bind(Box::new(value.clone())),
        KeyValue::Uuid(value) => bind(Box::new(*value)),
        KeyValue::Instant(value) => {
            // No interval has more than 2^31 of its unit.
            let utc = value.to_offset(time::UtcOffset::UTC);
            let days = bind(Box::new(utc.to_julian_day() - EPOCH));
            let (hours, minutes, seconds) = utc.to_hms();
            let seconds = i32::from(hours) * 3600 + i32::from(minutes) * 60 + i32::from(seconds);
            let seconds = bind(Box::new(seconds));
            let nanos = bind(Box::new(i32::try_from(utc.nanosecond()).unwrap_or(0)));
            format!(
                "DATEADD(nanosecond, {nanos}, DATEADD(second, {seconds}, \
                 DATEADD(day, {days}, CAST('19700101' AS datetime2(7)))))"
            )
        }
        KeyValue::Date(value) => {
            let days = bind(Box::new(value.to_julian_day() - EPOCH));
            format!("DATEADD(day, {days}, CAST('19700101' AS date))")
        }
        KeyValue::Decimal(value) => {
            // No wider than it is: what is compared has 38 digits in common, and is cut to them.
            let after_the_point = value.split_once('.').map_or(0, |(_, digits)| digits.len());
            let digits = value.chars().filter(char::is_ascii_digit).count();
            let text = bind(Box::new(value.clone()));
            format!("CAST({text} AS decimal({digits}, {after_the_point}))")
        }
    })
}

#[cfg(test)]
mod tests {
    use time::macros::{date, datetime};
    use uuid::Uuid;

    use super::*;

    fn constraint(columns: &[&str]) -> Constraint {
        Constraint {
            name: "orders_uq".to_owned(),
            schema: Some("dbo".to_owned()),
            table: "orders".to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            table_columns: Vec::new(),
        }
    }

    /// The texts of 2627 and 2601, in English and in German.
    #[test]
    fn a_violation_is_told_by_the_names_in_its_message() {
        let constraint = constraint(&["id"]);
        for message in [
            "Violation of UNIQUE KEY constraint 'orders_uq'. Cannot insert duplicate key in object \
             'dbo.orders'. The duplicate key value is (7, r1).",
            "Cannot insert duplicate key row in object 'dbo.orders' with unique index 'orders_uq'. \
             The duplicate key value is (7, r1).",
            "Verletzung der UNIQUE KEY-Einschränkung \"orders_uq\". Ein doppelter Schlüssel kann in \
             das dbo.orders-Objekt nicht eingefügt werden. Der doppelte Schlüsselwert ist (7, r1).",
        ] {
            assert!(is_named(message, &constraint), "{message}");
        }
        for message in [
            "Violation of UNIQUE KEY constraint 'orders_uq2'. Cannot insert duplicate key in object \
             'dbo.orders'. The duplicate key value is (7).",
            "Violation of UNIQUE KEY constraint 'orders_uq'. Cannot insert duplicate key in object \
             'other.orders'. The duplicate key value is (7).",
            "Violation of PRIMARY KEY constraint 'names_pk'. Cannot insert duplicate key in object \
             'dbo.names'. The duplicate key value is ('orders_uq' of 'dbo.orders').",
            "",
        ] {
            assert!(!is_named(message, &constraint), "{message}");
        }
    }

    #[test]
    fn the_row_is_read_by_values_of_the_columns_types() {
        let key = [KeyValue::Integer(7), KeyValue::Text("r1".to_owned())];
        let (currency, amount) = (KeyValue::Text("EUR".to_owned()), KeyValue::Integer(100));
        let same = [("amount", &amount), ("currency", &currency)];
        let in_code_page = HashSet::from(["external]ref".to_owned()]);
        let constraint = constraint(&["customer", "external]ref"]);
        let agreement = Agreement::new(&constraint, &in_code_page, &key, &same).unwrap();
        assert_eq!(
            agreement.sql,
            "SET LOCK_TIMEOUT 500; SELECT CAST(CASE WHEN [amount] = @P1 THEN 1 ELSE 0 END AS bit), \
             CAST(CASE WHEN [currency] = @P2 THEN 1 ELSE 0 END AS bit), 1 FROM [dbo].[orders] \
             WITH (READCOMMITTEDLOCK) \
             WHERE [customer] = @P3 AND [external]]ref] = CAST(@P4 AS varchar(8000))"
        );
        assert_eq!(agreement.parameters.len(), 4);
    }

    #[test]
    fn every_kind_of_value_can_be_compared() {
        let text = |value: KeyValue| {
            let mut parameters = Vec::new();
            let expression = expression(&value, false, &mut parameters).unwrap();
            let values: Vec<_> =
                parameters.iter().map(|value| format!("{:?}", value.to_sql())).collect();
            (expression, values.join(" "))
        };
        assert_eq!(text(KeyValue::Bool(true)), ("@P1".to_owned(), "Bit(Some(true))".to_owned()));
        assert!(text(KeyValue::Bytes(vec![1])).1.contains("Binary"));
        assert!(text(KeyValue::Uuid(Uuid::nil())).1.contains("Guid"));
        let (date, days) = text(KeyValue::Date(date!(1970 - 01 - 02)));
        assert!(date.contains("AS date") && days == "I32(Some(1))", "{date} {days}");
        let (_, parts) = text(KeyValue::Instant(datetime!(1969-12-31 23:00:01.5 -1)));
        assert_eq!(parts, "I32(Some(0)) I32(Some(1)) I32(Some(500000000))");
        let decimal = text(KeyValue::Decimal("-0.125".to_owned())).0;
        assert_eq!(decimal, "CAST(@P1 AS decimal(4, 3))");
        let beyond = KeyValue::Integer(i128::from(i64::MAX) + 1);
        assert!(expression(&beyond, false, &mut Vec::new()).is_err());
    }
}
