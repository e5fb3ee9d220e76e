//! Rules of subscriptions: which messages of a topic they take, and what they change in them.

mod sql;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use sql::SqlError;
use sql::{Action, Expression};
pub use value::PropertyValue;

/// The name of the rule that a subscription has if it is given none: it takes every message.
pub(crate) const DEFAULT_RULE: &str = "$Default";

/// How many rules one subscription may have.
pub(crate) const RULES_MAX: usize = 2000;

const NAME_LENGTH_MAX: usize = 50;

/// A rule of a subscription: messages that match its filter are taken.
///
/// However many rules without an action match, a message is taken once for all of them; each
/// matching rule with an action takes a copy of its own.
///
/// ```
/// # use idem_emulator::{CorrelationFilter, Filter, Rule};
/// let red = Rule::new("red", Filter::sql("colour = 'red' AND weight > 2.5"))
///     .action("SET priority = 'high'; REMOVE colour");
/// let invoices = Rule::new("invoices", CorrelationFilter::new().subject("invoice"));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a rule does nothing until it is given to a subscription"]
pub struct Rule {
    name: String,
    filter: Filter,
    action: Option<String>,
}

impl Rule {
    /// A rule with a name of 1 to 50 characters.
    pub fn new(name: impl Into<String>, filter: impl Into<Filter>) -> Self {
        Self { name: name.into(), filter: filter.into(), action: None }
    }

    /// What to change in the copy of a matching message: `SET name = value` and `REMOVE name`,
    /// separated by `;`, at most 1024 characters. The copy also gets the property `RuleName`.
    pub fn action(mut self, sql: impl Into<String>) -> Self {
        self.action = Some(sql.into());
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    pub(crate) fn action_text(&self) -> Option<&str> {
        self.action.as_deref()
    }

    pub(crate) fn compile(self) -> Result<CompiledRule, RuleError> {
        if self.name.is_empty() || self.name.chars().count() > NAME_LENGTH_MAX {
            return Err(RuleError::Name(self.name));
        }
        let in_rule = |problem| RuleError::Sql { rule: self.name.clone(), problem };
        let condition = match &self.filter {
            Filter::Sql(text) => Some(Expression::parse(text).map_err(in_rule)?),
            Filter::True | Filter::False | Filter::Correlation(_) => None,
        };
        let action = self.action.as_deref().map(Action::parse).transpose().map_err(in_rule)?;
        Ok(CompiledRule { rule: self, condition, action })
    }
}

/// What a rule is about.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Filter {
    /// Every message matches.
    True,
    /// No message matches.
    False,
    /// Messages match for which the condition is true, in the language of Service Bus, at most 1024
    /// characters: properties (`name`, `user.name`, `sys.Label`), comparisons, arithmetic, `LIKE`,
    /// `IN`, `IS NULL`, `EXISTS`, `AND`, `OR` and `NOT`. What is not there is null, and a comparison
    /// with null is neither true nor false.
    Sql(String),
    /// Messages match that have all of the given values.
    Correlation(CorrelationFilter),
}

impl Filter {
    /// See [`Filter::Sql`].
    pub fn sql(condition: impl Into<String>) -> Self {
        Self::Sql(condition.into())
    }
}

impl From<CorrelationFilter> for Filter {
    fn from(filter: CorrelationFilter) -> Self {
        Self::Correlation(filter)
    }
}

/// The values that a message must have, each of the same type and case.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "a filter does nothing until it is given to a rule"]
pub struct CorrelationFilter {
    system: Vec<(SystemProperty, String)>,
    user: Vec<(String, PropertyValue)>,
}

impl CorrelationFilter {
    /// A filter that every message matches until values are added.
    pub fn new() -> Self {
        Self::default()
    }

    /// The correlation id.
    pub fn correlation_id(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::CorrelationId, value)
    }

    /// The message id.
    pub fn message_id(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::MessageId, value)
    }

    /// The address that the message is for.
    pub fn to(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::To, value)
    }

    /// The address to reply to.
    pub fn reply_to(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::ReplyTo, value)
    }

    /// The subject, which was called label.
    pub fn subject(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::Subject, value)
    }

    /// The session id.
    pub fn session_id(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::SessionId, value)
    }

    /// The session id to reply to.
    pub fn reply_to_session_id(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::ReplyToSessionId, value)
    }

    /// The content type.
    pub fn content_type(self, value: impl Into<String>) -> Self {
        self.with(SystemProperty::ContentType, value)
    }

    /// An application property.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<PropertyValue>) -> Self {
        self.user.push((name.into(), value.into()));
        self
    }

    pub(crate) fn with(mut self, property: SystemProperty, value: impl Into<String>) -> Self {
        self.system.push((property, value.into()));
        self
    }

    pub(crate) fn system(&self, property: SystemProperty) -> Option<&str> {
        self.system.iter().find(|(known, _)| *known == property).map(|(_, value)| value.as_str())
    }

    pub(crate) fn user(&self) -> &[(String, PropertyValue)] {
        &self.user
    }

    fn matches(&self, message: &impl Properties) -> bool {
        let is_text = |value: Option<PropertyValue>, wanted: &str| matches!(value, Some(PropertyValue::Text(text)) if text == wanted);
        self.system.iter().all(|(property, wanted)| is_text(message.system(*property), wanted))
            && self.user.iter().all(|(name, wanted)| message.user(name).as_ref() == Some(wanted))
    }
}

