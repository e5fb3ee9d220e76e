//! Which handler a message is for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::registry::Registered;
use crate::delivery::{Delivery, Property};
use crate::handler::{Handler, Level, States};
use crate::outcome::Rejection;
use crate::store::Store;

/// The handlers of a consumer, and how a message finds its own.
#[derive(Debug)]
pub(super) struct Routes<S: Store> {
    handlers: Vec<Arc<Registered<S>>>,
    named: BTreeMap<String, Arc<Registered<S>>>,
    /// The handler of messages that no route names.
    fallback: Option<Arc<Registered<S>>>,
    by: RouteBy,
}

/// What a message is routed by.
#[derive(Debug, Default)]
pub(super) enum RouteBy {
    #[default]
    Subject,
    Property(String),
}

impl<S: Store> Routes<S> {
    /// Every handler, once.
    pub(super) fn handlers(&self) -> &[Arc<Registered<S>>] {
        &self.handlers
    }

    /// The handler that this message is for; `None` when no route names it, and there is no handler
    /// for such messages.
    pub(super) fn handler_of(&self, delivery: &Delivery) -> Option<&Registered<S>> {
        let named = self.by.value_of(delivery).and_then(|value| self.named.get(value.as_ref()));
        named.or(self.fallback.as_ref()).map(Arc::as_ref)
    }

    /// Why a message is rejected that no handler is for.
    pub(super) fn unroutable(&self, delivery: &Delivery) -> Rejection {
        let found = match (self.by.value_of(delivery), &self.by) {
            (Some(value), by) => format!("no route for {by} `{}`", shown(&value)),
            (None, RouteBy::Property(name)) if delivery.property(name).is_some() => {
                format!("{} is neither text nor an integer", self.by)
            }
            (None, by) => format!("the message has no {by}, by which it is routed"),
        };
        let names: Vec<_> = self
            .named
            .keys()
            .take(NAMES_SHOWN_MAX)
            .map(|name| format!("`{}`", shown(name)))
            .collect();
        let names = names.join(", ");
        let more = match self.named.len().saturating_sub(NAMES_SHOWN_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Rejection::new("Unroutable", format!("{found}; there are routes for {names}{more}"))
    }
}

/// So that the description of a dead letter has room for all of it.
const NAMES_SHOWN_MAX: usize = 20;
const NAME_LENGTH_SHOWN_MAX: usize = 100;

/// A value that somebody else has chosen, for a log or the description of a dead letter.
fn shown(value: &str) -> String {
    let mut shown: String = value.chars().take(NAME_LENGTH_SHOWN_MAX).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    shown.escape_debug().to_string()
}

impl RouteBy {
    /// The value that routes are named after; an empty one is none.
    fn value_of<'a>(&self, delivery: &'a Delivery) -> Option<Cow<'a, str>> {
        let value = match self {
            Self::Subject => delivery.subject().map(Cow::Borrowed),
            Self::Property(name) => match delivery.property(name)? {
                Property::Text(text) => Some(Cow::Borrowed(text.as_str())),
                Property::Integer(integer) => Some(Cow::Owned(integer.to_string())),
                Property::Bool(_)
                | Property::Float(_)
                | Property::Bytes(_)
                | Property::Instant(_) => None,
            },
        };
        value.filter(|value| !value.is_empty())
    }
}

impl fmt::Display for RouteBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subject => f.write_str("subject"),
            Self::Property(name) => write!(f, "property `{name}`"),
        }
    }
}

/// What a builder was told about handlers. Handlers are named by their places in the list.
#[derive(Debug)]
pub(super) struct RoutesDescription<S: Store> {
    handlers: Vec<Registered<S>>,
    named: Vec<(String, usize)>,
    fallbacks: Vec<usize>,
    property: Option<String>,
}

impl<S: Store> Default for RoutesDescription<S> {
    fn default() -> Self {
        Self { handlers: vec![], named: vec![], fallbacks: vec![], property: None }
    }
}

impl<S: Store> RoutesDescription<S> {
    pub(super) fn add_route<H: Handler<S>>(&mut self, value: String) {
        let handler = self.add::<H>();
        self.named.push((value, handler));
    }

    pub(super) fn add_fallback<H: Handler<S>>(&mut self) {
        let handler = self.add::<H>();
        if !self.fallbacks.contains(&handler) {
            self.fallbacks.push(handler);
        }
    }

