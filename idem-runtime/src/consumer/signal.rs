//! The signals that ask a process to stop.

use tracing::{info, warn};

/// Completes at Ctrl-C, or where there is such a thing at SIGTERM: for
/// [`run_until`](crate::Consumer::run_until).
///
/// While the consumer then stops in order, a second signal ends the process at once with exit code
/// 130. Nothing is lost: what was not settled comes again.
pub async fn shutdown_signal() {
    signal().await;
    info!("stopping; a second signal ends the process at once");
    #[expect(clippy::disallowed_methods, reason = "it waits for as long as the process lives")]
    tokio::spawn(async {
        signal().await;
        warn!("ended by a second signal");
        #[expect(clippy::disallowed_methods, reason = "this is what the second signal asks for")]
        std::process::exit(130);
    });
}

async fn signal() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    let terminate = async {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => signals.recv().await,
            Err(error) => {
                warn!(%error, "cannot listen for SIGTERM");
                std::future::pending().await
            }
        }
    };
    #[cfg(not(unix))]
    let terminate = std::future::pending::<Option<()>>();
    tokio::select! {
        result = interrupt => if let Err(error) = result {
            warn!(%error, "cannot listen for Ctrl-C");
            std::future::pending::<()>().await;
        },
        _ = terminate => {}
    }
}
