//! What is shown while it runs: a bar, or a line now and then where nobody sees a bar.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

const LINE_EVERY: Duration = Duration::from_secs(20);

pub(crate) struct Progress {
    bar: ProgressBar,
    line_at: Instant,
}

impl Progress {
    pub(crate) fn new(messages: usize) -> Self {
        let style =
            ProgressStyle::with_template("{bar:40} {pos}/{len} completed, {msg} [{elapsed}]")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(u64::try_from(messages).unwrap_or(u64::MAX)).with_style(style);
        Self { bar, line_at: Instant::now() }
    }

    pub(crate) fn show(&mut self, completed: u64, message: String) {
        self.bar.set_position(completed);
        if self.bar.is_hidden() && self.line_at.elapsed() >= LINE_EVERY {
            eprintln!("    {completed} completed, {message}");
            self.line_at = Instant::now();
        }
        self.bar.set_message(message);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
