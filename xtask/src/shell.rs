//! Running programs so that none outlives the command, even when it is interrupted.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often a wait looks at its condition and for an interrupt.
const POLL: Duration = Duration::from_millis(25);

/// How long a program gets to end by itself after it was asked to; nextest gives its tests ten
/// seconds, and must not be killed before them.
const GRACE: Duration = Duration::from_secs(20);

/// How long killed processes get to be gone.
const REST_GRACE: Duration = Duration::from_secs(1);

/// The longest stretch of output that is handled as one line.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Lines of output on their way from the reading threads; a full queue makes them wait.
const LINES_QUEUED_MAX: usize = 256;

/// Variables that `cargo run` sets for this program. Build scripts watch them (ring's does), so
/// passing them on would rebuild crates whenever `cargo xtask test` follows `cargo test`.
const CARGO_RUN_PREFIXES: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// Where programs are run from, and the one place that knows of an interrupt.
#[derive(Debug)]
pub(crate) struct Shell {
    root: PathBuf,
    interrupted: Arc<AtomicBool>,
}

impl Shell {
    /// Takes over Ctrl-C, SIGTERM and SIGHUP: from here on they are errors of the step at hand.
    pub(crate) fn new() -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))
                .context("cannot watch for Ctrl-C")?;
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in no workspace")?
            .to_owned();
        Ok(Self { root, interrupted })
    }

    /// The workspace's folder.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of build results, which also holds the tools that were installed for it.
    pub(crate) fn target(&self) -> PathBuf {
        match env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => self.root.join(folder),
            None => self.root.join("target"),
        }
    }

    /// The cargo that runs this program, as it would be from a fresh prompt.
    pub(crate) fn cargo(&self) -> Command {
        let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        for (name, _) in env::vars_os() {
            let set_by_cargo_run =
                CARGO_RUN_PREFIXES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix));
            if set_by_cargo_run {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs a program to its end with its output shown; its failure is an error.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        self.check()?;
        announce(command);
        let mut child = spawn(command)?;
        let status = self.wait(&mut child, command)?;
        succeeded(command, status)
    }

    /// Runs a program with its output in `log`, which is shown only if it fails.
    pub(crate) fn run_logged(&self, command: &mut Command, log: &Path) -> Result<()> {
        self.check()?;
        let (output, errors) = open_log(log)?;
        let mut child = spawn(command.stdout(output).stderr(errors))?;
        let status = self.wait(&mut child, command)?;
        ensure!(status.success(), "{} failed: {status}; {}", name(command), log_tail(log));
        Ok(())
    }

    /// Runs a program with its output shown, and also returns the lines that `wanted` picks.
    pub(crate) fn run_keeping(
        &self,
        command: &mut Command,
        wanted: fn(&str) -> bool,
    ) -> (Vec<String>, Result<()>) {
        announce(command);
        let mut kept = Vec::new();
        let result = self.run_piped(command.stderr(Stdio::piped()), "", &mut |line| {
            if wanted(line) {
                kept.push(line.trim().to_owned());
            }
        });
        (kept, result)
    }

    /// Runs a program with `label` before each line of its output, and hands on the lines.
    ///
    /// So one can tell whose output it is while several programs run.
    pub(crate) fn run_labelled(
        &self,
        command: &mut Command,
        label: &'static str,
        each: &mut dyn FnMut(&str),
    ) -> Result<()> {
        announce(command);
        self.run_piped(command.stderr(Stdio::piped()), label, each)
    }

    /// Runs a program with its output shown, and hands on the lines of it. Its errors go where ours
    /// go, so that it can draw on a terminal.
    pub(crate) fn run_heeding(
        &self,
        command: &mut Command,
        each: &mut dyn FnMut(&str),
    ) -> Result<()> {
        announce(command);
        self.run_piped(command, "", each)
    }

    fn run_piped(
        &self,
        command: &mut Command,
        label: &'static str,
        each: &mut dyn FnMut(&str),
    ) -> Result<()> {
        self.check()?;
        let mut child = spawn(command.stdout(Stdio::piped()))?;
        let (sender, lines) = mpsc::sync_channel(LINES_QUEUED_MAX);
        if let Some(output) = child.stdout.take() {
            forward(output, io::stdout(), label, sender.clone());
        }
        if let Some(errors) = child.stderr.take() {
            forward(errors, io::stderr(), label, sender.clone());
        }
        drop(sender);
        let mut ended: Option<(ExitStatus, Instant)> = None;
        loop {
            match lines.recv_timeout(POLL) {
                Ok(line) => each(&line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                // A program that leaves another one behind with its output open must not hold us.
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if ended.is_some_and(|(_, at)| at.elapsed() > GRACE) {
                        break;
                    }
                }
            }
            if ended.is_none() {
                ended = self.poll(&mut child, command)?.map(|status| (status, Instant::now()));
            }
        }
        let status = match ended {
            Some((status, _)) => status,
            None => self.wait(&mut child, command)?,
        };
        succeeded(command, status)
    }

    /// Waits until `done` says so, but no longer than `limit`; true when it did.
    pub(crate) fn wait_until(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> Result<bool>,
    ) -> Result<bool> {
        let start = Instant::now();
        while start.elapsed() < limit {
            self.check()?;
            if done()? {
                return Ok(true);
            }
            pause();
        }
        Ok(false)
    }

    /// Waits for Ctrl-C.
    pub(crate) fn wait_for_interrupt(&self) {
        while self.check().is_ok() {
            pause();
        }
    }

    /// An error once the command was interrupted.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    fn wait(&self, child: &mut Child, command: &Command) -> Result<ExitStatus> {
        loop {
            if let Some(status) = self.poll(child, command)? {
                return Ok(status);
            }
            pause();
        }
    }

    /// The program's status if it has ended; an interrupt ends it, and is an error.
    fn poll(&self, child: &mut Child, command: &Command) -> Result<Option<ExitStatus>> {
        if let Err(interrupted) = self.check() {
            stop(child, Signal::TERM)?;
            return Err(interrupted);
        }
        child.try_wait().with_context(|| format!("cannot wait for {}", name(command)))
    }
}

