//! The entities of a broker: from options to entities, and which there are.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Context;
use super::queue::{Kind, Queue};
use crate::error::EntityError;
use crate::options::{
    QueueOptions, Settings, SubscriptionOptions, TopicOptions, check_name, check_subscription_name,
};
use crate::rules::Rules;

/// How many entities there may be, as in the cloud.
const ENTITIES_MAX: usize = 10_000;

/// How many subscriptions a topic may have, as in the cloud.
const SUBSCRIPTIONS_MAX: usize = 2000;

/// What lies between the name of a topic and that of its subscription.
const SUBSCRIPTIONS: &str = "/Subscriptions/";

/// By lower-case path: names of entities do not depend on case.
type Entities = HashMap<String, Arc<Queue>>;

/// Entities to create together: all or none.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    pub(crate) queues: Vec<QueueOptions>,
    pub(crate) topics: Vec<TopicOptions>,
}

/// The entities that there are.
#[derive(Debug, Default)]
pub(super) struct Directory {
    entities: RwLock<Entities>,
}

impl Directory {
    pub(super) fn find(&self, path: &str) -> Option<Arc<Queue>> {
        self.read().get(&path.to_lowercase()).cloned()
    }

    /// A copy, since whatever is done with an entity may look for another.
    pub(super) fn all(&self) -> Vec<Arc<Queue>> {
        self.read().values().cloned().collect()
    }

    pub(super) fn create(
        &self,
        topology: Topology,
        context: &Arc<Context>,
    ) -> Result<(), EntityError> {
        let mut entities = self.write();
        let mut draft = Draft { known: &entities, new: Entities::new(), context };
        for options in topology.queues {
            draft.add_queue(options)?;
        }
        for options in topology.topics {
            draft.add_topic(options)?;
        }
        let new = draft.finish()?;
        entities.extend(new);
        Ok(())
    }

    pub(super) fn create_subscription(
        &self,
        topic: &str,
        options: SubscriptionOptions,
        context: &Arc<Context>,
    ) -> Result<(), EntityError> {
        let mut entities = self.write();
        let found = entities.get(&topic.to_lowercase()).filter(|found| found.kind() == Kind::Topic);
        let topic =
            found.cloned().ok_or_else(|| EntityError::UnknownTopic { topic: topic.to_owned() })?;
        let mut draft = Draft { known: &entities, new: Entities::new(), context };
        let subscription = draft.add_subscription(&topic, options)?;
        let new = draft.finish()?;
        entities.extend(new);
        topic.subscribe(subscription);
        Ok(())
    }

    /// Takes an entity out, a topic with its subscriptions. Empty if there is no such entity.
    pub(super) fn remove(&self, path: &str) -> Vec<Arc<Queue>> {
        let path = path.to_lowercase();
        let mut entities = self.write();
        let Some(removed) = entities.remove(&path) else {
            return Vec::new();
        };
        let topic = path
            .rsplit_once(&SUBSCRIPTIONS.to_lowercase())
            .filter(|_| removed.kind() == Kind::Subscription)
            .and_then(|(topic, _)| entities.get(topic));
        if let Some(topic) = topic {
            topic.unsubscribe(&removed);
        }
        let mut all = removed.subscriptions();
        for subscription in &all {
            entities.remove(&subscription.path().to_lowercase());
        }
        all.push(removed);
        all
    }

    fn read(&self) -> RwLockReadGuard<'_, Entities> {
        self.entities.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entities> {
        self.entities.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Entities that are to join those that there are, once all of them are found to be right.
struct Draft<'a> {
    known: &'a Entities,
    new: Entities,
    context: &'a Arc<Context>,
}

impl Draft<'_> {
    fn add_queue(&mut self, options: QueueOptions) -> Result<(), EntityError> {
        let QueueOptions { name, settings } = options;
        named(&name, check_name(&name))?;
        self.add(Kind::Queue, &name, settings, Rules::default())?;
        Ok(())
    }

    fn add_topic(&mut self, options: TopicOptions) -> Result<(), EntityError> {
        let TopicOptions { name, settings, subscriptions } = options;
        named(&name, check_name(&name))?;
        let topic = self.add(Kind::Topic, &name, settings, Rules::default())?;
        for options in subscriptions {
            let subscription = self.add_subscription(&topic, options)?;
            topic.subscribe(subscription);
        }
        Ok(())
    }

    fn add_subscription(
        &mut self,
        topic: &Queue,
        options: SubscriptionOptions,
    ) -> Result<Arc<Queue>, EntityError> {
        let SubscriptionOptions { name, settings, rules } = options;
        let path = format!("{}{SUBSCRIPTIONS}{name}", topic.path());
        named(&path, check_subscription_name(&name))?;
        if topic.subscription_count() >= SUBSCRIPTIONS_MAX {
            let problem = format!("the topic has {SUBSCRIPTIONS_MAX} subscriptions already");
            return Err(invalid(&path, problem));
        }
        let rules = named(&path, Rules::compile(rules).map_err(|error| error.to_string()))?;
        self.add(Kind::Subscription, &path, settings, rules)
    }

    fn add(
        &mut self,
        kind: Kind,
        path: &str,
        settings: Settings,
        rules: Rules,
    ) -> Result<Arc<Queue>, EntityError> {
        named(path, settings.check())?;
        let key = path.to_lowercase();
        if self.find(&key).is_some() {
            return Err(EntityError::Exists { entity: path.to_owned() });
        }
        if self.known.len() + self.new.len() >= ENTITIES_MAX {
            let problem = format!("there are {ENTITIES_MAX} entities already; delete some first");
            return Err(invalid(path, problem));
        }
        let queue = Arc::new(Queue::new(kind, path, settings, rules, Arc::clone(self.context)));
        self.new.insert(key, Arc::clone(&queue));
        Ok(queue)
    }

    fn find(&self, key: &str) -> Option<&Arc<Queue>> {
        self.new.get(key).or_else(|| self.known.get(key))
    }

    /// Targets are looked for last, since entities may forward to those that come after them.
    fn finish(self) -> Result<Entities, EntityError> {
        for entity in self.new.values() {
            let Settings { forward_to, forward_dead_lettered_messages_to, .. } = entity.settings();
            self.check_target(entity, "messages", forward_to.as_deref())?;
            self.check_target(
                entity,
                "dead letters",
                forward_dead_lettered_messages_to.as_deref(),
            )?;
        }
        Ok(self.new)
    }

    fn check_target(
        &self,
        source: &Arc<Queue>,
        what: &str,
        target: Option<&str>,
    ) -> Result<(), EntityError> {
        let Some(name) = target else {
            return Ok(());
        };
        self.find(&name.to_lowercase())
            .filter(|target| target.kind() != Kind::Subscription && !Arc::ptr_eq(target, source))
            .map(|_| ())
            .ok_or_else(|| {
                let problem =
                    format!("it must forward {what} to another queue or a topic, found `{name}`");
                invalid(source.path(), problem)
            })
    }
}

fn named<T>(entity: &str, checked: Result<T, String>) -> Result<T, EntityError> {
    checked.map_err(|problem| invalid(entity, problem))
}

fn invalid(entity: &str, problem: String) -> EntityError {
    EntityError::Invalid { entity: entity.to_owned(), problem }
}
