//! Queues, topics and subscriptions.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::exchange::{Answer, Body, Failure, InPath, answer, no_content};
use crate::broker::{Broker, Counts, Kind, Queue, Topology};
use crate::config::{
    QueueProperties, Rules, Subscription, SubscriptionProperties, TopicProperties,
};
use crate::error::UnknownEntity;

/// An entity as it is shown.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    name: &'a str,
    kind: Kind,
    counts: Counts,
}

impl<'a> Shown<'a> {
    fn of(entity: &'a Queue) -> Self {
        Self { name: entity.path(), kind: entity.kind(), counts: entity.counts() }
    }
}

/// What a topic is to be like.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(super) struct NewTopic {
    properties: TopicProperties,
    subscriptions: Vec<Subscription>,
}

/// What a subscription is to be like.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(super) struct NewSubscription {
    properties: SubscriptionProperties,
    rules: Rules,
}

pub(super) async fn list(State(broker): State<Arc<Broker>>) -> Answer {
    let entities = broker.entities();
    let shown: Vec<_> = entities.iter().map(|entity| Shown::of(entity)).collect();
    answer(StatusCode::OK, &shown)
}

pub(super) async fn one(State(broker): State<Arc<Broker>>, InPath(path): InPath<String>) -> Answer {
    answer(StatusCode::OK, &Shown::of(&*broker.entity(&path)?))
}

pub(super) async fn create_queue(
    State(broker): State<Arc<Broker>>,
    InPath(name): InPath<String>,
    Body(properties): Body<QueueProperties>,
) -> Answer {
    let queues = vec![properties.into_options(name.clone())];
    broker.create(Topology { queues, ..Topology::default() })?;
    created(&broker, &name)
}

pub(super) async fn create_topic(
    State(broker): State<Arc<Broker>>,
    InPath(name): InPath<String>,
    Body(NewTopic { properties, subscriptions }): Body<NewTopic>,
) -> Answer {
    let topics = vec![properties.into_options(name.clone(), subscriptions)];
    broker.create(Topology { topics, ..Topology::default() })?;
    created(&broker, &name)
}

pub(super) async fn create_subscription(
    State(broker): State<Arc<Broker>>,
    InPath((topic, name)): InPath<(String, String)>,
    Body(NewSubscription { properties, rules }): Body<NewSubscription>,
) -> Answer {
    broker.create_subscription(&topic, properties.into_options(name.clone(), rules))?;
    created(&broker, &subscription(&topic, &name))
}

fn created(broker: &Broker, path: &str) -> Answer {
    answer(StatusCode::CREATED, &Shown::of(&*broker.entity(path)?))
}

pub(super) async fn delete_queue(
    State(broker): State<Arc<Broker>>,
    InPath(name): InPath<String>,
) -> Answer {
    delete(&broker, &name, Kind::Queue)
}

pub(super) async fn delete_topic(
    State(broker): State<Arc<Broker>>,
    InPath(name): InPath<String>,
) -> Answer {
    delete(&broker, &name, Kind::Topic)
}

pub(super) async fn delete_subscription(
    State(broker): State<Arc<Broker>>,
    InPath((topic, name)): InPath<(String, String)>,
) -> Answer {
    delete(&broker, &subscription(&topic, &name), Kind::Subscription)
}

/// An entity of another kind is not what the path names.
fn delete(broker: &Broker, path: &str, kind: Kind) -> Answer {
    if broker.entity(path)?.kind() != kind {
        return Err(Failure::from(UnknownEntity { name: path.to_owned() }));
    }
    broker.delete(path)?;
    no_content()
}

pub(super) async fn purge(
    State(broker): State<Arc<Broker>>,
    InPath(path): InPath<String>,
) -> Answer {
    broker.entity(&path)?.purge();
    no_content()
}

pub(super) async fn reset(State(broker): State<Arc<Broker>>) -> Answer {
    broker.reset();
    no_content()
}

fn subscription(topic: &str, name: &str) -> String {
    format!("{topic}/Subscriptions/{name}")
}
