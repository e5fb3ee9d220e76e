//! Whether what a configuration says of several entities fits together.

use std::collections::BTreeMap;

use super::properties::FORWARD_TO;
use super::{ConfigError, Namespace};

/// An entity, and where it is in the JSON text.
struct Declared<'a> {
    place: String,
    /// In lower case, since names do not depend on case.
    path: String,
    can_be_sent_to: bool,
    requires_session: bool,
    /// The properties that name other entities; empty ones name none.
    forwards: [(&'static str, &'a str); 2],
}

/// Finds two entities of one name, and targets that messages cannot be sent to.
pub(super) fn check(namespace: &Namespace) -> Result<(), ConfigError> {
    let entities = declared(namespace);
    let mut known = BTreeMap::new();
    for entity in &entities {
        if let Some(first) = known.insert(entity.path.as_str(), entity) {
            let text =
                format!("`{}` has that name already; names do not depend on case", first.place);
            return Err(problem(format!("{}.Name", entity.place), text));
        }
    }
    for entity in &entities {
        for (property, target) in entity.forwards.iter().filter(|(_, target)| !target.is_empty()) {
            let place = || format!("{}.Properties.{property}", entity.place);
            if entity.requires_session && *property == FORWARD_TO {
                let text =
                    format!("must be empty where `RequiresSession` is `true`, found `{target}`");
                return Err(problem(place(), text));
            }
            let target_path = target.to_lowercase();
            let found = known.get(target_path.as_str()).filter(|found| found.can_be_sent_to);
            if found.is_none() || target_path == entity.path {
                let text = format!("must name another queue or a topic, found `{target}`");
                return Err(problem(place(), text));
            }
        }
    }
    Ok(())
}

fn declared(namespace: &Namespace) -> Vec<Declared<'_>> {
    let mut entities = Vec::new();
    for (index, queue) in namespace.queues.iter().enumerate() {
        entities.push(Declared {
            place: format!("UserConfig.Namespaces[0].Queues[{index}]"),
            path: queue.name.0.to_lowercase(),
            can_be_sent_to: true,
            requires_session: queue.properties.requires_session,
            forwards: queue.properties.forwards(),
        });
    }
    for (index, topic) in namespace.topics.iter().enumerate() {
        let place = format!("UserConfig.Namespaces[0].Topics[{index}]");
        let path = topic.name.0.to_lowercase();
        for (index, subscription) in topic.subscriptions.iter().enumerate() {
            entities.push(Declared {
                place: format!("{place}.Subscriptions[{index}]"),
                path: format!("{path}/subscriptions/{}", subscription.name.0.to_lowercase()),
                can_be_sent_to: false,
                requires_session: subscription.properties.requires_session,
                forwards: subscription.properties.forwards(),
            });
        }
        entities.push(Declared {
            place,
            path,
            can_be_sent_to: true,
            requires_session: false,
            forwards: [("", ""); 2],
        });
    }
    entities
}

fn problem(path: String, problem: String) -> ConfigError {
    ConfigError { path: Some(path), problem }
}
