//! Listening on the loopback interface, and a task for each connection.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::StartError;

/// How long to wait after the system failed to accept a connection, for instance for want of
/// file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A port that is open, and its number.
pub(crate) async fn open(port: u16) -> Result<(TcpListener, u16), StartError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::PortInUse { port },
        _ => StartError::Listen { port, source },
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address.port()))
}

/// Serves connections until `stopped` ends, and then cuts those that are left.
pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    mut stopped: watch::Receiver<()>,
    serve_one: impl Fn(TcpStream) -> F,
) {
    let mut connections = JoinSet::new();
    tokio::select! {
        () = accept(&listener, &mut connections, serve_one) => {}
        _ = stopped.changed() => {}
    }
    drop(listener);
    connections.shutdown().await;
}

async fn accept<F: Future<Output = ()> + Send + 'static>(
    listener: &TcpListener,
    connections: &mut JoinSet<()>,
    serve_one: impl Fn(TcpStream) -> F,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(serve_one(socket));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}
