//! Several processes on one database, and processes that are killed.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use idem_runtime::Outcome;
use tokio::time::{sleep, timeout};

use super::{assert_counts, assert_outcome};
use crate::engines::Engine;

/// Ends with the test.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(what: &str, database_url: &str) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_process"))
            .args([what, database_url])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("the process starts"))
    }

    fn first_line(&mut self) -> String {
        let mut line = String::new();
        let output = self.0.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says something");
        line.trim_end().to_owned()
    }

    /// What it says until it ends in order.
    fn output(mut self) -> String {
        let mut output = String::new();
        let mut stdout = self.0.stdout.take().expect("it is piped");
        stdout.read_to_string(&mut output).expect("it says something");
        assert!(self.0.wait().expect("it ends").success(), "{output}");
        output
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// killed after the claim and before the commit, with a redelivery at once. The server needs a
/// moment to see that the connection has gone.
pub(crate) async fn a_killed_process_leaves_no_claim_behind<E: Engine>(engine: &E) {
    let url = engine.url().to_owned();
    let mut process = tokio::task::spawn_blocking(move || {
        let mut process = Process::start("hold", &url);
        assert_eq!(process.first_line(), "held");
        process
    })
    .await
    .expect("it holds");
    if E::SERVER.is_some() {
        assert_outcome!(engine.place("r0", "ok").await, Outcome::Busy);
    }
    process.kill();
    let redelivered = timeout(Duration::from_secs(5), async {
        loop {
            match engine.place("r0", "ok").await {
                Outcome::Busy => sleep(Duration::from_millis(5)).await,
                outcome => break outcome,
            }
        }
    });
    assert_outcome!(redelivered.await.expect("the key is free"), Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

/// each message is handed to two processes at the same time.
pub(crate) async fn of_two_processes_one_handles_each_message<E: Engine>(engine: &E) {
    let run = || {
        let url = engine.url().to_owned();
        tokio::task::spawn_blocking(move || Process::start("deliver", &url).output())
    };
    let (one, other) = tokio::join!(run(), run());
    let counts = [one, other].map(|output| {
        let output = output.expect("no panic");
        let counts: Vec<u32> =
            output.split_whitespace().map(|count| count.parse().expect("a count")).collect();
        <[u32; 3]>::try_from(counts).expect("three counts")
    });
    let sum = |which: usize| counts.iter().map(|counts| counts[which]).sum::<u32>();
    assert_eq!((sum(0), sum(1)), (500, 500), "done, duplicates: {counts:?}");
    if E::SERVER.is_some() {
        assert!(sum(2) > 0, "whichever is behind catches up, and then they meet: {counts:?}");
    }
    assert_counts(engine, 500, 500).await;
}
