//! A server that answers as it is told, in the protocol of SQL Server without encryption: what the
//! store makes of answers can be tested without a database, though not what a database answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tiberius::{AuthMethod, Config, EncryptionLevel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A value of a row.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bit(bool),
    Small(i16),
    Int(i32),
    Big(i64),
    Bytes(Vec<u8>),
    Text(&'static str),
    Null,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Rows, by result sets.
    Rows(Vec<Vec<Vec<Value>>>),
    /// An error with this number and class.
    Error(u32, u8),
    /// The connection is closed instead.
    Close,
}

impl Answer {
    /// One row.
    pub(super) fn row(values: impl Into<Vec<Value>>) -> Self {
        Self::Rows(vec![vec![values.into()]])
    }

    pub(super) fn nothing() -> Self {
        Self::Rows(vec![vec![]])
    }
}

/// What the server answers to the text of a request.
type Script = dyn Fn(&str) -> Answer + Send + Sync;

/// A server that runs until it is dropped.
pub(super) struct Server {
    port: u16,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    script: Box<Script>,
    asked: Mutex<Vec<String>>,
    connections: AtomicUsize,
    closed: Notify,
}

impl Server {
    pub(super) async fn new(script: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            asked: Mutex::default(),
            connections: AtomicUsize::new(0),
            closed: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, _tasks: tasks }
    }

    pub(super) fn config(&self) -> Config {
        let mut config = Config::new();
        config.host("127.0.0.1");
        config.port(self.port);
        config.database("orders");
        config.authentication(AuthMethod::sql_server("shop", "hunter2"));
        config.encryption(EncryptionLevel::NotSupported);
        config
    }

    /// The texts of all requests with this in them.
    pub(super) fn asked(&self, part: &str) -> Vec<String> {
        let asked = self.shared.asked.lock().expect("nobody panics with it");
        asked.iter().filter(|text| text.contains(part)).cloned().collect()
    }

    /// How many connections there have been.
    pub(super) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Waits until a client has closed its connection.
    pub(super) async fn until_closed(&self) {
        self.shared.closed.notified().await;
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            serve(stream, &shared).await;
            shared.closed.notify_one();
        });
    }
}

const BATCH: u8 = 1;
const RPC: u8 = 3;
const LOGIN: u8 = 16;
const PRELOGIN: u8 = 18;

async fn serve(mut stream: TcpStream, shared: &Shared) {
    while let Some((kind, payload)) = request(&mut stream).await {
        let answer = match kind {
            PRELOGIN => prelogin(),
            LOGIN => [login_ack(), done(false)].concat(),
            BATCH | RPC => {
                let text = text(&payload);
                let answer = (shared.script)(&text);
                shared.asked.lock().expect("nobody panics with it").push(text);
                match answer {
                    Answer::Rows(results) => {
                        let results = results.iter().flat_map(|rows| result(rows));
                        results.chain(done(false)).collect()
                    }
                    Answer::Error(number, class) => [error(number, class), done(false)].concat(),
                    Answer::Close => return,
                }
            }
            kind => panic!("a request of kind {kind}"),
        };
        let length = u16::try_from(answer.len() + 8).expect("it fits into a packet").to_be_bytes();
        let header = [4, 1, length[0], length[1], 0, 0, 1, 0];
        if stream.write_all(&[&header[..], &answer].concat()).await.is_err() {
            return;
        }
    }
}

/// The packets of one request, without their headers.
async fn request(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut payload = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await.ok()?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let mut packet = vec![0; length.checked_sub(8)?];
        stream.read_exact(&mut packet).await.ok()?;
        payload.extend(packet);
        if header[1] & 1 == 1 {
            return Some((header[0], payload));
        }
    }
}

/// All text in a request, at even and at odd places.
fn text(payload: &[u8]) -> String {
    let units = |from: usize| {
        let pairs = payload[from..].chunks_exact(2);
        pairs.map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect::<Vec<_>>()
    };
    [0, 1].map(|from| String::from_utf16_lossy(&units(from))).concat()
}

/// A version, and that there is no encryption.
fn prelogin() -> Vec<u8> {
    vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff, 16, 0, 0, 0, 0, 0, 2]
}

fn login_ack() -> Vec<u8> {
    let body = [&[1, 0x74, 0, 0, 4][..], &short_text("scripted"), &[0; 4]].concat();
    [&[0xad][..], &length_of(&body), &body].concat()
}

fn done(with_more: bool) -> Vec<u8> {
    [&[0xfd, u8::from(with_more), 0, 0, 0][..], &[0; 8]].concat()
}

fn error(number: u32, class: u8) -> Vec<u8> {
    let message = "Violation of UNIQUE KEY constraint 'orders_uq' in object 'dbo.orders'. Or not.";
    let body = [
        &number.to_le_bytes()[..],
        &[1, class],
        &u16::try_from(message.len()).expect("short").to_le_bytes(),
        &utf16(message),
        &short_text("scripted"),
        &short_text(""),
        &1u32.to_le_bytes(),
    ];
    let body = body.concat();
    [&[0xaa][..], &length_of(&body), &body].concat()
}

/// A result set. Without rows it has no columns.
fn result(rows: &[Vec<Value>]) -> Vec<u8> {
    let columns = rows.first().map_or(&[][..], Vec::as_slice);
    let mut bytes = vec![0x81];
    bytes.extend(u16::try_from(columns.len()).expect("few").to_le_bytes());
    for value in columns {
        bytes.extend([0; 6]);
        bytes.extend(value.column_type());
        bytes.push(0);
    }
    for row in rows {
        bytes.push(0xd1);
        row.iter().for_each(|value| bytes.extend(value.bytes()));
    }
    bytes.extend(done(true));
    bytes
}

impl Value {
    fn column_type(&self) -> Vec<u8> {
        match self {
            Self::Bit(_) => vec![0x32],
            Self::Small(_) => vec![0x34],
            Self::Int(_) => vec![0x38],
            Self::Big(_) => vec![0x7f],
            Self::Bytes(_) | Self::Null => vec![0xa5, 0x40, 0x1f],
            Self::Text(_) => vec![0xe7, 0x40, 0x1f, 9, 4, 0, 0, 0],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Bit(value) => vec![u8::from(*value)],
            Self::Small(value) => value.to_le_bytes().to_vec(),
            Self::Int(value) => value.to_le_bytes().to_vec(),
            Self::Big(value) => value.to_le_bytes().to_vec(),
            Self::Bytes(value) => [&length_of(value)[..], value].concat(),
            Self::Text(text) => [&length_of(&utf16(text))[..], &utf16(text)].concat(),
            Self::Null => vec![0xff, 0xff],
        }
    }
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

fn short_text(text: &str) -> Vec<u8> {
    [vec![u8::try_from(text.len()).expect("short")], utf16(text)].concat()
}

fn length_of(bytes: &[u8]) -> [u8; 2] {
    u16::try_from(bytes.len()).expect("short").to_le_bytes()
}