/// Starts a program in a process group of its own, without input.
///
/// With its own group it can be ended together with what it started, and a Ctrl-C at the
/// terminal reaches only this command, which then ends its programs in order.
pub(crate) fn spawn(command: &mut Command) -> Result<Child> {
    command
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", name(command)))
}

/// Asks a program and its group to end with `signal`, and ends them by force after a while.
pub(crate) fn stop(child: &mut Child, signal: Signal) -> Result<()> {
    if child.try_wait()?.is_some() {
        return Ok(());
    }
    let group = Pid::from_child(child);
    for signal in [signal, Signal::KILL] {
        // The only error possible is that it has ended meanwhile.
        let _ = kill_process_group(group, signal);
        let start = Instant::now();
        while start.elapsed() < GRACE {
            if child.try_wait()?.is_some() {
                end_rest(group);
                return Ok(());
            }
            pause();
        }
    }
    bail!("process {} cannot be ended", child.id())
}

/// Ends what a program has left in its group, so that nobody writes to its files any more.
///
/// An ended process still counts as a member until its parent collects it, and in a container
/// perhaps nobody does, so the wait is short.
fn end_rest(group: Pid) {
    let start = Instant::now();
    while kill_process_group(group, Signal::KILL).is_ok() && start.elapsed() < REST_GRACE {
        pause();
    }
}

/// A log file, opened twice: for a program's output and for its errors.
pub(crate) fn open_log(path: &Path) -> Result<(File, File)> {
    let output = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    let errors = output.try_clone()?;
    Ok((output, errors))
}

/// The last lines of a log, for an error.
pub(crate) fn log_tail(path: &Path) -> String {
    const LINES: usize = 15;
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    format!("it said:\n{}", tail.join("\n"))
}

fn forward(
    from: impl Read + Send + 'static,
    mut to: impl Write + Send + 'static,
    label: &'static str,
    lines: SyncSender<String>,
) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            line.extend_from_slice(label.as_bytes());
            match (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            // Our own output may be closed; the program goes on all the same.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            let unlabelled = line.get(label.len()..).unwrap_or_default();
            if lines.send(String::from_utf8_lossy(unlabelled).into_owned()).is_err() {
                return;
            }
        }
    });
}

