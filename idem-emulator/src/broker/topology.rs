//! From options to entities.

use std::collections::HashMap;
use std::sync::Arc;

use super::Context;
use super::queue::{Kind, Queue, Target};
use crate::error::StartError;
use crate::options::{
    QueueOptions, Settings, SubscriptionOptions, TopicOptions, check_name, check_subscription_name,
};
use crate::rules::Rules;

/// The entities of a broker.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) queues: Vec<QueueOptions>,
    pub(crate) topics: Vec<TopicOptions>,
}

/// By lower-case path.
type Entities = HashMap<String, Arc<Queue>>;

impl Topology {
    pub(super) fn build(self, context: &Arc<Context>) -> Result<Entities, StartError> {
        let mut entities = Entities::new();
        for QueueOptions { name, settings } in self.queues {
            named(&name, check_name(&name))?;
            add(&mut entities, Kind::Queue, &name, settings, Rules::default(), context)?;
        }
        for topic in self.topics {
            add_topic(&mut entities, topic, context)?;
        }
        entities.values().try_for_each(|entity| connect(&entities, entity))?;
        Ok(entities)
    }
}

fn add_topic(
    entities: &mut Entities,
    options: TopicOptions,
    context: &Arc<Context>,
) -> Result<(), StartError> {
    let TopicOptions { name, settings, subscriptions } = options;
    named(&name, check_name(&name))?;
    let topic = add(entities, Kind::Topic, &name, settings, Rules::default(), context)?;
    let subscriptions: Result<Vec<_>, _> = subscriptions
        .into_iter()
        .map(|subscription| add_subscription(entities, &name, subscription, context))
        .collect();
    topic.route_messages(Target::Subscriptions(subscriptions?));
    Ok(())
}

fn add_subscription(
    entities: &mut Entities,
    topic: &str,
    options: SubscriptionOptions,
    context: &Arc<Context>,
) -> Result<Arc<Queue>, StartError> {
    let SubscriptionOptions { name, settings, rules } = options;
    let path = format!("{topic}/Subscriptions/{name}");
    named(&path, check_subscription_name(&name))?;
    let rules = named(&path, Rules::compile(rules).map_err(|error| error.to_string()))?;
    add(entities, Kind::Subscription, &path, settings, rules, context)
}

fn add(
    entities: &mut Entities,
    kind: Kind,
    path: &str,
    settings: Settings,
    rules: Rules,
    context: &Arc<Context>,
) -> Result<Arc<Queue>, StartError> {
    named(path, settings.check())?;
    let queue = Arc::new(Queue::new(kind, path, settings, rules, Arc::clone(context)));
    match entities.insert(path.to_lowercase(), Arc::clone(&queue)) {
        None => Ok(queue),
        Some(_) => Err(StartError::DuplicateEntity { entity: path.to_owned() }),
    }
}

/// Sets where an entity forwards to.
fn connect(entities: &Entities, entity: &Arc<Queue>) -> Result<(), StartError> {
    let settings = entity.settings();
    if let Some(name) = &settings.forward_to {
        entity.route_messages(target(entities, entity, "forward_to", name)?);
    }
    if let Some(name) = &settings.forward_dead_lettered_messages_to {
        let option = "forward_dead_lettered_messages_to";
        entity.route_dead_letters(target(entities, entity, option, name)?);
    }
    Ok(())
}

fn target(
    entities: &Entities,
    source: &Arc<Queue>,
    option: &str,
    name: &str,
) -> Result<Target, StartError> {
    let found = entities
        .get(&name.to_lowercase())
        .filter(|target| target.kind() != Kind::Subscription && !Arc::ptr_eq(target, source));
    let problem = format!("`{option}` must name another queue or a topic, found `{name}`");
    found
        .map(|target| Target::Entity(Arc::downgrade(target)))
        .ok_or_else(|| invalid(source.path(), problem))
}

fn named<T>(entity: &str, checked: Result<T, String>) -> Result<T, StartError> {
    checked.map_err(|problem| invalid(entity, problem))
}

fn invalid(entity: &str, problem: String) -> StartError {
    StartError::InvalidEntity { entity: entity.to_owned(), problem }
}
