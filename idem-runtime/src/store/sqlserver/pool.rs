//! A bounded number of connections, since the driver has no pool.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tiberius::Config;
use tiberius::error::{Error, IoErrorKind};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};

use super::error::fault;
use crate::store::Fault;

/// A connection as handlers use it.
pub(super) type Client = tiberius::Client<Compat<TcpStream>>;

/// How long a handler waits for a connection before its message is tried again later.
const LEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// For how long a connection may be idle and is still used. Firewalls forget those that are silent
/// for some minutes, and what is sent on them then is lost without a word.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// How often the gateway of Azure may send us on to another server.
const ROUTES_MAX: u32 = 3;

/// Connections to one database.
#[derive(Clone)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    connections_max: u32,
    places: Arc<Semaphore>,
    /// Those that somebody has used and given back; the last one is used first.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    client: Client,
    since: Instant,
}

impl Pool {
    pub(super) fn new(config: Config, connections_max: u32) -> Self {
        let places = usize::try_from(connections_max).unwrap_or(Semaphore::MAX_PERMITS);
        let places = Arc::new(Semaphore::new(places.clamp(1, Semaphore::MAX_PERMITS)));
        let idle = Mutex::default();
        Self { shared: Arc::new(Shared { config, connections_max, places, idle }) }
    }

    pub(super) fn connections_max(&self) -> u32 {
        self.shared.connections_max
    }

    pub(super) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Waits for a place, and takes a connection that is idle or makes one.
    pub(super) async fn lease(&self) -> Result<Lease, Error> {
        let place = timeout(LEASE_TIMEOUT, Arc::clone(&self.shared.places).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(timed_out("all connections were in use for too long"));
        };
        let client = match self.take_idle() {
            Some(client) => client,
            None => connect(&self.shared.config).await?,
        };
        Ok(Lease { client, pool: self.clone(), _place: place })
    }

    fn take_idle(&self) -> Option<Client> {
        let mut idle = self.shared.idle();
        // Those below it have been idle for longer.
        if idle.last().is_some_and(|last| last.since.elapsed() > IDLE_MAX) {
            idle.clear();
        }
        idle.pop().map(|idle| idle.client)
    }

    /// Closes what is idle where a connection has broken: the others probably have too.
    pub(super) fn heed(&self, error: &Error) {
        if fault(error) == Fault::Unavailable {
            self.shared.idle().clear();
        }
    }
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("idle", &self.shared.idle().len()).finish_non_exhaustive()
    }
}

/// A connection and its place in the pool. It is closed unless it is given back, and the server
/// then rolls back what was open: whoever is in doubt about its state drops it.
pub(super) struct Lease {
    client: Client,
    pool: Pool,
    _place: OwnedSemaphorePermit,
}

impl Lease {
    /// For the next one. No transaction may be open on it.
    pub(super) fn give_back(self) {
        let Self { client, pool, _place } = self;
        pool.shared.idle().push(Idle { client, since: Instant::now() });
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client's own would show what it has last received.
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

impl Deref for Lease {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// A connection outside any pool.
pub(super) async fn connect(config: &Config) -> Result<Client, Error> {
    match timeout(LEASE_TIMEOUT, follow(config.clone())).await {
        Ok(connected) => connected,
        Err(_) => Err(timed_out("the server did not let us in in time")),
    }
}

async fn follow(mut config: Config) -> Result<Client, Error> {
    for _ in 0..ROUTES_MAX {
        let stream = TcpStream::connect(config.get_addr()).await?;
        stream.set_nodelay(true)?;
        match Client::connect(config.clone(), stream.compat_write()).await {
            Err(Error::Routing { host, port }) => {
                config.host(host);
                config.port(port);
            }
            connected => return connected,
        }
    }
    Err(timed_out("the server sent us on to another one again and again"))
}

fn timed_out(problem: &str) -> Error {
    Error::Io { kind: IoErrorKind::TimedOut, message: problem.to_owned() }
}
