//! `/health` and the control API: what the library offers, for programs in other languages.
//!
//! What goes wrong is answered with `{"error": "..."}`.

mod clock;
mod entities;
mod events;
mod exchange;
mod faults;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::routing::{delete, get, post, put};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::broker::Broker;
use crate::listen;
use exchange::{Answer, Failure, answer};

/// The largest body of a request, in bytes.
const BODY_MAX: usize = 1024 * 1024;

/// How long a client may take to send the head of its next request.
const HEAD_TIME_OUT: Duration = Duration::from_secs(30);

/// Serves until the emulator is shut down.
pub(crate) async fn serve(
    listener: TcpListener,
    broker: Arc<Broker>,
    stopped: watch::Receiver<()>,
) {
    let router = router(broker);
    listen::serve(listener, stopped, move |socket| serve_one(socket, router.clone())).await;
}

async fn serve_one(socket: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_OUT)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

fn router(broker: Arc<Broker>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/control/entities", get(entities::list))
        .route("/control/entities/{*path}", get(entities::one))
        .route("/control/queues/{name}", put(entities::create_queue).delete(entities::delete_queue))
        .route("/control/topics/{name}", put(entities::create_topic).delete(entities::delete_topic))
        .route(
            "/control/topics/{topic}/subscriptions/{name}",
            put(entities::create_subscription).delete(entities::delete_subscription),
        )
        .route("/control/purge/{*path}", post(entities::purge))
        .route("/control/reset", post(entities::reset))
        .route("/control/faults", get(faults::list).post(faults::add))
        .route("/control/faults/{id}", delete(faults::remove))
        .route("/control/clock", get(clock::read).post(clock::advance))
        .route("/control/events", get(events::page))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(broker)
}

/// The port opens when the emulator is ready, so whoever gets an answer gets this one.
async fn health() -> Answer {
    #[derive(serde::Serialize)]
    struct Health {
        status: &'static str,
        message: &'static str,
    }
    answer(StatusCode::OK, &Health { status: "healthy", message: "Service is healthy." })
}

async fn unknown_path(uri: Uri) -> Failure {
    Failure::new(StatusCode::NOT_FOUND, format!("there is nothing at `{}`", uri.path()))
}

async fn unknown_method(method: Method, uri: Uri) -> Failure {
    Failure::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("`{}` does not know `{method}`", uri.path()),
    )
}
