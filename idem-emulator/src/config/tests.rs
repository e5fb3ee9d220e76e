use super::*;
use crate::broker::{Broker, Kind};
use crate::clock::Clock;
use crate::events::Events;
use std::time::Duration;

/// Every property that there is, each with a value of its own.
const FULL: &str = r#"{
  "UserConfig": {
    "Namespaces": [{
      "Name": "sbemulatorns",
      "Queues": [
        {"Name": "plain"},
        {"Name": "orders", "Properties": {
          "DeadLetteringOnMessageExpiration": true,
          "DefaultMessageTimeToLive": "PT2H",
          "DuplicateDetectionHistoryTimeWindow": "PT5M",
          "ForwardDeadLetteredMessagesTo": "Plain",
          "ForwardTo": "",
          "LockDuration": "PT30S",
          "MaxDeliveryCount": 5,
          "RequiresDuplicateDetection": true,
          "RequiresSession": true
        }}
      ],
      "Topics": [{
        "Name": "news",
        "Properties": {
          "DefaultMessageTimeToLive": "PT3H",
          "DuplicateDetectionHistoryTimeWindow": "PT1M",
          "RequiresDuplicateDetection": true
        },
        "Subscriptions": [
          {"Name": "all"},
          {"Name": "some", "Properties": {
            "DeadLetteringOnMessageExpiration": true,
            "DefaultMessageTimeToLive": "PT4H",
            "LockDuration": "PT2M",
            "MaxDeliveryCount": 7,
            "ForwardDeadLetteredMessagesTo": "",
            "ForwardTo": "plain",
            "RequiresSession": false
          }, "Rules": [
            {"Name": "sql", "Properties": {
              "FilterType": "Sql",
              "SqlFilter": {"SqlExpression": "colour = 'red'"},
              "Action": {"SqlExpression": "SET sys.To = 'Entity'"}
            }},
            {"Name": "correlation", "Properties": {
              "FilterType": "Correlation",
              "CorrelationFilter": {
                "ContentType": "application/json", "CorrelationId": "c", "Label": "l",
                "MessageId": "m", "ReplyTo": "r", "ReplyToSessionId": "rs", "SessionId": "s",
                "To": "t", "Properties": {"a": "b", "n": 1, "f": 0.5, "yes": true}
              }
            }}
          ]}
        ]
      }]
    }],
    "Logging": {"Type": "File"}
  }
}"#;

fn error_of(json: &str) -> String {
    topology(json.as_bytes()).expect_err(json).to_string()
}

/// A configuration whose first queue has these properties.
fn with_properties(properties: &str) -> String {
    format!(
        r#"{{"UserConfig": {{"Namespaces": [{{"Name": "n", "Queues":
            [{{"Name": "q", "Properties": {properties}}}]}}]}}}}"#
    )
}

#[test]
fn every_property_arrives() {
    let Topology { queues, topics } = topology(FULL.as_bytes()).unwrap();
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let [plain, orders] = &queues[..] else { panic!("{queues:?}") };
    let expected = QueueOptions::new("plain")
        .lock_duration(Duration::from_secs(60))
        .max_delivery_count(3)
        .default_time_to_live(hours(1))
        .assign_message_ids(true);
    assert_eq!(*plain, expected);
    let expected = QueueOptions::new("orders")
        .lock_duration(Duration::from_secs(30))
        .max_delivery_count(5)
        .default_time_to_live(hours(2))
        .dead_letter_expired(true)
        .requires_session(true)
        .duplicate_detection(Duration::from_secs(300))
        .forward_dead_lettered_messages_to("Plain")
        .assign_message_ids(true);
    assert_eq!(*orders, expected);

    let [news] = &topics[..] else { panic!("{topics:?}") };
    assert_eq!((news.name.as_str(), news.settings.default_time_to_live), ("news", Some(hours(3))));
    assert_eq!(news.settings.duplicate_detection, Some(Duration::from_secs(60)));
    let [all, some] = &news.subscriptions[..] else { panic!("{news:?}") };
    assert_eq!((all.name.as_str(), all.settings.max_delivery_count), ("all", 3));
    assert_eq!((all.settings.lock_duration, all.rules.len()), (Duration::from_secs(60), 0));
    assert_eq!(some.settings.forward_to.as_deref(), Some("plain"));
    assert_eq!((some.settings.max_delivery_count, some.settings.dead_letter_expired), (7, true));
    assert_eq!(some.settings.default_time_to_live, Some(hours(4)));
    let filter = crate::CorrelationFilter::new()
        .content_type("application/json")
        .correlation_id("c")
        .subject("l")
        .message_id("m")
        .reply_to("r")
        .reply_to_session_id("rs")
        .session_id("s")
        .to("t")
        .property("a", "b")
        .property("f", 0.5)
        .property("n", 1)
        .property("yes", true);
    let expected = [
        crate::Rule::new("sql", crate::Filter::sql("colour = 'red'"))
            .action("SET sys.To = 'Entity'"),
        crate::Rule::new("correlation", filter),
    ];
    assert_eq!(some.rules, expected);
}

