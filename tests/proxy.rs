//! A TCP proxy in front of a database, which cuts the connection that commits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Where the connection is cut, at the next `COMMIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// Nowhere.
    Nowhere = 0,
    /// Before the server has seen the statement.
    BeforeTheServer = 1,
    /// After the server has committed, before its answer is passed on.
    BeforeTheAnswer = 2,
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
    cut: AtomicU8,
    cuts: AtomicU64,
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
        let shared = Arc::new(Shared { server, cut: AtomicU8::new(0), cuts: AtomicU64::new(0) });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared, _tasks: tasks }
    }

    /// Where the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts at the next `COMMIT`, once.
    pub fn cut_next(&self, cut: Cut) {
        self.shared.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// How many connections have been cut.
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(server) = TcpStream::connect(&shared.server).await else {
            continue;
        };
        connections.spawn(pass(client, server, Arc::clone(&shared)));
    }
}

/// Passes bytes both ways until either side ends, or the connection is cut.
async fn pass(mut client: TcpStream, mut server: TcpStream, shared: Arc<Shared>) {
    let (mut to_server, mut to_client) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut committing = false;
    loop {
        tokio::select! {
            read = client.read(&mut to_server) => {
                let Ok(1..) = read else { return };
                let bytes = &to_server[..read.unwrap_or(0)];
                let is_commit = is_commit(bytes);
                if is_commit && shared.takes(Cut::BeforeTheServer) {
                    return;
                }
                committing = is_commit && shared.takes(Cut::BeforeTheAnswer);
                if server.write_all(bytes).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut to_client) => {
                let Ok(1..) = read else { return };
                if committing {
                    return;
                }
                if client.write_all(&to_client[..read.unwrap_or(0)]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Whether the statement ends with our `COMMIT`, as PostgreSQL's or MySQL's protocol frames it, or
/// has the one of SQL Server in it, in UTF-16: `READ COMMITTED` is no commit.
fn is_commit(bytes: &[u8]) -> bool {
    let ending = b"; COMMIT AND CHAIN\0";
    let batch: Vec<u8> =
        "BEGIN COMMIT TRANSACTION;".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let has = |part: &[u8]| bytes.windows(part.len()).any(|word| word == part);
    has(ending) || has(&batch) || bytes.ends_with(b"\x03COMMIT")
}

impl Shared {
    /// Whether this is the cut that was asked for; it is made once.
    fn takes(&self, cut: Cut) -> bool {
        let taken = self
            .cut
            .compare_exchange(cut as u8, Cut::Nowhere as u8, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        self.cuts.fetch_add(u64::from(taken), Ordering::SeqCst);
        taken
    }
}