    pub(super) fn route_by_property(&mut self, name: String) {
        self.property = Some(name);
    }

    fn add<H: Handler<S>>(&mut self) -> usize {
        let registered = Registered::new::<H>();
        let same = self.handlers.iter().position(|other| other.is_same_as(&registered));
        same.unwrap_or_else(|| {
            self.handlers.push(registered);
            self.handlers.len() - 1
        })
    }

    /// Whether there are handlers, and none of them leaves claims or rows in place of claims.
    pub(super) fn leave_nothing(&self) -> bool {
        let mut levels = self.handlers.iter().map(|handler| handler.spec().level);
        !self.handlers.is_empty() && levels.all(|level| level == Level::Zero)
    }

    /// One sentence for each thing that cannot work.
    pub(super) fn problems(&self, states: &States) -> Vec<String> {
        let mut problems = Vec::new();
        if self.handlers.is_empty() {
            problems.push(NO_HANDLER.to_owned());
        }
        problems.extend(self.fallback_problem());
        problems.extend(self.route_problems());
        problems.extend(self.scope_problems());
        for problem in self.handlers.iter().flat_map(|handler| handler.unmet(states)) {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        problems
    }

    fn fallback_problem(&self) -> Option<String> {
        let names: Vec<_> =
            self.fallbacks.iter().map(|handler| format!("`{}`", self.name_of(*handler))).collect();
        (names.len() > 1).then(|| {
            format!(
                "there are {} handlers for all messages, {}; give each a `.route(…)`",
                names.len(),
                names.join(" and ")
            )
        })
    }

    fn route_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match &self.property {
            Some(name) if name.is_empty() => {
                problems.push("`route_by_property` needs the name of a property".to_owned());
            }
            Some(name) if self.named.is_empty() => problems
                .push(format!("`route_by_property({name:?})` has no effect without a `.route(…)`")),
            Some(_) | None => {}
        }
        for (index, (value, handler)) in self.named.iter().enumerate() {
            let name = self.name_of(*handler);
            if value.is_empty() {
                problems.push(format!("the route of `{name}` has an empty name"));
            }
            let earlier = self.named.iter().take(index).find(|(earlier, _)| earlier == value);
            if let Some((_, earlier)) = earlier {
                let earlier = self.name_of(*earlier);
                problems.push(format!(
                    "route {value:?} is there twice, for `{earlier}` and for `{name}`"
                ));
            }
        }
        problems
    }

    fn scope_problems(&self) -> Vec<String> {
        let mut first: BTreeMap<&str, (&str, bool)> = BTreeMap::new();
        let mut problems = Vec::new();
        for spec in self.handlers.iter().map(Registered::spec) {
            for scope in spec.scopes() {
                let Some((other, is_own)) = first.insert(scope, (spec.name, scope == spec.scope))
                else {
                    continue;
                };
                let advice = match is_own && scope == spec.scope {
                    true => "",
                    false => ", or take it out of `was`",
                };
                problems.push(format!(
                    "handlers `{other}` and `{}` have the same scope, `{scope}`: what one has done \
                     would count as done for the other; set another `scope` on one of them{advice}",
                    spec.name
                ));
            }
        }
        problems
    }

    fn name_of(&self, handler: usize) -> &'static str {
        self.handlers.get(handler).map_or("", |handler| handler.spec().name)
    }

    /// The routes, when there are no problems. Each handler is prepared before it is shared.
    pub(super) fn into_routes(self, prepare: impl FnMut(&mut Registered<S>)) -> Routes<S> {
        let mut handlers = self.handlers;
        handlers.iter_mut().for_each(prepare);
        let handlers: Vec<_> = handlers.into_iter().map(Arc::new).collect();
        let named = self.named.into_iter();
        let named = named
            .filter_map(|(value, handler)| Some((value, handlers.get(handler).cloned()?)))
            .collect();
        let fallback = self.fallbacks.first().and_then(|handler| handlers.get(*handler).cloned());
        let by = self.property.map(RouteBy::Property).unwrap_or_default();
        Routes { handlers, named, fallback, by }
    }
}

const NO_HANDLER: &str = "there is no handler; call `.handler(PlaceOrderHandler)`, or \
     `.route(\"OrderPlaced\", PlaceOrderHandler)` for messages with this subject";
