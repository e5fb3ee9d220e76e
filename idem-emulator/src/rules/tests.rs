//! Conditions and actions, on messages made of plain values.

use super::*;

#[derive(Default)]
struct Sample {
    user: Vec<(&'static str, PropertyValue)>,
}

impl Properties for Sample {
    fn system(&self, property: SystemProperty) -> Option<PropertyValue> {
        (property == SystemProperty::Subject).then(|| "order".into())
    }

    fn user(&self, name: &str) -> Option<PropertyValue> {
        self.user.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
    }
}

fn sample() -> Sample {
    Sample {
        user: vec![
            ("colour", "red".into()),
            ("count", 5.into()),
            ("weight", 2.5.into()),
            ("urgent", true.into()),
            ("two words", "x".into()),
        ],
    }
}

fn truth(condition: &str) -> bool {
    Expression::parse(condition).expect(condition).is_true(&sample())
}

#[test]
fn conditions_that_are_true() {
    for condition in [
        "1=1",
        "colour = 'red'",
        "user.colour = 'red' AND sys.Label = 'order'",
        "sys.subject <> 'invoice'",
        "count > 4 and count <= 5 and count != 6",
        "count = 5.0",
        "count + 1 = 2 * 3",
        "-count < 0",
        "weight / 2 > 1.2",
        "count / 2 = 2",
        "urgent",
        "urgent = TRUE",
        "NOT (colour = 'blue' OR count < 0)",
        "colour LIKE 'r%'",
        "colour LIKE '_e_'",
        "colour NOT LIKE 'b%'",
        "'100%' LIKE '100!%' ESCAPE '!'",
        "'aXbXc' LIKE 'a%X%c'",
        "colour IN ('blue', 'red')",
        "count NOT IN (1, 2)",
        "missing IS NULL",
        "colour IS NOT NULL",
        "EXISTS(colour) AND NOT EXISTS(missing)",
        "[two words] = 'x' AND \"two words\" = 'x'",
        "missing = 1 OR colour = 'red'",
        "'it''s' = 'it''s'",
        "colour + '-' + colour = 'red-red'",
    ] {
        assert!(truth(condition), "{condition}");
    }
}

#[test]
fn conditions_that_are_not() {
    for condition in [
        "1=0",
        "colour = 'Red'",
        "colour = 5",
        "colour > 1",
        "missing = 1",
        "NOT missing = 1",
        "missing <> 1",
        "missing = NULL",
        "missing LIKE '%'",
        "missing NOT IN (1)",
        "count NOT IN (1, NULL)",
        "missing = 1 AND colour = 'red'",
        "colour LIKE 're'",
        "colour",
        "count / 0 = 0",
        "9223372036854775807 + 1 > 0",
    ] {
        assert!(!truth(condition), "{condition}");
    }
}

#[test]
fn malformed_conditions_say_what_is_wrong() {
    let deep = format!("{}1=1{}", "(".repeat(100), ")".repeat(100));
    let long = format!("colour = '{}'", "x".repeat(1024));
    let cases = [
        ("", SqlError::Incomplete),
        ("colour =", SqlError::Incomplete),
        ("colour = 'red", SqlError::Unclosed),
        ("colour = 'red' colour", SqlError::Unexpected("colour".to_owned())),
        ("colour IN ()", SqlError::Unexpected(")".to_owned())),
        ("colour NOT 5", SqlError::Unexpected("Integer(5)".to_owned())),
        ("colour = §", SqlError::Unexpected("§".to_owned())),
        ("5x = 1", SqlError::Unexpected("5x".to_owned())),
        ("sys.Nothing = 1", SqlError::UnknownSystemProperty("Nothing".to_owned())),
        (&deep, SqlError::TooDeep),
        (&long, SqlError::TooLong(1035)),
    ];
    for (text, expected) in cases {
        assert_eq!(Expression::parse(text), Err(expected), "{text}");
    }
    assert!(Action::parse("SET colour").is_err() && Action::parse("DROP colour").is_err());
}

#[test]
fn correlation_filters_want_everything_of_the_same_type() {
    let matches = |filter: CorrelationFilter| filter.matches(&sample());
    assert!(matches(CorrelationFilter::new()));
    assert!(matches(CorrelationFilter::new().subject("order").property("count", 5)));
    assert!(!matches(CorrelationFilter::new().subject("Order")));
    assert!(!matches(CorrelationFilter::new().subject("order").message_id("m")));
    assert!(!matches(CorrelationFilter::new().property("count", "5")));
    assert!(!matches(CorrelationFilter::new().property("missing", 5)));
}

#[test]
fn rules_without_action_share_a_copy_and_each_action_has_its_own() {
    let rules = vec![
        Rule::new("a", Filter::sql("count = 5")),
        Rule::new("b", CorrelationFilter::new().subject("order")),
        Rule::new("c", Filter::True)
            .action("SET colour = 'blue'; REMOVE count; SET sys.To = colour;"),
        Rule::new("d", Filter::False).action("SET colour = 'green'"),
    ];
    let copies = Rules::compile(rules).unwrap().copies(&sample());
    let changed = vec![
        Change::User("colour".to_owned(), Some("blue".into())),
        Change::User("count".to_owned(), None),
        Change::System(SystemProperty::To, Some("red".to_owned())),
        Change::User("RuleName".to_owned(), Some("c".into())),
    ];
    assert_eq!(copies, [Vec::new(), changed]);
}

#[test]
fn rules_are_added_and_removed_by_name() {
    let mut rules = Rules::compile(Vec::new()).unwrap();
    assert_eq!(rules.copies(&sample()).len(), 1, "the default rule takes everything");
    let again = rules.add(Rule::new("$default", Filter::True));
    assert_eq!(again, Err(RuleError::Exists("$default".to_owned())));
    assert!(rules.remove(DEFAULT_RULE) && !rules.remove(DEFAULT_RULE));
    assert!(rules.copies(&sample()).is_empty());
    assert!(matches!(rules.add(Rule::new("", Filter::True)), Err(RuleError::Name(_))));
    let wrong = rules.add(Rule::new("x", Filter::sql("=")));
    assert!(matches!(wrong, Err(RuleError::Sql { rule, .. }) if rule == "x"));
}

#[test]
fn arbitrary_text_never_panics() {
    let parts = ["(", ")", "'", "\"", "[", "]", "a", "sys.", "=", "NOT ", "IN", "é", "5", ",", "%"];
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(parts[usize::from(state.to_be_bytes()[0]) % parts.len()]);
        }
        if let Ok(expression) = Expression::parse(&text) {
            expression.is_true(&sample());
        }
        drop(Action::parse(&text));
    }
}

#[test]
fn a_pattern_that_is_too_long_matches_nothing() {
    let is_true = |condition: &str, pattern: String| {
        let message = Sample { user: vec![("text", "x".into()), ("pattern", pattern.into())] };
        Expression::parse(condition).unwrap().is_true(&message)
    };
    assert!(is_true("text LIKE pattern", "%".repeat(1024)));
    assert!(!is_true("text LIKE pattern", "%".repeat(1025)));
    assert!(!is_true("text NOT LIKE pattern", "%".repeat(1025)), "it is null");
}
