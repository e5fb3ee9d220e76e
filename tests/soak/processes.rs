//! The consumers' processes, and the supervisor that puts others in the places of those that ended.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::consumer::{NOT_STARTED, Tally};

const CONSUMERS: usize = 3;

/// A killed consumer is replaced after up to so many milliseconds.
const AWAY_MAX: u64 = 1_500;

/// One that could not start is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Longer than a consumer's own deadline for a stop, on a busy machine.
const STOP_MAX: Duration = Duration::from_secs(60);

/// The consumers. Dropping it ends them.
pub(crate) struct Processes {
    database_url: String,
    bus: String,
    logs: PathBuf,
    places: Vec<Place>,
    /// What each consumer, also those that have ended, has last said; `None` before it consumes.
    tallies: Vec<Arc<Mutex<Option<Tally>>>>,
    readers: JoinSet<()>,
    random: Rng,
    pub(crate) ended: Ended,
}

/// How consumers have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) killed: u64,
    pub(crate) stopped: u64,
    /// The database or the broker was away.
    pub(crate) not_started: u64,
}

/// The place of one consumer.
enum Place {
    /// Until then.
    Empty(Instant),
    Taken(Running),
}

struct Running {
    child: Child,
    tally: Arc<Mutex<Option<Tally>>>,
    asked_to_stop: Option<Instant>,
}

impl Running {
    fn is_at_work(&self) -> bool {
        self.asked_to_stop.is_none() && lock(&self.tally).is_some()
    }
}

impl Processes {
    pub(crate) fn new(database_url: &str, bus: String, logs: PathBuf, seed: u64) -> Self {
        Self {
            database_url: database_url.to_owned(),
            bus,
            logs,
            places: (0..CONSUMERS).map(|_| Place::Empty(Instant::now())).collect(),
            tallies: Vec::new(),
            readers: JoinSet::new(),
            random: Rng::with_seed(seed),
            ended: Ended::default(),
        }
    }

    /// What all consumers have said so far.
    pub(crate) fn tally(&self) -> Tally {
        let said = self.tallies.iter().filter_map(|tally| *lock(tally));
        said.fold(Tally::default(), Tally::plus)
    }

    /// Notes who has ended, and fills the empty places. That a consumer ends without being asked
    /// to, once it has started, is an error.
    pub(crate) fn supervise(&mut self) -> anyhow::Result<()> {
        self.note_ended()?;
        for number in 0..CONSUMERS {
            if let Some(Place::Empty(until)) = self.places.get(number)
                && Instant::now() >= *until
            {
                self.places[number] = Place::Taken(self.spawn(number)?);
            }
        }
        Ok(())
    }

    /// Kills a consumer that is at work; false if there is none.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<bool> {
        let Some(number) = self.choose() else { return Ok(false) };
        let away = Duration::from_millis(self.random.u64(..AWAY_MAX));
        let empty = Place::Empty(Instant::now() + away);
        if let Place::Taken(mut running) = std::mem::replace(&mut self.places[number], empty) {
            running.child.kill().await.context("cannot kill a consumer")?;
            self.ended.killed += 1;
        }
        Ok(true)
    }

    /// Asks a consumer that is at work to stop; false if there is none.
    pub(crate) fn stop(&mut self) -> anyhow::Result<bool> {
        let Some(number) = self.choose() else { return Ok(false) };
        self.ask_to_stop(number)?;
        Ok(true)
    }

    /// Asks all consumers to stop, and waits until they have.
    pub(crate) async fn stop_all(&mut self) -> anyhow::Result<()> {
        for number in 0..CONSUMERS {
            self.ask_to_stop(number)?;
        }
        while self.places.iter().any(|place| matches!(place, Place::Taken(_))) {
            self.note_ended()?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    fn choose(&mut self) -> Option<usize> {
        let at_work =
            |place: &Place| matches!(place, Place::Taken(running) if running.is_at_work());
        let places = self.places.iter().enumerate();
        let at_work: Vec<usize> =
            places.filter(|(_, place)| at_work(place)).map(|(number, _)| number).collect();
        self.random.choice(at_work)
    }

    fn ask_to_stop(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(Place::Taken(running)) = self.places.get_mut(number)
            && running.asked_to_stop.is_none()
            && let Some(process) = running.child.id()
        {
            let process = Pid::from_raw(process.try_into()?).context("a process has a number")?;
            kill_process(process, Signal::TERM).context("cannot signal a consumer")?;
            running.asked_to_stop = Some(Instant::now());
        }
        Ok(())
    }

    fn note_ended(&mut self) -> anyhow::Result<()> {
        for number in 0..CONSUMERS {
            let Some(Place::Taken(running)) = self.places.get_mut(number) else { continue };
            let asked = running.asked_to_stop;
            if let Some(status) = running.child.try_wait()? {
                let empty = self.after(number, status, asked.is_some())?;
                self.places[number] = empty;
            } else if asked.is_some_and(|asked| asked.elapsed() > STOP_MAX) {
                bail!("consumer {number} does not stop after {STOP_MAX:?}");
            }
        }
        Ok(())
    }

    /// What comes after a consumer that has ended.
    fn after(&mut self, number: usize, status: ExitStatus, asked: bool) -> anyhow::Result<Place> {
        if status.code() == Some(i32::from(NOT_STARTED)) {
            self.ended.not_started += 1;
            return Ok(Place::Empty(Instant::now() + AGAIN_AFTER));
        }
        ensure!(asked, "consumer {number} ended by itself: {status}");
        ensure!(status.success(), "consumer {number} did not stop in order: {status}");
        self.ended.stopped += 1;
        Ok(Place::Empty(Instant::now()))
    }

    fn spawn(&mut self, number: usize) -> anyhow::Result<Running> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("consume")
            .arg("--log")
            .arg(self.logs.join(format!("consumer-{number}.log")))
            .env("DATABASE_URL", &self.database_url)
            .env("SERVICEBUS_CONNECTION_STRING", &self.bus)
            // It ends when this end of its input does.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a consumer")?;
        let output = child.stdout.take().context("the output is a pipe")?;
        let tally = Arc::default();
        self.tallies.push(Arc::clone(&tally));
        self.readers.spawn(read(output, Arc::clone(&tally)));
        Ok(Running { child, tally, asked_to_stop: None })
    }
}

/// Keeps what a consumer has said last.
async fn read(output: ChildStdout, tally: Arc<Mutex<Option<Tally>>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(said) = serde_json::from_str(&line) {
            *lock(&tally) = Some(said);
        }
    }
}

fn lock(tally: &Mutex<Option<Tally>>) -> std::sync::MutexGuard<'_, Option<Tally>> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
