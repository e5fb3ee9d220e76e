//! What a suite came to.

use std::fmt;

use anyhow::{Result, ensure};

/// How many cases of a suite passed, failed and were left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
}

impl Outcome {
    /// An error unless cases have run and all of them passed.
    pub(super) fn verdict(&self) -> Result<()> {
        let run = self.passed + self.failed;
        ensure!(run > 0, "no case has run");
        ensure!(self.failed == 0, "{} of {run} cases failed", self.failed);
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, skipped } = self;
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cases_that_ran_and_passed_are_success() {
        let well = Outcome { passed: 3, failed: 0, skipped: 1 };
        assert_eq!(well.to_string(), "3 passed, 0 failed, 1 skipped");
        well.verdict().unwrap();

        let error = Outcome { failed: 1, ..well }.verdict().unwrap_err();
        assert_eq!(error.to_string(), "1 of 4 cases failed");
        let error = Outcome { skipped: 4, ..Outcome::default() }.verdict().unwrap_err();
        assert_eq!(error.to_string(), "no case has run");
    }
}
