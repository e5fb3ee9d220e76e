//! What came of the run.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::consumer::Tally;
use crate::messages::QUEUES;
use crate::run::Scene;

/// How many names of messages are listed.
const LISTED_MAX: usize = 20;

/// What has gone wrong on purpose, and what the consumers made of it.
pub(crate) struct Fired {
    pub(crate) faults: Vec<(&'static str, u64)>,
    pub(crate) tally: Tally,
    /// Consumers that could not start while the database was away.
    pub(crate) not_started: u64,
}

/// Whether everything was done once, and what happened on the way.
pub(crate) struct Verdict {
    seed: u64,
    took: Duration,
    counts: Vec<(&'static str, u64)>,
    faults: Vec<(&'static str, u64)>,
    problems: Vec<String>,
}

impl Verdict {
    pub(crate) async fn reach(
        scene: &Scene,
        fired: Fired,
        seed: u64,
        took: Duration,
    ) -> anyhow::Result<Self> {
        let mut problems = Vec::new();
        let (mut intents_count, mut effects_count, mut claims_count) = (0, 0, 0);
        for queue in QUEUES {
            let intents = scene.messages.intents(queue);
            let effects = scene.database.effects(queue).await?;
            let claims = scene.database.claims(queue).await?;
            compare(queue, &intents, &effects, claims, &mut problems);
            look_for_left(scene, queue, &mut problems)?;
            intents_count += intents.len();
            effects_count += effects.len();
            claims_count += claims;
        }
        let silent = fired.faults.iter().filter(|(_, count)| *count == 0);
        problems.extend(silent.map(|(name, _)| format!("a fault has never fired: {name}")));
        let totals = scene.emulator.events().totals();
        let counts = vec![
            ("messages planned", number(scene.messages.planned.len())),
            ("messages enqueued", totals.enqueued),
            ("intents", number(intents_count)),
            ("intents with an effect", number(effects_count)),
            ("claims", number(claims_count)),
            ("deliveries", totals.delivered),
            ("deliveries needed at most", scene.database.delivery_count_max().await?),
            ("locks that ran out", totals.lock_expired),
            ("locks renewed", totals.lock_renewed),
            ("settlements and renewals refused", totals.settlement_rejected),
            ("duplicates ignored", fired.tally.duplicates),
            ("given back since busy", fired.tally.busy),
            ("handlers failed", fired.tally.retries),
            ("commits in doubt", fired.tally.unknown),
            ("held while the database was away", fired.tally.held),
            ("receivers opened again", fired.tally.reconnects),
            ("starts while the database was away", fired.not_started),
        ];
        Ok(Self { seed, took, counts, faults: fired.faults, problems })
    }

    pub(crate) fn is_good(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Each intent must have one row, and one claim.
fn compare(
    queue: &str,
    intents: &HashSet<&str>,
    effects: &HashMap<String, i64>,
    claims: usize,
    problems: &mut Vec<String>,
) {
    let missing = intents.iter().filter(|name| !effects.contains_key(**name)).copied();
    let doubled = effects.iter().filter(|(_, rows)| **rows != 1).map(|(name, _)| name.as_str());
    let foreign = effects.keys().map(String::as_str).filter(|name| !intents.contains(name));
    let lists =
        [("lost", sorted(missing)), ("done twice", sorted(doubled)), ("unknown", sorted(foreign))];
    for (what, names) in lists {
        if !names.is_empty() {
            problems.push(format!("{queue}: {what}: {}", listed(&names)));
        }
    }
    if claims != intents.len() {
        problems.push(format!("{queue}: {claims} claims for {} intents", intents.len()));
    }
}

/// No message may be left, and none among the dead letters: each of them can be handled.
fn look_for_left(scene: &Scene, queue: &str, problems: &mut Vec<String>) -> anyhow::Result<()> {
    let left = scene.emulator.peek(queue)?;
    if !left.is_empty() {
        let ids: Vec<String> = left.into_iter().filter_map(|message| message.message_id).collect();
        problems.push(format!("{queue}: left on the queue: {}", listed(&ids)));
    }
    let dead: Vec<String> = scene
        .emulator
        .dead_letters(queue)?
        .into_iter()
        .map(|message| {
            format!(
                "{} ({}: {})",
                message.message_id.unwrap_or_default(),
                message.dead_letter_reason.unwrap_or_default(),
                message.dead_letter_description.unwrap_or_default(),
            )
        })
        .collect();
    if !dead.is_empty() {
        problems.push(format!("{queue}: dead-lettered: {}", listed(&dead)));
    }
    Ok(())
}

fn sorted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort_unstable();
    names
}

fn listed(names: &[String]) -> String {
    let some = names.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(LISTED_MAX) {
        0 => some,
        more => format!("{some}, and {more} more"),
    }
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "what went wrong on purpose:")?;
        for (name, count) in &self.faults {
            writeln!(f, "{count:>9}  {name}")?;
        }
        writeln!(f, "what came of it:")?;
        for (name, count) in &self.counts {
            writeln!(f, "{count:>9}  {name}")?;
        }
        for problem in &self.problems {
            writeln!(f, "PROBLEM: {problem}")?;
        }
        let verdict = match self.is_good() {
            true => "nothing lost, nothing done twice, the queues are empty",
            false => "FAILED",
        };
        write!(f, "soak with seed {} in {:.0} s: {verdict}", self.seed, self.took.as_secs_f64())
    }
}
