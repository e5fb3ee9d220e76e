//! The run: it sends, lets everything go wrong by the plan, and waits until the queues are empty.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use idem_emulator::{Counts, Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::{Sender, ServiceBus};
use tokio::time::{Instant, sleep};

use crate::Options;
use crate::database::Database;
use crate::faults::Faults;
use crate::messages::{ENTRIES, Messages, ORDERS, QUEUES};
use crate::plan::{Action, Manner, Plan};
use crate::processes::Processes;
use crate::progress::Progress;
use crate::verdict::{Fired, Verdict};

/// The shortest that the cloud allows, so that what was lost comes again soon. The number of
/// deliveries is the cloud's default, 10.
const LOCK: Duration = Duration::from_secs(5);

/// The run is given up when no message is completed for so long.
const STALL: Duration = Duration::from_secs(90);

/// How long whoever owns the database server may take to restart it.
const RESTART_MAX: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_millis(50);

/// How many messages are sent at once.
const BATCH: usize = 50;

/// How often a batch is sent that may not have arrived.
const SENDS_MAX: u32 = 10;

/// Sends, consumes and compares.
///
/// # Errors
///
/// When the run cannot be set up, a consumer ends by itself, or nothing moves any more.
pub(crate) async fn run(options: &Options, seed: u64) -> anyhow::Result<Verdict> {
    eprintln!("    seed {seed}, {} messages", options.messages);
    let scene = Scene::prepare(options, seed).await?;
    let mut conductor = Conductor::new(&scene, options, seed);
    let started = Instant::now();
    tokio::try_join!(scene.send(), conductor.conduct())?;
    // Before the last consumers are stopped, which is no fault.
    let fired = conductor.fired();
    conductor.processes.stop_all().await?;
    Verdict::reach(&scene, fired, seed, started.elapsed()).await
}

/// What consumers and faults act on.
pub(crate) struct Scene {
    pub(crate) messages: Messages,
    pub(crate) emulator: Emulator,
    pub(crate) database: Database,
    all_sent: AtomicBool,
}

impl Scene {
    async fn prepare(options: &Options, seed: u64) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&options.logs)
            .with_context(|| format!("cannot make {}", options.logs.display()))?;
        let database = Database::prepare(&options.database_url).await?;
        let emulator = QUEUES.into_iter().fold(Emulator::builder(), |builder, queue| {
            builder.queue(QueueOptions::new(queue).lock_duration(LOCK))
        });
        let emulator = emulator.start().await?;
        let messages = Messages::new(seed, options.messages);
        Ok(Self { messages, emulator, database, all_sent: AtomicBool::new(false) })
    }

    /// Sends all messages, and keeps the queues short.
    async fn send(&self) -> anyhow::Result<()> {
        let waiting_max = (self.messages.planned.len() / 20).min(1_000);
        let bus = ServiceBus::connect(&self.emulator.connection_string())?;
        let (orders, entries) = (bus.sender(ORDERS).await?, bus.sender(ENTRIES).await?);
        for batch in self.messages.planned.chunks(BATCH) {
            while self.counts()?.iter().map(|counts| counts.active).sum::<usize>() > waiting_max {
                sleep(TICK).await;
            }
            for (queue, sender) in [(ORDERS, &orders), (ENTRIES, &entries)] {
                let of_queue = batch.iter().filter(|planned| planned.queue == queue);
                let messages: anyhow::Result<Vec<_>> =
                    of_queue.map(|planned| planned.message()).collect();
                send_batch(sender, messages?).await?;
            }
        }
        self.all_sent.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn counts(&self) -> anyhow::Result<[Counts; 2]> {
        Ok([self.emulator.counts(ORDERS)?, self.emulator.counts(ENTRIES)?])
    }

    fn is_empty(&self) -> anyhow::Result<bool> {
        let counts = self.counts()?;
        let left = counts.iter().map(|it| it.active + it.locked + it.deferred + it.scheduled);
        Ok(self.all_sent.load(Ordering::Relaxed) && left.sum::<usize>() == 0)
    }
}

/// As a publisher does that must not lose anything: again, until it is told that all has arrived.
async fn send_batch(sender: &Sender, messages: Vec<OutgoingMessage>) -> anyhow::Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    for _ in 1..SENDS_MAX {
        if sender.send_all(messages.clone()).await.is_ok() {
            return Ok(());
        }
        sleep(TICK).await;
    }
    sender.send_all(messages).await.context("cannot send")
}

