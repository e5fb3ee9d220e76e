//! Topics, subscriptions, rules and forwarding.

use azservicebus::administration::{
    CorrelationRuleFilter, RuleFilter, SqlRuleAction, SqlRuleFilter, TrueRuleFilter,
};
use azservicebus::{ServiceBusMessage, ServiceBusReceiver, ServiceBusReceiverOptions};
use idem_emulator::{
    Emulator, EventKind, Filter, QueueOptions, Rule, SubscriptionOptions, TopicOptions,
};

use crate::support::*;

fn coloured(id: &str, colour: &str) -> ServiceBusMessage {
    let mut message = message(id);
    set(&mut message, "colour", colour);
    message
}

fn set(message: &mut ServiceBusMessage, name: &str, value: &str) {
    let properties = message.application_properties_mut().get_or_insert_default();
    properties.0.insert(name.to_owned(), value.to_owned().into());
}

async fn send_to(client: &mut Client, entity: &str, message: ServiceBusMessage) {
    let mut sender = client.create_sender(entity, Default::default()).await.unwrap();
    sender.send_message(message).await.unwrap();
    sender.dispose().await.unwrap();
}

async fn subscriber(client: &mut Client, subscription: &str) -> ServiceBusReceiver {
    let options = ServiceBusReceiverOptions::default();
    client.create_receiver_for_subscription("news", subscription, options).await.unwrap()
}

fn with_topic(subscriptions: Vec<SubscriptionOptions>, test: impl AsyncFnOnce(&Emulator)) {
    let topic =
        subscriptions.into_iter().fold(TopicOptions::new("news"), TopicOptions::subscription);
    run(Emulator::builder().topic(topic), test);
}

#[test]
fn subscriptions_receive_what_their_rules_take() {
    let red = SubscriptionOptions::new("red").rule(Rule::new("red", Filter::sql("colour = 'red'")));
    with_topic(vec![SubscriptionOptions::new("all"), red], async |emulator| {
        let mut client = connect(emulator).await;
        send_to(&mut client, "news", coloured("m-1", "blue")).await;
        send_to(&mut client, "news", coloured("m-2", "red")).await;
        let mut receiver = subscriber(&mut client, "red").await;
        let received = next(&mut receiver).await;
        assert_eq!(id(&received), "m-2");
        receiver.complete_message(&received).await.unwrap();
        event_of(emulator, "m-2", EventKind::Completed).await;
        assert_eq!(emulator.counts("news/subscriptions/all").unwrap().active, 2);
        assert_eq!(emulator.counts("news/subscriptions/red").unwrap().active, 0);
        client.dispose().await.unwrap();
    });
}

#[test]
fn an_action_shows_in_the_received_message() {
    let rule = Rule::new("paint", Filter::True).action("SET colour = 'blue'; REMOVE shape");
    with_topic(vec![SubscriptionOptions::new("s").rule(rule)], async |emulator| {
        let mut client = connect(emulator).await;
        let mut sent = coloured("m-1", "red");
        set(&mut sent, "shape", "round");
        send_to(&mut client, "news", sent).await;
        let mut receiver = subscriber(&mut client, "s").await;
        let received = next(&mut receiver).await;
        let properties = received.application_properties().unwrap();
        let text = |name: &str| properties.0.get(name).map(|value| format!("{value:?}"));
        assert!(text("colour").is_some_and(|text| text.contains("blue")), "{properties:?}");
        assert!(text("RuleName").is_some_and(|text| text.contains("paint")), "{properties:?}");
        assert_eq!(text("shape"), None);
        assert_eq!(received.body().unwrap(), b"body of m-1");
        client.dispose().await.unwrap();
    });
}

