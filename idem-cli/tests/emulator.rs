//! `idem emulator`, as its users run it.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn idem(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
    command.arg("emulator").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What the command comes to, if it does not go on to serve.
fn refusal(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = idem(arguments).output().unwrap();
    assert!(!status.success() && stdout.is_empty(), "{status}");
    String::from_utf8(stderr).unwrap()
}

/// A running emulator; it ends with the test.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    connection_string: String,
    amqp: u16,
    http: u16,
    entities: usize,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = idem(&["--port", "0", "--http-port", "0"]).args(arguments).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut value_of = |name: &str| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
            value.unwrap_or_else(|| panic!("`{line}` is not `{name}`")).trim().to_owned()
        };
        let connection_string = value_of("connection string");
        let http = value_of("control API").strip_prefix("http://localhost:").unwrap().parse();
        let entities = value_of("entities").parse();
        assert!(value_of("to stop").contains("Ctrl-C"));
        let endpoint = connection_string.strip_prefix("Endpoint=sb://localhost:").unwrap();
        let (amqp, _) = endpoint.split_once(';').unwrap();
        Self {
            amqp: amqp.parse().unwrap(),
            http: http.unwrap(),
            entities: entities.unwrap(),
            connection_string,
            child,
            output,
        }
    }

    fn call(&self, method: &str, path: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.http)).unwrap();
        let length = body.len();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        response
    }

    /// Ends it as a shell or a supervisor does; nothing more is printed.
    fn stop(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        for port in [self.amqp, self.http] {
            TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already where the test has stopped it.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

const CONFIG: &str = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    {"Name": "orders", "Properties": {"LockDuration": "PT10S"}}
]}]}}"#;

fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn it_serves_the_entities_of_a_configuration_until_sigterm() {
    let file = config(CONFIG);
    let emulator = Running::start(&["--config", file.path().to_str().unwrap()]);
    assert!(emulator.connection_string.contains("UseDevelopmentEmulator=true"));
    assert_eq!(emulator.entities, 1);
    assert!(emulator.call("GET", "/health", "").contains(r#""status":"healthy""#));
    assert!(emulator.call("GET", "/control/entities", "").contains(r#""name":"orders""#));
    emulator.stop(Signal::TERM);
}

#[test]
fn without_a_configuration_entities_come_over_http() {
    let emulator = Running::start(&[]);
    assert_eq!(emulator.entities, 0);
    let created = emulator.call("PUT", "/control/queues/orders", "{}");
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let refused = emulator.call("POST", "/control/clock", r#"{"advance_ms": 1}"#);
    assert!(refused.starts_with("HTTP/1.1 409"), "{refused}");
    // A client that is still connected does not keep it from stopping.
    let _client = TcpStream::connect(("127.0.0.1", emulator.amqp)).unwrap();
    emulator.stop(Signal::INT);
}

#[test]
fn a_manual_clock_is_moved_over_http() {
    let emulator = Running::start(&["--manual-clock"]);
    let moved = emulator.call("POST", "/control/clock", r#"{"advance_ms": 1}"#);
    assert!(moved.starts_with("HTTP/1.1 200") && moved.contains(r#""manual":true"#), "{moved}");
    emulator.stop(Signal::TERM);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for options in [["--port", &port, "--http-port", "0"], ["--port", "0", "--http-port", &port]] {
        let text = refusal(&options);
        assert!(text.contains(&format!("port {port} is in use")), "{text}");
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_its_file_and_place() {
    let file = config(&CONFIG.replace("PT10S", "PT10M"));
    let path = file.path().to_str().unwrap();
    let text = refusal(&["--config", path]);
    for part in [path, "UserConfig.Namespaces[0].Queues[0].Properties.LockDuration", "PT10M"] {
        assert!(text.contains(part), "{text}");
    }
    let text = refusal(&["--config", "/no/such/Config.json"]);
    assert!(text.contains("/no/such/Config.json"), "{text}");
}

#[test]
fn the_help_says_what_each_option_does() {
    let Output { status, stdout, .. } = idem(&["--help"]).output().unwrap();
    assert!(status.success());
    let text = String::from_utf8(stdout).unwrap();
    for part in ["--config <FILE>", "[default: 5672]", "[default: 5300]", "POST /control/clock"] {
        assert!(text.contains(part), "{text}");
    }
}
