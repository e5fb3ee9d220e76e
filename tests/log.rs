//! What is logged in a test, by the thread that runs it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;

/// The log of this thread, from when it was made until it is dropped.
///
/// What a multi-threaded runtime spawns runs elsewhere, and is not heard.
#[derive(Debug)]
pub struct Log {
    lines: Lines,
    _default: DefaultGuard,
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Listens to what passes a filter, such as `warn,sqlx=debug`.
    pub fn listen(filter: &str) -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(filter))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        Self { lines, _default: tracing::subscriber::set_default(subscriber) }
    }

    /// What was logged so far, an event a line.
    pub fn text(&self) -> String {
        let lines = self.lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&lines).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
