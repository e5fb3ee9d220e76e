//! The language of SQL filters and actions.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::vec::IntoIter;

use super::{Change, Properties, PropertyValue, SystemProperty};

const LENGTH_MAX: usize = 1024;

/// The longest pattern of `LIKE` in bytes. It may come from a message, and the time that it takes grows
/// with it; beyond this it is taken for null.
const PATTERN_MAX: usize = 1024;

/// How deep parentheses and signs may nest.
const DEPTH_MAX: u32 = 32;

/// Words that cannot be names unless they are quoted.
const RESERVED: [&str; 14] = [
    "and", "or", "not", "like", "in", "is", "null", "exists", "true", "false", "escape", "set",
    "remove", "between",
];

/// What is wrong with a condition or an action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SqlError {
    #[error("a condition or action must have at most {LENGTH_MAX} characters, found {0}")]
    TooLong(usize),
    #[error("`{0}` is not expected here")]
    Unexpected(String),
    #[error("it ends too early")]
    Incomplete,
    #[error("a string or a quoted name has no end")]
    Unclosed,
    #[error("`sys.{0}` is not a property that rules can use")]
    UnknownSystemProperty(String),
    #[error("it nests deeper than {DEPTH_MAX}")]
    TooDeep,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name or a keyword.
    Word(String),
    /// A name in quotes, which is never a keyword.
    Quoted(String),
    Value(PropertyValue),
    Symbol(&'static str),
}

impl Token {
    fn text(&self) -> String {
        match self {
            Self::Word(text) | Self::Quoted(text) => text.clone(),
            Self::Value(value) => format!("{value:?}"),
            Self::Symbol(symbol) => (*symbol).to_owned(),
        }
    }

    fn is_word(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

const SYMBOLS: [&str; 16] =
    ["<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", ";", ".", "+", "-", "*", "/"];

fn tokens(text: &str) -> Result<Vec<Token>, SqlError> {
    let length = text.chars().count();
    if length > LENGTH_MAX {
        return Err(SqlError::TooLong(length));
    }
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '\'' => quoted(rest, '\'').map(|(text, after)| (Token::Value(text.into()), after))?,
            '"' => quoted(rest, '"').map(|(text, after)| (Token::Quoted(text), after))?,
            '[' => quoted(rest, ']').map(|(text, after)| (Token::Quoted(text), after))?,
            '0'..='9' => number(rest)?,
            _ if first.is_alphabetic() || first == '_' => word(rest),
            _ => symbol(rest)?,
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Ok(tokens)
}

/// Text up to `end`, which stands for itself when it is doubled.
fn quoted(text: &str, end: char) -> Result<(String, &str), SqlError> {
    let mut content = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((_, character)) = characters.next() {
        if character != end {
            content.push(character);
        } else if characters.next_if(|(_, next)| *next == end).is_some() {
            content.push(end);
        } else {
            let after = characters.peek().and_then(|(index, _)| text.get(*index..));
            return Ok((content, after.unwrap_or_default()));
        }
    }
    Err(SqlError::Unclosed)
}

fn number(text: &str) -> Result<(Token, &str), SqlError> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let integer = digits.parse().map(PropertyValue::Integer).ok();
    let value = integer.or_else(|| digits.parse().map(PropertyValue::Real).ok());
    value
        .map(|value| (Token::Value(value), rest))
        .ok_or_else(|| SqlError::Unexpected(digits.to_owned()))
}

fn word(text: &str) -> (Token, &str) {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '-' | '@' | '#');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (Token::Word(word.to_owned()), rest)
}

fn symbol(text: &str) -> Result<(Token, &str), SqlError> {
    let found = SYMBOLS.into_iter().find_map(|symbol| Some((symbol, text.strip_prefix(symbol)?)));
    let unexpected = || SqlError::Unexpected(text.chars().take(1).collect());
    found.map(|(symbol, rest)| (Token::Symbol(symbol), rest)).ok_or_else(unexpected)
}

/// The name of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Name {
    System(SystemProperty),
    User(String),
}