fn succeeded(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{} failed: {status}", name(command));
    }
    Ok(())
}

fn announce(command: &Command) {
    let words: Vec<_> = std::iter::once(name(command))
        .chain(command.get_args().map(|word| word.to_string_lossy().into_owned()))
        .collect();
    eprintln!("    {}", words.join(" "));
}

/// The program's name without its folder.
fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

#[expect(clippy::disallowed_methods, reason = "this program has no async runtime to block")]
fn pause() {
    thread::sleep(POLL);
}

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process;

    use super::*;

    fn shell() -> Shell {
        Shell { root: PathBuf::from("/"), interrupted: Arc::default() }
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn keeps_wanted_lines_of_both_outputs_even_when_the_program_fails() {
        let (kept, result) = shell().run_keeping(
            &mut sh("echo 'wanted one'; echo noise; echo '  wanted two' >&2; exit 3"),
            |line| line.contains("wanted"),
        );
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(kept.contains(&"wanted one".to_owned()));
        assert!(kept.contains(&"wanted two".to_owned()));
        assert_eq!(result.unwrap_err().to_string(), "sh failed: exit status: 3");
    }

    #[test]
    fn lines_are_heeded_until_the_program_ends() {
        let (mut lines, start) = (Vec::new(), Instant::now());
        let mut heed = |line: &str| lines.push(line.to_owned());
        shell().run_heeding(&mut sh("echo restart; echo talk >&2; echo done"), &mut heed).unwrap();
        assert_eq!(lines, ["restart\n", "done\n"]);
        assert!(start.elapsed() < GRACE, "nobody else had its output open");
    }

    #[test]
    fn labelled_lines_are_handed_on_without_the_label() {
        let mut lines = Vec::new();
        let mut keep = |line: &str| lines.push(line.to_owned());
        shell().run_labelled(&mut sh("echo one; echo; printf two"), "js | ", &mut keep).unwrap();
        assert_eq!(lines, ["one\n", "\n", "two"]);
    }

    #[test]
    fn a_failed_logged_program_shows_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let error = shell().run_logged(&mut sh("echo no room left >&2; exit 1"), &log).unwrap_err();
        assert!(format!("{error:#}").contains("no room left"), "{error:#}");
    }

    #[test]
    fn an_interrupt_ends_the_program_and_what_it_started_even_if_that_resists() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let shell = shell();
        let script = format!("(trap '' TERM; sleep 600) & echo $! >{}; wait", pid_file.display());
        let mut command = sh(&script);
        let result = thread::scope(|scope| {
            let running = scope.spawn(|| shell.run(&mut command));
            while std::fs::read_to_string(&pid_file).map_or(true, |pid| !pid.ends_with('\n')) {
                pause();
            }
            shell.interrupted.store(true, Ordering::Relaxed);
            running.join().unwrap()
        });
        assert_eq!(result.unwrap_err().to_string(), "interrupted");

        let grandchild: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        let grandchild = Pid::from_raw(grandchild).unwrap();
        assert!(
            test_kill_process(grandchild).is_err() || is_zombie(grandchild),
            "the program's own child still runs"
        );
    }

    /// An ended process that its adoptive parent has not collected yet.
    fn is_zombie(process: Pid) -> bool {
        std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()))
            .is_ok_and(|stat| stat.contains(") Z "))
    }

    #[test]
    fn a_wait_is_bounded() {
        let limit = Duration::from_millis(60);
        assert!(!shell().wait_until(limit, || Ok(false)).unwrap());
        assert!(shell().wait_until(limit, || Ok(true)).unwrap());
    }

    #[test]
    fn a_log_tail_is_short() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let text: String = (0..100).map(|number| format!("line {number}\n")).collect();
        std::fs::write(&log, text).unwrap();
        let tail = log_tail(&log);
        assert!(tail.contains("line 99") && !tail.contains("line 80\n"), "{tail}");
    }
}
