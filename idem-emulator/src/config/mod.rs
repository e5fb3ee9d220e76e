//! The configuration file of Microsoft's emulator, `Config.json`.
//!
//! What it says of one entity is also what the control API takes to create one.

mod duration;
mod properties;
mod references;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};

use crate::broker::Topology;
use crate::options::{QueueOptions, SubscriptionOptions, TopicOptions};
use properties::{Name, SubscriptionName};
pub(crate) use properties::{QueueProperties, SubscriptionProperties, TopicProperties};
pub(crate) use rules::Rules;

/// Why a configuration is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Where in the JSON text: `UserConfig.Namespaces[0].Queues[2].Properties.LockDuration`. Absent
    /// if it is no JSON text, or wrong as a whole.
    pub path: Option<String>,
    /// What is wrong there, what is allowed and what was found.
    pub problem: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "`{path}`: {}", self.problem),
            None => formatter.write_str(&self.problem),
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads a JSON text; what it does not know is an error.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, ConfigError> {
    // Some editors put a byte order mark before the text.
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path();
        let path = path.iter().next().map(|_| path.to_string());
        ConfigError { path, problem: error.inner().to_string() }
    })?;
    deserializer.end().map_err(|error| ConfigError { path: None, problem: error.to_string() })?;
    Ok(value)
}

/// The entities that a configuration file describes.
pub(crate) fn topology(json: &[u8]) -> Result<Topology, ConfigError> {
    let File { user_config } = parse(json)?;
    let UserConfig { namespaces: [namespace], .. } = user_config;
    references::check(&namespace)?;
    Ok(Topology {
        queues: namespace.queues.into_iter().map(Queue::into_options).collect(),
        topics: namespace.topics.into_iter().map(Topic::into_options).collect(),
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct File {
    user_config: UserConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UserConfig {
    #[serde(deserialize_with = "one_namespace")]
    namespaces: [Namespace; 1],
    /// Where Microsoft's emulator writes its log; ours goes where the program sends it.
    #[serde(rename = "Logging")]
    _logging: Option<Logging>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Logging {
    #[serde(rename = "Type")]
    _type: LogTarget,
}

#[derive(Debug, Deserialize)]
enum LogTarget {
    File,
    Console,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Namespace {
    /// Any, since nothing that clients send names it.
    #[serde(rename = "Name")]
    _name: String,
    #[serde(default)]
    queues: Vec<Queue>,
    #[serde(default)]
    topics: Vec<Topic>,
}

fn one_namespace<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[Namespace; 1], D::Error> {
    let namespaces = Vec::deserialize(deserializer)?;
    namespaces.try_into().map_err(|namespaces: Vec<Namespace>| {
        Error::custom(format_args!("must be one namespace, found {}", namespaces.len()))
    })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Queue {
    name: Name,
    #[serde(default)]
    properties: QueueProperties,
}

impl Queue {
    fn into_options(self) -> QueueOptions {
        self.properties.into_options(self.name.0)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Topic {
    name: Name,
    #[serde(default)]
    properties: TopicProperties,
    #[serde(default)]
    subscriptions: Vec<Subscription>,
}

impl Topic {
    fn into_options(self) -> TopicOptions {
        let Self { name, properties, subscriptions } = self;
        properties.into_options(name.0, subscriptions)
    }
}

/// A subscription of a topic.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct Subscription {
    name: SubscriptionName,
    #[serde(default)]
    properties: SubscriptionProperties,
    #[serde(default)]
    rules: Rules,
}

impl Subscription {
    fn into_options(self) -> SubscriptionOptions {
        self.properties.into_options(self.name.0, self.rules)
    }
}