impl Name {
    fn value(&self, message: &impl Properties) -> Option<PropertyValue> {
        match self {
            Self::System(property) => message.system(*property),
            Self::User(name) => message.user(name),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn of(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "=" => Self::Equal,
            "<>" | "!=" => Self::NotEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    /// Null where there is no result: for other types, on overflow, and on division by zero.
    fn apply(self, left: &PropertyValue, right: &PropertyValue) -> Option<PropertyValue> {
        match (self, left, right) {
            (Self::Add, PropertyValue::Text(left), PropertyValue::Text(right)) => {
                Some(PropertyValue::Text(format!("{left}{right}")))
            }
            (_, PropertyValue::Integer(left), PropertyValue::Integer(right)) => {
                let result = match self {
                    Self::Add => left.checked_add(*right),
                    Self::Subtract => left.checked_sub(*right),
                    Self::Multiply => left.checked_mul(*right),
                    Self::Divide => left.checked_div(*right),
                };
                result.map(PropertyValue::Integer)
            }
            (_, left, right) => {
                let (left, right) = (left.as_real()?, right.as_real()?);
                Some(PropertyValue::Real(match self {
                    Self::Add => left + right,
                    Self::Subtract => left - right,
                    Self::Multiply => left * right,
                    Self::Divide => left / right,
                }))
            }
        }
    }
}

/// A condition, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Literal(Option<PropertyValue>),
    Property(Name),
    Exists(Name),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Compare(Comparison, Box<Self>, Box<Self>),
    Calculate(Operator, Box<Self>, Box<Self>),
    Like { value: Box<Self>, pattern: Box<Self>, escape: Option<char> },
    In { value: Box<Self>, choices: Vec<Self> },
    IsNull(Box<Self>),
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self, SqlError> {
        let mut parser = Parser::new(text)?;
        let condition = parser.condition()?;
        parser.end()?;
        Ok(condition)
    }

    /// Null is not true.
    pub(super) fn is_true(&self, message: &impl Properties) -> bool {
        self.truth(message) == Some(true)
    }

    fn truth(&self, message: &impl Properties) -> Option<bool> {
        match self.value(message) {
            Some(PropertyValue::Boolean(truth)) => Some(truth),
            Some(_) | None => None,
        }
    }

    fn value(&self, message: &impl Properties) -> Option<PropertyValue> {
        let truth = match self {
            Self::Literal(value) => return value.clone(),
            Self::Property(name) => return name.value(message),
            Self::Calculate(operator, left, right) => {
                return operator.apply(&left.value(message)?, &right.value(message)?);
            }
            Self::Exists(name) => Some(name.value(message).is_some()),
            Self::IsNull(value) => Some(value.value(message).is_none()),
            Self::Not(condition) => condition.truth(message).map(|truth| !truth),
            Self::And(left, right) => both(left.truth(message), right.truth(message)),
            Self::Or(left, right) => either(left.truth(message), right.truth(message)),
            Self::Compare(comparison, left, right) => left
                .value(message)?
                .compare(&right.value(message)?)
                .map(|ordering| comparison.holds(ordering)),
            Self::Like { value, pattern, escape } => {
                let (value, pattern) = (value.value(message)?, pattern.value(message)?);
                let pattern = pattern.as_text().filter(|pattern| pattern.len() <= PATTERN_MAX)?;
                Some(is_like(value.as_text()?, pattern, *escape))
            }
            Self::In { value, choices } => {
                let value = value.value(message)?;
                let mut found = Some(false);
                for choice in choices {
                    let same = |choice: PropertyValue| choice.compare(&value).map(Ordering::is_eq);
                    found = either(found, choice.value(message).and_then(same));
                }
                found
            }
        };
        truth.map(PropertyValue::Boolean)
    }
}

/// AND with null: false wins, then null.
fn both(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        (None, _) | (_, None) => None,
    }
}

/// OR with null: true wins, then null.
fn either(left: Option<bool>, right: Option<bool>) -> Option<bool> {
    match (left, right) {
        (Some(true), _) | (_, Some(true)) => Some(true),
        (Some(false), Some(false)) => Some(false),
        (None, _) | (_, None) => None,
    }
}

/// `%` stands for any text and `_` for one character. Going back only to the last `%` keeps the
/// time within the product of the two lengths.
fn is_like(text: &str, pattern: &str, escape: Option<char>) -> bool {
    let text: Vec<char> = text.chars().collect();
    let pattern = wildcards(pattern, escape);
    let (mut at, mut next) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(character) = text.get(at) {
        match pattern.get(next) {
            Some(Wildcard::Any) => {
                retry = Some((at, next));
                next += 1;
            }
            Some(Wildcard::One) => (at, next) = (at + 1, next + 1),
            Some(Wildcard::Exactly(wanted)) if wanted == character => {
                (at, next) = (at + 1, next + 1);
            }
            Some(Wildcard::Exactly(_)) | None => {
                let Some((from, any)) = retry else {
                    return false;
                };
                retry = Some((from + 1, any));
                (at, next) = (from + 1, any + 1);
            }
        }
    }
    pattern.iter().skip(next).all(|wildcard| *wildcard == Wildcard::Any)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    Any,
    One,
    Exactly(char),
}

fn wildcards(pattern: &str, escape: Option<char>) -> Vec<Wildcard> {
    let mut characters = pattern.chars();
    let mut wildcards = Vec::new();
    while let Some(character) = characters.next() {
        wildcards.push(match character {
            _ if Some(character) == escape => {
                Wildcard::Exactly(characters.next().unwrap_or(character))
            }
            '%' => Wildcard::Any,
            '_' => Wildcard::One,
            _ => Wildcard::Exactly(character),
        });
    }
    wildcards
}

/// What a rule changes in its copy of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Action {
    statements: Vec<(Name, Expression)>,
}