/// Whoever makes things go wrong.
struct Conductor<'a> {
    scene: &'a Scene,
    plan: Plan,
    faults: Faults,
    processes: Processes,
    restarts: Restarts,
    /// Kills while messages were locked.
    kills_in_mid_work: u64,
}

/// Restarts of the database server.
#[derive(Debug, Default)]
struct Restarts {
    fast: u64,
    immediate: u64,
    asked: Option<Asked>,
}

/// A restart that was asked for and has not been seen yet.
#[derive(Debug)]
struct Asked {
    manner: Manner,
    at: Instant,
    /// When the server that is to end had started.
    started_at: String,
}

impl<'a> Conductor<'a> {
    fn new(scene: &'a Scene, options: &Options, seed: u64) -> Self {
        let bus = scene.emulator.connection_string();
        Self {
            scene,
            plan: Plan::new(seed, options.messages),
            faults: Faults::arm(&scene.emulator, seed),
            processes: Processes::new(&options.database_url, bus, options.logs.clone(), seed),
            restarts: Restarts::default(),
            kills_in_mid_work: 0,
        }
    }

    /// Follows the plan until all is done.
    async fn conduct(&mut self) -> anyhow::Result<()> {
        let mut progress = Progress::new(self.scene.messages.planned.len());
        let mut moved = (0, Instant::now());
        loop {
            self.processes.supervise()?;
            self.look_for_restart().await?;
            let completed = self.scene.emulator.events().totals().completed;
            while let Some(action) = self.plan.due(completed) {
                if !self.act(action).await? {
                    self.plan.put_back(action);
                    break;
                }
            }
            progress.show(completed, self.describe());
            if completed != moved.0 {
                moved = (completed, Instant::now());
            } else if moved.1.elapsed() > STALL {
                bail!("nothing was completed for {STALL:?}: {:?}", self.scene.counts()?);
            }
            if self.plan.is_done() && self.restarts.asked.is_none() && self.scene.is_empty()? {
                return Ok(());
            }
            sleep(TICK).await;
        }
    }

    /// Does what the plan asks for; false if that cannot be done now.
    async fn act(&mut self, action: Action) -> anyhow::Result<bool> {
        match action {
            Action::Kill => {
                let in_mid_work = self.scene.counts()?.iter().any(|counts| counts.locked > 0);
                let killed = self.processes.kill().await?;
                self.kills_in_mid_work += u64::from(killed && in_mid_work);
                Ok(killed)
            }
            Action::Stop => self.processes.stop(),
            Action::RestartDatabase(manner) => self.ask_for_restart(manner).await,
            Action::Wire(once) => {
                self.faults.once(once);
                Ok(true)
            }
        }
    }

    async fn ask_for_restart(&mut self, manner: Manner) -> anyhow::Result<bool> {
        if self.restarts.asked.is_some() {
            return Ok(false);
        }
        let Some(started_at) = self.scene.database.started_at().await else { return Ok(false) };
        println!("restart {manner}");
        self.restarts.asked = Some(Asked { manner, at: Instant::now(), started_at });
        Ok(true)
    }

    /// A restart counts when another server than before answers.
    async fn look_for_restart(&mut self) -> anyhow::Result<()> {
        let Some(asked) = &self.restarts.asked else { return Ok(()) };
        ensure!(
            asked.at.elapsed() < RESTART_MAX,
            "nobody has restarted the database server; run `cargo xtask soak`, which does"
        );
        let started_at = self.scene.database.started_at().await;
        if started_at.is_none_or(|started_at| started_at == asked.started_at) {
            return Ok(());
        }
        match asked.manner {
            Manner::Fast => self.restarts.fast += 1,
            Manner::Immediate => self.restarts.immediate += 1,
        }
        self.restarts.asked = None;
        Ok(())
    }

    fn describe(&self) -> String {
        let restarts = self.restarts.fast + self.restarts.immediate;
        format!("{} kills, {restarts} database restarts", self.processes.ended.killed)
    }

    fn fired(&self) -> Fired {
        let ended = self.processes.ended;
        let mut faults = vec![
            ("consumers killed while messages were locked", self.kills_in_mid_work),
            ("consumers stopped in order", ended.stopped),
            ("database restarts, fast", self.restarts.fast),
            ("database restarts, immediate", self.restarts.immediate),
        ];
        faults.extend(self.faults.fired());
        Fired { faults, tally: self.processes.tally(), not_started: ended.not_started }
    }
}