#[test]
fn what_is_read_can_be_started() {
    let clock = Clock::manual();
    let events = Events::new(clock.clone(), 1);
    let with_mark = format!("\u{feff}{FULL}");
    let broker = Broker::new(topology(with_mark.as_bytes()).unwrap(), clock, events).unwrap();
    let kinds: Vec<_> = broker.entities().iter().map(|entity| entity.kind()).collect();
    let expected = [Kind::Topic, Kind::Subscription, Kind::Subscription, Kind::Queue, Kind::Queue];
    assert_eq!(kinds, expected);
}

#[test]
fn a_wrong_value_is_refused_with_its_path_and_range() {
    let cases = [
        (r#"{"LockDuration": "PT6M"}"#, "LockDuration`: must be", "1 ms to 5 min"),
        (r#"{"LockDuration": "60"}"#, "LockDuration`: must be", "found `60`"),
        (r#"{"LockDuration": 60}"#, "LockDuration`: invalid type", "expected a string"),
        (r#"{"MaxDeliveryCount": 2001}"#, "MaxDeliveryCount`: must be", "1 to 2000, found 2001"),
        (r#"{"MaxDeliveryCount": -1}"#, "MaxDeliveryCount`: must be", "found -1"),
        (r#"{"DefaultMessageTimeToLive": "PT0S"}"#, "DefaultMessageTimeToLive`", "at least 1 ms"),
        (
            r#"{"DuplicateDetectionHistoryTimeWindow": "P8D"}"#,
            "DuplicateDetectionHistoryTimeWindow`",
            "1 ms to 7 days",
        ),
        (r#"{"RequiresSession": "yes"}"#, "RequiresSession`", "expected a boolean"),
        (r#"{"ForwardTo": "nowhere"}"#, "ForwardTo`", "another queue or a topic, found `nowhere`"),
        (r#"{"ForwardTo": "Q"}"#, "ForwardTo`", "another queue or a topic, found `Q`"),
        (
            r#"{"ForwardTo": "x", "RequiresSession": true}"#,
            "ForwardTo`",
            "must be empty where `RequiresSession` is `true`, found `x`",
        ),
        (r#"{"Colour": 1}"#, "Colour`: unknown field", "`LockDuration`, `MaxDeliveryCount`"),
    ];
    for (properties, place, text) in cases {
        let error = error_of(&with_properties(properties));
        let path = "`UserConfig.Namespaces[0].Queues[0].Properties.";
        assert!(error.starts_with(&format!("{path}{place}")), "{error}");
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn mistakes_elsewhere_are_refused_with_their_path() {
    let broken = |from: &str, to: &str| {
        assert!(FULL.contains(from), "{from}");
        error_of(&FULL.replacen(from, to, 1))
    };
    let subscription = "UserConfig.Namespaces[0].Topics[0].Subscriptions";
    let cases = [
        (broken(r#""Name": "orders""#, r#""Name": "PLAIN""#), "Queues[1].Name`", "already"),
        (broken(r#""Name": "orders""#, r#""Name": "a$""#), "Queues[1].Name`", "found `$`"),
        (broken(r#""Name": "news""#, r#""Name": "plain""#), "Topics[0].Name`", "already"),
        (broken(r#""Name": "some""#, r#""Name": "all""#), "Subscriptions[1].Name`", "already"),
        (broken(r#""Name": "some""#, r#""Name": "a/b""#), "Subscriptions[1].Name`", "1 to 50"),
        (broken("colour =", "colour = ="), "Subscriptions[1].Rules[0]`", "rule `sql`"),
        (broken(r#""correlation""#, r#""sql""#), "Subscriptions[1].Rules`", "exists already"),
        (broken(r#""Sql","#, r#""Correlation","#), "Rules[0].Properties`", "`CorrelationFilter`"),
        (broken(r#""Sql","#, r#""True","#), "FilterType`", "`Correlation` or `Sql`"),
        (broken(r#""n": 1"#, r#""n": [1]"#), "Properties.n`", "a string, a number"),
        (broken("File", "Syslog"), "UserConfig.Logging.Type`", "`File` or `Console`"),
        (broken(r#""Queues""#, r#""queues""#), "Namespaces[0].queues`", "`Queues`"),
    ];
    for (error, place, text) in &cases {
        assert!(error.contains(place) && error.contains(text), "{error}");
    }
    assert!(cases[5].0.starts_with(&format!("`{subscription}[1]")), "{}", cases[5].0);
}

#[test]
fn there_is_one_namespace() {
    for (namespaces, found) in [("[]", "found 0"), (r#"[{"Name": "a"}, {"Name": "b"}]"#, "found 2")]
    {
        let error = error_of(&format!(r#"{{"UserConfig": {{"Namespaces": {namespaces}}}}}"#));
        assert!(error.starts_with("`UserConfig.Namespaces`: must be one"), "{error}");
        assert!(error.contains(found), "{error}");
    }
}

#[test]
fn what_is_no_json_is_refused_with_its_line() {
    assert!(error_of("").contains("line 1"));
    let error = error_of("{\n \"UserConfig\" 3}");
    assert!(error.contains("line 2"), "{error}");
    let error = error_of(&format!("{FULL} x"));
    assert!(error.contains("trailing"), "{error}");
}