impl Action {
    pub(super) fn parse(text: &str) -> Result<Self, SqlError> {
        let mut parser = Parser::new(text)?;
        let mut statements = Vec::new();
        loop {
            statements.push(parser.statement()?);
            while parser.takes_symbol(";") {}
            if parser.tokens.peek().is_none() {
                return Ok(Self { statements });
            }
        }
    }

    /// The values are those of the message as it was sent.
    pub(super) fn changes(&self, message: &impl Properties, rule: &str) -> Vec<Change> {
        let changes = self.statements.iter().map(|(name, value)| match name {
            Name::System(property) => {
                let text =
                    value.value(message).and_then(|value| value.as_text().map(str::to_owned));
                Change::System(*property, text)
            }
            Name::User(name) => Change::User(name.clone(), value.value(message)),
        });
        let named = Change::User("RuleName".to_owned(), Some(rule.into()));
        changes.chain([named]).collect()
    }
}

struct Parser {
    tokens: Peekable<IntoIter<Token>>,
    depth: u32,
}

impl Parser {
    fn new(text: &str) -> Result<Self, SqlError> {
        Ok(Self { tokens: tokens(text)?.into_iter().peekable(), depth: 0 })
    }

    fn end(&mut self) -> Result<(), SqlError> {
        self.tokens.next().map_or(Ok(()), |token| Err(SqlError::Unexpected(token.text())))
    }

    fn takes_word(&mut self, keyword: &str) -> bool {
        self.tokens.next_if(|token| token.is_word(keyword)).is_some()
    }

    fn takes_symbol(&mut self, symbol: &str) -> bool {
        self.tokens
            .next_if(|token| matches!(token, Token::Symbol(found) if *found == symbol))
            .is_some()
    }

    fn expect_symbol(&mut self, symbol: &str) -> Result<(), SqlError> {
        if self.takes_symbol(symbol) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&mut self) -> SqlError {
        self.tokens.next().map_or(SqlError::Incomplete, |token| SqlError::Unexpected(token.text()))
    }

