//! The steps of a command: what each came to and how long it took.

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Runs steps and remembers their results.
///
/// A failed step does not end the command: the steps that do not depend on it still run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    steps: Vec<Step>,
    summary: Vec<String>,
}

#[derive(Debug)]
struct Step {
    name: &'static str,
    took: Duration,
    error: Option<String>,
}

impl Report {
    /// Runs `action`, shows its result, and hands on its value if it succeeded.
    pub(crate) fn step<T>(
        &mut self,
        name: &'static str,
        action: impl FnOnce() -> Result<T>,
    ) -> Option<T> {
        let (step, value) = Step::run(name, action);
        self.steps.push(step);
        value
    }

    /// Runs all `actions` at the same time, each as a step of its name.
    pub(crate) fn side_by_side<Action>(&mut self, actions: Vec<(&'static str, Action)>)
    where
        Action: FnOnce() -> Result<()> + Send,
    {
        thread::scope(|scope| {
            let running: Vec<_> = actions
                .into_iter()
                .map(|(name, action)| scope.spawn(move || Step::run(name, action).0))
                .collect();
            for step in running {
                self.steps.push(step.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
        });
    }

    /// Repeats these lines at the end, where people and CI look.
    pub(crate) fn repeat_at_end(&mut self, lines: Vec<String>) {
        self.summary.extend(lines);
    }

    /// Prints the summary; the exit code says whether every step succeeded.
    ///
    /// The repeated lines are results and go to the output, the rest is talk.
    pub(crate) fn finish(self) -> ExitCode {
        eprint!("\n{}", self.table());
        for line in &self.summary {
            println!("{line}");
        }
        let mut code = ExitCode::SUCCESS;
        for (name, error) in self.failed() {
            eprintln!("error: {name}: {error}");
            code = ExitCode::FAILURE;
        }
        code
    }

    fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.steps.iter().filter_map(|step| Some((step.name, step.error.as_deref()?)))
    }

    fn table(&self) -> String {
        let mut table = String::new();
        for step in &self.steps {
            let result = if step.error.is_some() { "FAILED" } else { "ok" };
            table += &format!("{result:>6} {:>9}  {}\n", seconds(step.took), step.name);
        }
        table
    }
}

impl Step {
    fn run<T>(name: &'static str, action: impl FnOnce() -> Result<T>) -> (Self, Option<T>) {
        eprintln!("==> {name}");
        let start = Instant::now();
        let result = action();
        let took = start.elapsed();
        let (value, error) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        match &error {
            None => eprintln!("==> {name}: done in {}", seconds(took)),
            Some(error) => eprintln!("==> {name}: FAILED after {}: {error}", seconds(took)),
        }
        (Self { name, took, error }, value)
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_failed_step_does_not_stop_the_next_and_fails_the_command() {
        let mut report = Report::default();
        let first: Option<()> = report.step("tests", || Err(anyhow!("two tests failed")));
        let second = report.step("book", || Ok(7));

        assert_eq!((first, second), (None, Some(7)));
        let table = report.table();
        let results: Vec<_> = table.lines().map(|line| line.split_whitespace().next()).collect();
        assert_eq!(results, [Some("FAILED"), Some("ok")], "{table}");
        let failed: Vec<_> = report.failed().collect();
        assert_eq!(failed, [("tests", "two tests failed")]);
        assert_eq!(report.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn steps_side_by_side_run_at_the_same_time_and_are_reported_in_order() {
        let meeting = std::sync::Barrier::new(2);
        let meet = |error: Option<&'static str>| {
            // Neither returns before both are here.
            meeting.wait();
            error.map_or(Ok(()), |error| Err(anyhow!(error)))
        };
        let mut report = Report::default();
        let actions = [("rust", None), ("js", Some("one case failed"))];
        let actions = actions.map(|(name, error)| (name, move || meet(error)));
        report.side_by_side(actions.into());

        let names: Vec<_> = report.steps.iter().map(|step| step.name).collect();
        assert_eq!(names, ["rust", "js"]);
        assert_eq!(report.failed().collect::<Vec<_>>(), [("js", "one case failed")]);
    }

    #[test]
    fn all_steps_well_is_success() {
        let mut report = Report::default();
        report.step("book", || Ok(()));
        assert_eq!(report.finish(), ExitCode::SUCCESS);
    }
}
