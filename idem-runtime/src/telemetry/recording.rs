//! Spans and events of a test, by the thread that runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// What was told so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorded {
    /// The fields of each span, and its name as `span`.
    pub(crate) spans: Vec<BTreeMap<String, String>>,
    pub(crate) events: Vec<RecordedEvent>,
}

#[derive(Clone, Debug)]
pub(crate) struct RecordedEvent {
    pub(crate) level: Level,
    pub(crate) target: String,
    pub(crate) fields: BTreeMap<String, String>,
}

impl RecordedEvent {
    /// The value of a field; empty if there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// Listens to our own spans and events until it is dropped.
pub(crate) struct Recording {
    recorded: Arc<Mutex<Recorded>>,
    _default: DefaultGuard,
}

impl Recording {
    pub(crate) fn start() -> Self {
        let recorded = Arc::default();
        let listener = Listener { recorded: Arc::clone(&recorded) };
        let subscriber = tracing_subscriber::registry().with(listener);
        Self { recorded, _default: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn recorded(&self) -> Recorded {
        self.recorded.lock().unwrap().clone()
    }
}

struct Listener {
    recorded: Arc<Mutex<Recorded>>,
}

/// The place of a span in the list.
struct Place(usize);

impl Listener {
    fn of_span(
        &self,
        context: &Context<'_, impl Subscriber + for<'a> LookupSpan<'a>>,
        id: &Id,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) {
        let place = context.span(id).and_then(|span| span.extensions().get::<Place>().map(|p| p.0));
        if let Some(place) = place {
            change(&mut self.recorded.lock().unwrap().spans[place]);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if !attributes.metadata().target().starts_with("idem") {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        fields.0.insert("span".to_owned(), attributes.metadata().name().to_owned());
        let mut recorded = self.recorded.lock().unwrap();
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Place(recorded.spans.len()));
            recorded.spans.push(fields.0);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.of_span(&context, id, |span| span.append(&mut fields.0));
    }

    fn on_follows_from(&self, id: &Id, _: &Id, context: Context<'_, S>) {
        self.of_span(&context, id, |span| {
            let count: u32 = span.get("follows_from").map_or(0, |count| count.parse().unwrap());
            span.insert("follows_from".to_owned(), (count + 1).to_string());
        });
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        if target.starts_with("idem") {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let event = RecordedEvent { level, target, fields: fields.0 };
            self.recorded.lock().unwrap().events.push(event);
        }
    }
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}
