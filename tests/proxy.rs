//! A TCP proxy in front of a database, which cuts connections at a moment, or all of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Which statement's connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Our `COMMIT`.
    Commit,
    /// One with this text. A prepared statement has it when its connection first runs it.
    Statement(&'static str),
}

/// On which side of the server the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Before the server has seen the statement.
    BeforeTheServer,
    /// After the server has run it, before its answer is passed on.
    BeforeTheAnswer,
}

/// A proxy that runs until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    server: String,
    next: Mutex<Option<(Moment, Cut)>>,
    cuts: AtomicU64,
    is_down: watch::Sender<bool>,
}

impl Proxy {
    /// A proxy for the server at `host:port`.
    ///
    /// # Panics
    ///
    /// When no port is free.
    pub async fn new(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let (next, cuts) = (Mutex::new(None), AtomicU64::new(0));
        let is_down = watch::Sender::new(false);
        let shared = Arc::new(Shared { server, next, cuts, is_down });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, _tasks: tasks }
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts at the next such moment, once.
    pub fn cut_next(&self, moment: Moment, cut: Cut) {
        *self.shared.next() = Some((moment, cut));
    }

    /// How many connections have been cut at their moment.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }

    /// Cuts all connections and takes no new ones, until told otherwise.
    pub fn set_down(&self, is_down: bool) {
        self.shared.is_down.send_replace(is_down);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if *shared.is_down.borrow() {
            continue;
        }
        let Ok(server) = TcpStream::connect(&shared.server).await else {
            continue;
        };
        connections.spawn(pass(client, server, Arc::clone(&shared)));
    }
}

async fn until(is_down: &mut watch::Receiver<bool>) {
    is_down.wait_for(|is_down| *is_down).await.ok();
}

/// Passes bytes both ways until either side ends, or the connection is cut.
async fn pass(mut client: TcpStream, mut server: TcpStream, shared: Arc<Shared>) {
    let (mut to_server, mut to_client) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut is_down = shared.is_down.subscribe();
    let mut answer_is_cut = false;
    loop {
        tokio::select! {
            () = until(&mut is_down) => return,
            read = client.read(&mut to_server) => {
                let Ok(1..) = read else { return };
                let bytes = &to_server[..read.unwrap_or(0)];
                match shared.takes(bytes) {
                    Some(Cut::BeforeTheServer) => return,
                    Some(Cut::BeforeTheAnswer) => answer_is_cut = true,
                    None => {}
                }
                if server.write_all(bytes).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut to_client) => {
                let Ok(1..) = read else { return };
                if answer_is_cut {
                    return;
                }
                if client.write_all(&to_client[..read.unwrap_or(0)]).await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Moment {
    fn is_in(self, bytes: &[u8]) -> bool {
        let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        match self {
            // As PostgreSQL's or MySQL's protocol frames it, or as SQL Server's has it, in UTF-16:
            // `READ COMMITTED` is no commit.
            Self::Commit => {
                let batch = "BEGIN COMMIT TRANSACTION;".encode_utf16();
                let batch: Vec<u8> = batch.flat_map(u16::to_le_bytes).collect();
                contains(b"CLOSE idem; COMMIT")
                    || contains(&batch)
                    || bytes.ends_with(b"\x03COMMIT")
            }
            Self::Statement(text) => contains(text.as_bytes()),
        }
    }
}

impl Shared {
    fn next(&self) -> std::sync::MutexGuard<'_, Option<(Moment, Cut)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cut that was asked for at what these bytes say; it is made once.
    fn takes(&self, bytes: &[u8]) -> Option<Cut> {
        let (_, cut) = self.next().take_if(|(moment, _)| moment.is_in(bytes))?;
        self.cuts.fetch_add(1, Ordering::SeqCst);
        Some(cut)
    }
}