    fn nested<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        if self.depth >= DEPTH_MAX {
            return Err(SqlError::TooDeep);
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// `SET name = value` or `REMOVE name`.
    fn statement(&mut self) -> Result<(Name, Expression), SqlError> {
        if self.takes_word("remove") {
            return Ok((self.name()?, Expression::Literal(None)));
        }
        if !self.takes_word("set") {
            return Err(self.unexpected());
        }
        let name = self.name()?;
        self.expect_symbol("=")?;
        Ok((name, self.sum()?))
    }

    fn condition(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.conjunction()?;
        while self.takes_word("or") {
            left = Expression::Or(Box::new(left), Box::new(self.conjunction()?));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.negation()?;
        while self.takes_word("and") {
            left = Expression::And(Box::new(left), Box::new(self.negation()?));
        }
        Ok(left)
    }

    fn negation(&mut self) -> Result<Expression, SqlError> {
        if self.takes_word("not") {
            return Ok(negated(self.nested(Self::negation)?));
        }
        self.predicate()
    }

    fn predicate(&mut self) -> Result<Expression, SqlError> {
        if self.takes_word("exists") {
            self.expect_symbol("(")?;
            let name = self.name()?;
            self.expect_symbol(")")?;
            return Ok(Expression::Exists(name));
        }
        let left = self.sum()?;
        if self.takes_word("is") {
            let not = self.takes_word("not");
            if !self.takes_word("null") {
                return Err(self.unexpected());
            }
            return Ok(negated_if(not, Expression::IsNull(Box::new(left))));
        }
        let not = self.takes_word("not");
        if self.takes_word("like") {
            return Ok(negated_if(not, self.like(left)?));
        }
        if self.takes_word("in") {
            return Ok(negated_if(not, self.choice(left)?));
        }
        if not {
            return Err(self.unexpected());
        }
        self.comparison(left)
    }

    fn comparison(&mut self, left: Expression) -> Result<Expression, SqlError> {
        let comparison = match self.tokens.peek() {
            Some(Token::Symbol(symbol)) => Comparison::of(symbol),
            Some(Token::Word(_) | Token::Quoted(_) | Token::Value(_)) | None => None,
        };
        let Some(comparison) = comparison else {
            return Ok(left);
        };
        self.tokens.next();
        Ok(Expression::Compare(comparison, Box::new(left), Box::new(self.sum()?)))
    }

    fn like(&mut self, value: Expression) -> Result<Expression, SqlError> {
        let pattern = Box::new(self.sum()?);
        let escape = if self.takes_word("escape") {
            match self.tokens.next() {
                Some(Token::Value(PropertyValue::Text(text))) => text.chars().next(),
                Some(token) => return Err(SqlError::Unexpected(token.text())),
                None => return Err(SqlError::Incomplete),
            }
        } else {
            None
        };
        Ok(Expression::Like { value: Box::new(value), pattern, escape })
    }

    fn choice(&mut self, value: Expression) -> Result<Expression, SqlError> {
        self.expect_symbol("(")?;
        let mut choices = vec![self.sum()?];
        while self.takes_symbol(",") {
            choices.push(self.sum()?);
        }
        self.expect_symbol(")")?;
        Ok(Expression::In { value: Box::new(value), choices })
    }

    fn sum(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.product()?;
        loop {
            let operator = match () {
                () if self.takes_symbol("+") => Operator::Add,
                () if self.takes_symbol("-") => Operator::Subtract,
                () => return Ok(left),
            };
            left = Expression::Calculate(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expression, SqlError> {
        let mut left = self.primary()?;
        loop {
            let operator = match () {
                () if self.takes_symbol("*") => Operator::Multiply,
                () if self.takes_symbol("/") => Operator::Divide,
                () => return Ok(left),
            };
            left = Expression::Calculate(operator, Box::new(left), Box::new(self.primary()?));
        }
    }

    fn primary(&mut self) -> Result<Expression, SqlError> {
        if self.takes_symbol("(") {
            let inner = self.nested(Self::condition)?;
            self.expect_symbol(")")?;
            return Ok(inner);
        }
        if self.takes_symbol("-") {
            let zero = Box::new(Expression::Literal(Some(PropertyValue::Integer(0))));
            let value = self.nested(Self::primary)?;
            return Ok(Expression::Calculate(Operator::Subtract, zero, Box::new(value)));
        }
        for (keyword, value) in [("null", None), ("true", Some(true)), ("false", Some(false))] {
            if self.takes_word(keyword) {
                return Ok(Expression::Literal(value.map(PropertyValue::Boolean)));
            }
        }
        match self.tokens.next_if(|token| matches!(token, Token::Value(_))) {
            Some(Token::Value(value)) => Ok(Expression::Literal(Some(value))),
            Some(_) | None => self.name().map(Expression::Property),
        }
    }

    /// `name`, `user.name` or `sys.name`.
    fn name(&mut self) -> Result<Name, SqlError> {
        let first = self.identifier()?;
        if !self.takes_symbol(".") {
            return Ok(Name::User(first));
        }
        let second = self.identifier()?;
        match first.to_ascii_lowercase().as_str() {
            "user" => Ok(Name::User(second)),
            "sys" => SystemProperty::named(&second)
                .map(Name::System)
                .ok_or(SqlError::UnknownSystemProperty(second)),
            _ => Err(SqlError::Unexpected(format!("{first}."))),
        }
    }

    fn identifier(&mut self) -> Result<String, SqlError> {
        match self.tokens.next() {
            Some(Token::Quoted(name)) => Ok(name),
            Some(Token::Word(word))
                if !RESERVED.iter().any(|known| word.eq_ignore_ascii_case(known)) =>
            {
                Ok(word)
            }
            Some(token) => Err(SqlError::Unexpected(token.text())),
            None => Err(SqlError::Incomplete),
        }
    }
}

fn negated(condition: Expression) -> Expression {
    Expression::Not(Box::new(condition))
}

fn negated_if(not: bool, condition: Expression) -> Expression {
    if not { negated(condition) } else { condition }
}