#[test]
fn rules_are_managed_by_the_client() {
    with_topic(vec![SubscriptionOptions::new("s")], async |emulator| {
        let mut client = connect_without_retries(emulator).await;
        let mut rules = client.create_rule_manager("news", "s").await.unwrap();
        let defaults = rules.get_rules().await.unwrap();
        assert_eq!(defaults.len(), 1);
        assert_eq!(defaults[0].name, "$Default");
        assert!(matches!(defaults[0].filters, RuleFilter::True(_)));
        rules.delete_rule("$Default").await.unwrap();

        let filter = SqlRuleFilter::new("colour = 'red'");
        let action = SqlRuleAction::new("SET colour = 'blue'");
        rules.create_rule("sql", (filter, action)).await.unwrap();
        let correlation = CorrelationRuleFilter::builder().subject("invoice").build();
        rules.create_rule("correlation", correlation).await.unwrap();
        rules.create_rule("all", TrueRuleFilter).await.unwrap();
        let again = rules.create_rule("all", TrueRuleFilter).await;
        assert!(format!("{again:?}").contains("409"), "{again:?}");
        let listed = rules.get_rules().await.unwrap();
        let names: Vec<_> = listed.iter().map(|rule| rule.name.as_str()).collect();
        assert_eq!(names, ["sql", "correlation", "all"]);
        assert!(format!("{listed:?}").contains("invoice"), "{listed:?}");
        rules.delete_rule("all").await.unwrap();
        let unknown = format!("{:?}", rules.delete_rule("all").await.unwrap_err());
        // The JavaScript client knows what was not found by this text alone.
        assert!(unknown.contains("The messaging entity 'news/"), "{unknown}");
        assert!(unknown.contains("/Rules/all' could not be found"), "{unknown}");
        rules.dispose().await.unwrap();

        send_to(&mut client, "news", coloured("m-1", "red")).await;
        send_to(&mut client, "news", coloured("m-2", "green")).await;
        let mut invoice = message("m-3");
        invoice.set_subject("invoice".to_owned());
        send_to(&mut client, "news", invoice).await;
        let messages = emulator.peek("news/subscriptions/s").unwrap();
        let ids: Vec<_> =
            messages.iter().map(|message| message.message_id.as_deref().unwrap()).collect();
        assert_eq!(ids, ["m-1", "m-3"]);
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_forwarded_message_is_received_where_it_went() {
    let builder = Emulator::builder()
        .queue(QueueOptions::new("in").forward_to("orders"))
        .queue(QueueOptions::new("orders").forward_dead_lettered_messages_to("dead"))
        .queue(QueueOptions::new("dead"));
    run(builder, async |emulator| {
        let mut client = connect(emulator).await;
        send_to(&mut client, "in", message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let received = next(&mut receiver).await;
        receiver.dead_letter_message(&received, Default::default()).await.unwrap();
        event_of(emulator, "m-1", EventKind::Forwarded { to: "dead".into() }).await;
        let options = ServiceBusReceiverOptions::default();
        let mut dead = client.create_receiver_for_queue("dead", options).await.unwrap();
        assert_eq!(id(&next(&mut dead).await), "m-1");
        client.dispose().await.unwrap();
    });
}

#[test]
fn links_to_the_wrong_end_are_refused() {
    let builder = Emulator::builder()
        .queue(QueueOptions::new("in").forward_to("news"))
        .topic(TopicOptions::new("news").subscription(SubscriptionOptions::new("s")));
    run(builder, async |emulator| {
        for entity in ["news", "in"] {
            let mut client = connect_without_retries(emulator).await;
            let refused = client.create_receiver_for_queue(entity, Default::default()).await;
            let error = format!("{:?}", refused.expect_err(entity));
            assert!(error.contains("NotAllowed"), "{error}");
        }
        let mut client = connect_without_retries(emulator).await;
        let refused = client.create_sender("news/Subscriptions/s", Default::default()).await;
        let error = format!("{:?}", refused.expect_err("a subscription takes no messages"));
        assert!(error.contains("NotAllowed"), "{error}");
    });
}
