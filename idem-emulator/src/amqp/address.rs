//! From the address of a link to what it names.

use crate::broker::{Broker, Node};
use crate::management::RequestNode;

/// What an address names.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// A queue or a dead-letter queue.
    Messages(Node),
    /// A node that answers requests.
    Requests(RequestNode),
}

/// Finds what a path, or a URI with a scheme and an authority, names. Case does not matter.
pub(super) fn resolve(broker: &Broker, address: &str) -> Option<Place> {
    let path = percent_decoded(path_of(address))?;
    let path = path.trim_matches('/').to_lowercase();
    if path == "$cbs" {
        return Some(Place::Requests(RequestNode::Cbs));
    }
    match path.strip_suffix("/$management") {
        Some(entity) => Some(Place::Requests(RequestNode::Entity(broker.node(entity)?))),
        None => Some(Place::Messages(broker.node(&path)?)),
    }
}

fn path_of(address: &str) -> &str {
    match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        decoded.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{Part, Topology};
    use crate::clock::Clock;
    use crate::events::Events;
    use crate::options::QueueOptions;

    #[test]
    fn addresses_come_as_paths_and_as_uris() {
        let events = Events::new(Clock::manual(), 1);
        let topology =
            Topology { queues: vec![QueueOptions::new("Orders")], ..Topology::default() };
        let broker = Broker::new(topology, Clock::manual(), events).unwrap();
        let place = |address| resolve(&broker, address);
        for address in
            ["orders", "ORDERS", "/orders", "amqp://localhost:5672/orders", "amqps://x/%6Frders"]
        {
            assert!(
                matches!(place(address), Some(Place::Messages(node)) if node.part == Part::Main),
                "{address}"
            );
        }
        assert!(
            matches!(place("orders/$deadletterqueue"), Some(Place::Messages(node)) if node.part == Part::DeadLetter)
        );
        assert!(matches!(
            place("orders/$management"),
            Some(Place::Requests(RequestNode::Entity(_)))
        ));
        assert!(matches!(place("$cbs"), Some(Place::Requests(RequestNode::Cbs))));
        for address in ["other", "", "amqp://localhost", "orders%", "other/$management"] {
            assert!(place(address).is_none(), "{address}");
        }
    }
}
