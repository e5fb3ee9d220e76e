//! `$cbs`: takes any token.

use super::{Reply, operation};
use crate::codec::message::Sections;

pub(super) fn reply(request: &Sections<'_>) -> Reply {
    match operation(request) {
        "put-token" => Reply::empty(202, "Accepted"),
        other => Reply::error(
            501,
            "amqp:not-implemented",
            format!("`$cbs` does not implement `{other}`."),
        ),
    }
}
