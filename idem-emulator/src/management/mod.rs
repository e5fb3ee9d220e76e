//! Request-response nodes: a request message in, a response message out.

mod arguments;
mod cbs;
mod entity;
mod locks;
mod messages;
mod rules;
mod sessions;
#[cfg(test)]
mod tests;

use bytes::{BufMut, Bytes, BytesMut};

use crate::broker::{Acknowledgement, Node, Queue};
use crate::codec::message::Sections;
use crate::codec::{Raw, encode};

/// A node that answers requests.
#[derive(Debug, Clone)]
pub(crate) enum RequestNode {
    /// `$cbs`, which takes tokens.
    Cbs,
    /// `entity/$management`.
    Entity(Node),
}

/// What a node made of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Bytes,
    /// How the response is to be given.
    pub(crate) acknowledgement: Acknowledgement,
}

/// The outcome of an operation, before it is put into a message.
#[derive(Debug)]
struct Reply {
    status: i32,
    description: String,
    condition: Option<&'static str>,
    /// The encoded body value.
    body: BytesMut,
}

impl Reply {
    fn ok(write_body: impl FnOnce(&mut BytesMut)) -> Self {
        let mut body = BytesMut::new();
        write_body(&mut body);
        Self { status: 200, description: "OK".to_owned(), condition: None, body }
    }

    fn empty(status: i32, description: impl Into<String>) -> Self {
        let mut body = BytesMut::new();
        encode::null(&mut body);
        Self { status, description: description.into(), condition: None, body }
    }

    fn error(status: i32, condition: &'static str, description: impl Into<String>) -> Self {
        Self { condition: Some(condition), ..Self::empty(status, description) }
    }
}

impl RequestNode {
    /// Two links are a pair only if they name the same node.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Cbs, Self::Cbs) => true,
            (Self::Entity(one), Self::Entity(other)) => one.name() == other.name(),
            (Self::Cbs, Self::Entity(_)) | (Self::Entity(_), Self::Cbs) => false,
        }
    }

    pub(crate) fn entity(&self) -> Option<&Queue> {
        match self {
            Self::Cbs => None,
            Self::Entity(node) => Some(&node.queue),
        }
    }

    pub(crate) fn answer(&self, request: &Sections<'_>) -> Answer {
        let (reply, acknowledgement) = match self {
            Self::Cbs => (cbs::reply(request), Acknowledgement::Now),
            Self::Entity(node) => entity::reply(node, request),
        };
        Answer { response: response(request, &reply), acknowledgement }
    }
}

/// Clients disagree on how the status is spelt, so both spellings are there.
fn response(request: &Sections<'_>, reply: &Reply) -> Bytes {
    let mut out = BytesMut::new();
    encode::descriptor(&mut out, 0x73);
    encode::list(&mut out, 6, |out| {
        encode::null(out);
        encode::null(out);
        encode::optional(out, request.reply_to(), encode::string);
        encode::null(out);
        encode::null(out);
        // The request's message id with its own type: clients compare both.
        encode::optional(out, request.message_id(), |out, id: Raw<'_>| out.put_slice(id.bytes()));
    });
    encode::descriptor(&mut out, 0x74);
    encode::map(&mut out, 4 + u32::from(reply.condition.is_some()), |out| {
        for name in ["statusCode", "status-code"] {
            encode::string(out, name);
            encode::int(out, reply.status);
        }
        for name in ["statusDescription", "status-description"] {
            encode::string(out, name);
            encode::string(out, &reply.description);
        }
        if let Some(condition) = reply.condition {
            encode::string(out, "errorCondition");
            encode::symbol(out, condition);
        }
    });
    encode::descriptor(&mut out, 0x77);
    out.put_slice(&reply.body);
    out.freeze()
}

/// The operation that a request asks for, without its prefix.
fn operation<'a>(request: &Sections<'a>) -> &'a str {
    let operation = request.application_property("operation").and_then(|value| value.as_text());
    let operation = operation.unwrap_or_default();
    operation.strip_prefix("com.microsoft:").unwrap_or(operation)
}
