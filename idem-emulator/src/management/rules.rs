//! The rules of a subscription.

use bytes::{BufMut, BytesMut};

use super::Reply;
use super::arguments::Arguments;
use super::entity::Problem;
use crate::broker::{Kind, Node, Part};
use crate::codec::message::{property_value, write_property_value};
use crate::codec::{Raw, encode};
use crate::rules::{CorrelationFilter, Filter, PropertyValue, RULES_MAX, Rule, SystemProperty};

const RULE: u64 = 0x0000_0137_0000_0004;
const EMPTY_ACTION: u64 = 0x0000_0137_0000_0005;
const SQL_ACTION: u64 = 0x0000_0137_0000_0006;
// Filters have another prefix than rules and actions.
const SQL_FILTER: u64 = 0x0000_0013_7000_0006;
const TRUE_FILTER: u64 = 0x0000_0013_7000_0007;
const FALSE_FILTER: u64 = 0x0000_0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0000_0013_7000_0009;

/// The version of the SQL language, as clients expect it beside an expression.
const SQL_COMPATIBILITY_LEVEL: i32 = 20;

pub(super) fn add(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    require_subscription(node)?;
    let name = body.required_text("rule-name")?;
    let expected = "a map with a filter";
    let description = body
        .inner("rule-description")?
        .ok_or(Problem::Argument { name: "rule-description", expected })?;
    let rule = Rule::new(name, filter(&description)?);
    let action = match description.inner("sql-rule-action")? {
        Some(action) => action.text("expression")?,
        None => None,
    };
    node.queue.add_rule(match action {
        Some(action) => rule.action(action),
        None => rule,
    })?;
    Ok(Reply::empty(200, "OK"))
}

pub(super) fn remove(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    require_subscription(node)?;
    let name = body.required_text("rule-name")?;
    if node.queue.remove_rule(name) {
        return Ok(Reply::empty(200, "OK"));
    }
    let text = format!("The messaging entity '{}/Rules/{name}' could not be found.", node.name());
    Ok(Reply::error(404, "amqp:not-found", text))
}

pub(super) fn list(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    require_subscription(node)?;
    let top = body.count("top")?.unwrap_or(RULES_MAX).min(RULES_MAX);
    let rules = node.queue.rules(body.count("skip")?.unwrap_or(0), top);
    if rules.is_empty() {
        return Ok(Reply::empty(204, "No Content"));
    }
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "rules");
            encode::list(out, encode::length(rules.len()), |out| {
                for rule in &rules {
                    encode::map(out, 1, |out| {
                        encode::string(out, "rule-description");
                        write_rule(out, rule);
                    });
                }
            });
        });
    }))
}

fn require_subscription(node: &Node) -> Result<(), Problem> {
    if node.queue.kind() == Kind::Subscription && node.part == Part::Main {
        return Ok(());
    }
    Err(Problem::NotAllowed("Only subscriptions have rules."))
}

fn filter(description: &Arguments<'_>) -> Result<Filter, Problem> {
    if let Some(filter) = description.inner("sql-filter")? {
        return Ok(Filter::sql(filter.required_text("expression")?));
    }
    let filter = description.inner("correlation-filter")?.ok_or(Problem::Malformed(
        "`rule-description` must have a `sql-filter` or a `correlation-filter`.",
    ))?;
    let mut built = CorrelationFilter::new();
    for (property, name) in SystemProperty::DESCRIBED {
        if let Some(value) = filter.text(name)? {
            built = built.with(property, value);
        }
    }
    let read = |map: &Raw<'_>| map.is_map().then(|| user_properties(map));
    let user = filter.optional("properties", "a map", read)?.unwrap_or_default();
    Ok(user.into_iter().fold(built, |built, (name, value)| built.property(name, value)).into())
}

fn user_properties(map: &Raw<'_>) -> Vec<(String, PropertyValue)> {
    map.pairs()
        .filter_map(|(name, value)| Some((name.as_text()?.to_owned(), property_value(&value)?)))
        .collect()
}

fn write_rule(out: &mut BytesMut, rule: &Rule) {
    encode::descriptor(out, RULE);
    encode::list(out, 3, |out| {
        write_filter(out, rule.filter());
        write_action(out, rule.action_text());
        encode::string(out, rule.name());
    });
}

/// Never null: clients look into it.
fn write_action(out: &mut BytesMut, action: Option<&str>) {
    match action {
        None => {
            encode::descriptor(out, EMPTY_ACTION);
            encode::list(out, 0, |_| {});
        }
        Some(expression) => {
            encode::descriptor(out, SQL_ACTION);
            write_expression(out, expression);
        }
    }
}

fn write_filter(out: &mut BytesMut, filter: &Filter) {
    match filter {
        Filter::True => {
            encode::descriptor(out, TRUE_FILTER);
            encode::list(out, 0, |_| {});
        }
        Filter::False => {
            encode::descriptor(out, FALSE_FILTER);
            encode::list(out, 0, |_| {});
        }
        Filter::Sql(expression) => {
            encode::descriptor(out, SQL_FILTER);
            write_expression(out, expression);
        }
        Filter::Correlation(filter) => {
            encode::descriptor(out, CORRELATION_FILTER);
            encode::list(out, 9, |out| {
                for (property, _) in SystemProperty::DESCRIBED {
                    encode::optional(out, filter.system(property), encode::string);
                }
                write_properties(out, filter.user());
            });
        }
    }
}

fn write_expression(out: &mut BytesMut, expression: &str) {
    encode::list(out, 2, |out| {
        encode::string(out, expression);
        encode::int(out, SQL_COMPATIBILITY_LEVEL);
    });
}

fn write_properties(out: &mut BytesMut, properties: &[(String, PropertyValue)]) {
    let mut pairs = BytesMut::new();
    for (name, value) in properties {
        encode::string(&mut pairs, name);
        write_property_value(&mut pairs, value);
    }
    encode::map(out, encode::length(properties.len()), |out| out.put_slice(&pairs));
}
