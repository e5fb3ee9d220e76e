//! The rules of subscriptions.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::rules::{self, CorrelationFilter, Filter, PropertyValue, SystemProperty};

/// The rules of one subscription, each of which can be used.
#[derive(Debug, Default, Deserialize)]
#[serde(try_from = "Vec<Rule>")]
pub(crate) struct Rules(pub(super) Vec<rules::Rule>);

impl TryFrom<Vec<Rule>> for Rules {
    type Error = String;

    fn try_from(rules: Vec<Rule>) -> Result<Self, String> {
        let rules: Vec<_> = rules.into_iter().map(|rule| rule.0).collect();
        rules::Rules::compile(rules.clone()).map_err(|error| error.to_string())?;
        Ok(Self(rules))
    }
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "WrittenRule")]
struct Rule(rules::Rule);

impl TryFrom<WrittenRule> for Rule {
    type Error = String;

    fn try_from(WrittenRule { name, properties }: WrittenRule) -> Result<Self, String> {
        let rule = rules::Rule::new(name, properties.filter);
        let rule = match properties.action {
            Some(action) => rule.action(action.sql_expression),
            None => rule,
        };
        rule.clone().compile().map_err(|error| error.to_string())?;
        Ok(Self(rule))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct WrittenRule {
    name: String,
    properties: RuleProperties,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "WrittenProperties")]
struct RuleProperties {
    filter: Filter,
    action: Option<Expression>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct WrittenProperties {
    filter_type: FilterType,
    sql_filter: Option<Expression>,
    correlation_filter: Option<WrittenCorrelation>,
    action: Option<Expression>,
}

#[derive(Debug, Deserialize)]
enum FilterType {
    Correlation,
    Sql,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Expression {
    sql_expression: String,
}

impl TryFrom<WrittenProperties> for RuleProperties {
    type Error = &'static str;

    fn try_from(properties: WrittenProperties) -> Result<Self, &'static str> {
        let WrittenProperties { filter_type, sql_filter, correlation_filter, action } = properties;
        let filter = match (filter_type, sql_filter, correlation_filter) {
            (FilterType::Sql, Some(filter), None) => Filter::Sql(filter.sql_expression),
            (FilterType::Correlation, None, Some(filter)) => Filter::Correlation(filter.into()),
            (FilterType::Sql, ..) => {
                return Err(
                    "with the `FilterType` `Sql` it must have `SqlFilter`, and no other filter",
                );
            }
            (FilterType::Correlation, ..) => {
                return Err(
                    "with the `FilterType` `Correlation` it must have `CorrelationFilter`, and no other filter",
                );
            }
        };
        Ok(Self { filter, action })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct WrittenCorrelation {
    content_type: Option<String>,
    correlation_id: Option<String>,
    label: Option<String>,
    message_id: Option<String>,
    reply_to: Option<String>,
    reply_to_session_id: Option<String>,
    session_id: Option<String>,
    to: Option<String>,
    #[serde(default)]
    properties: BTreeMap<String, Scalar>,
}

/// The value of an application property.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a string, a number, `true` or `false`")]
enum Scalar {
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(String),
}

impl From<Scalar> for PropertyValue {
    fn from(value: Scalar) -> Self {
        match value {
            Scalar::Boolean(value) => value.into(),
            Scalar::Integer(value) => value.into(),
            Scalar::Real(value) => value.into(),
            Scalar::Text(value) => value.into(),
        }
    }
}

impl From<WrittenCorrelation> for CorrelationFilter {
    fn from(written: WrittenCorrelation) -> Self {
        let system = [
            (SystemProperty::ContentType, written.content_type),
            (SystemProperty::CorrelationId, written.correlation_id),
            (SystemProperty::Subject, written.label),
            (SystemProperty::MessageId, written.message_id),
            (SystemProperty::ReplyTo, written.reply_to),
            (SystemProperty::ReplyToSessionId, written.reply_to_session_id),
            (SystemProperty::SessionId, written.session_id),
            (SystemProperty::To, written.to),
        ];
        let given = system.into_iter().filter_map(|(property, value)| Some((property, value?)));
        let filter =
            given.fold(Self::new(), |filter, (property, value)| filter.with(property, value));
        let properties = written.properties.into_iter();
        properties.fold(filter, |filter, (name, value)| filter.property(name, value))
    }
}