/// The properties of a message that have a fixed place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemProperty {
    MessageId,
    To,
    Subject,
    ReplyTo,
    CorrelationId,
    ContentType,
    SessionId,
    ReplyToSessionId,
}

impl SystemProperty {
    /// In the order in which descriptions of correlation filters list them.
    pub(crate) const DESCRIBED: [(Self, &str); 8] = [
        (Self::CorrelationId, "correlation-id"),
        (Self::MessageId, "message-id"),
        (Self::To, "to"),
        (Self::ReplyTo, "reply-to"),
        (Self::Subject, "label"),
        (Self::SessionId, "session-id"),
        (Self::ReplyToSessionId, "reply-to-session-id"),
        (Self::ContentType, "content-type"),
    ];

    /// The property behind `sys.name`; case does not matter.
    fn named(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "messageid" => Self::MessageId,
            "to" => Self::To,
            "label" | "subject" => Self::Subject,
            "replyto" => Self::ReplyTo,
            "correlationid" => Self::CorrelationId,
            "contenttype" => Self::ContentType,
            "sessionid" => Self::SessionId,
            "replytosessionid" => Self::ReplyToSessionId,
            _ => return None,
        })
    }
}

/// What rules can see of a message.
pub(crate) trait Properties {
    fn system(&self, property: SystemProperty) -> Option<PropertyValue>;
    fn user(&self, name: &str) -> Option<PropertyValue>;
}

/// What an action does to a message. Without a value the property is removed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    System(SystemProperty, Option<String>),
    User(String, Option<PropertyValue>),
}

/// Why a rule cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("the name of a rule must have 1 to {NAME_LENGTH_MAX} characters, found `{0}`")]
    Name(String),
    #[error("rule `{rule}`: {problem}")]
    Sql { rule: String, problem: SqlError },
    #[error("rule `{0}` exists already")]
    Exists(String),
    #[error("there are {RULES_MAX} rules already")]
    TooMany,
}

/// A rule that is ready to be asked.
#[derive(Debug, Clone)]
pub(crate) struct CompiledRule {
    rule: Rule,
    /// Of a SQL filter.
    condition: Option<Expression>,
    action: Option<Action>,
}

impl CompiledRule {
    fn matches(&self, message: &impl Properties) -> bool {
        match (&self.rule.filter, &self.condition) {
            (Filter::True, _) => true,
            (Filter::False, _) => false,
            (Filter::Correlation(filter), _) => filter.matches(message),
            (Filter::Sql(_), condition) => {
                condition.as_ref().is_some_and(|condition| condition.is_true(message))
            }
        }
    }
}

/// The rules of one subscription, in the order in which they were added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    rules: Vec<CompiledRule>,
}

impl Rules {
    pub(crate) fn compile(rules: Vec<Rule>) -> Result<Self, RuleError> {
        let mut compiled = Self::default();
        if rules.is_empty() {
            compiled.add(Rule::new(DEFAULT_RULE, Filter::True))?;
        }
        rules.into_iter().try_for_each(|rule| compiled.add(rule))?;
        Ok(compiled)
    }

    pub(crate) fn add(&mut self, rule: Rule) -> Result<(), RuleError> {
        if self.position(rule.name()).is_some() {
            return Err(RuleError::Exists(rule.name));
        }
        if self.rules.len() >= RULES_MAX {
            return Err(RuleError::TooMany);
        }
        self.rules.push(rule.compile()?);
        Ok(())
    }

    /// `false` if there is no such rule.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.position(name).map(|index| self.rules.remove(index)).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.rule)
    }

    /// One entry for each copy that the subscription takes: what to change in it.
    pub(crate) fn copies(&self, message: &impl Properties) -> Vec<Vec<Change>> {
        let mut plain = false;
        let mut copies = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.matches(message)) {
            match &rule.action {
                None => plain = true,
                Some(action) => copies.push(action.changes(message, rule.rule.name())),
            }
        }
        if plain {
            copies.insert(0, Vec::new());
        }
        copies
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.rules.iter().position(|known| known.rule.name.eq_ignore_ascii_case(name))
    }
}
