//! A thread with a runtime of its own.
//!
//! On a runtime of several threads the client can hang: a quick answer of the broker overtakes the
//! registration of what was sent. So each client lives on one thread, and the tasks that handle
//! deliveries talk to it through channels.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use futures_util::FutureExt;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use super::error::Place;
use crate::broker::BrokerError;

/// Without optimisation the client's futures take 3 to 4 MB of stack, more than the usual 2 MiB.
/// Untouched pages cost nothing.
const STACK_SIZE: usize = 16 * 1024 * 1024;

/// The thread, seen from outside. It ends when its work ends; nothing here stops it.
#[derive(Debug)]
pub(super) struct Worker {
    /// Says why the work ended before its time; closed when the thread ends.
    death: mpsc::Receiver<Died>,
}

/// How work gives its first answer.
pub(super) type Answer<T> = oneshot::Sender<Result<T, BrokerError>>;

/// The thread's work ended before its time.
#[derive(Debug, thiserror::Error)]
#[error("the client's thread died: {0}")]
struct Died(String);

impl Worker {
    /// Runs `work` to its end on a new thread, and waits for its first answer.
    ///
    /// The thread is named after the entity; systems that cut names keep its first 10 characters.
    pub(super) async fn start<T: Send + 'static, F: Future<Output = ()>>(
        place: &Place,
        work: impl FnOnce(Answer<T>) -> F + Send + 'static,
    ) -> Result<(Self, T), BrokerError> {
        let (answer, answered) = oneshot::channel();
        // A NUL in the name would panic.
        let name = format!("idem {}", place.entity.replace('\0', ""));
        let worker = Self::spawn(name, || work(answer));
        let mut worker = worker.map_err(|error| place.unreachable(error))?;
        match answered.await {
            Ok(answer) => Ok((worker, answer?)),
            Err(_) => Err(worker.ended(place).await),
        }
    }

    /// Waits until the thread ends, and says why nothing more can be had from it.
    pub(super) async fn ended(&mut self, place: &Place) -> BrokerError {
        match self.death.recv().await {
            Some(death) => place.unreachable(death),
            None => BrokerError::Closed,
        }
    }

    fn spawn<F: Future<Output = ()>>(
        name: String,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let (died, death) = mpsc::channel(1);
        // The thread is not joined: it ends by itself when its handles are dropped.
        let thread = thread::Builder::new().name(name).stack_size(STACK_SIZE);
        thread.spawn(move || {
            let cause = match catch_unwind(AssertUnwindSafe(|| run(work))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_text(panic.as_ref()),
            };
            died.try_send(Died(cause)).ok();
        })?;
        Ok(Self { death })
    }
}

fn run<F: Future<Output = ()>>(work: impl FnOnce() -> F) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work());
    // A name lookup that hangs must not keep the thread.
    runtime.shutdown_background();
    Ok(())
}

/// Work on the client ended in a panic.
#[derive(Debug, thiserror::Error)]
#[error("the client panicked: {0}")]
pub(super) struct Panicked(String);

/// Does work after whose panic the thread goes on. What the work had borrowed may be in any state.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.map_err(|panic| Panicked(panic_text(panic.as_ref())))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a text".to_owned())
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    fn place() -> Place {
        Place { namespace: "localhost".to_owned(), entity: "orders".to_owned() }
    }

    async fn start<F: Future<Output = ()>>(
        work: impl FnOnce(Answer<u8>) -> F + Send + 'static,
    ) -> Result<(Worker, u8), BrokerError> {
        Worker::start(&place(), work).await
    }

    #[tokio::test]
    async fn a_panic_is_told_instead_of_an_answer() {
        let error = start(|_| async { panic!("on purpose") }).await.expect_err("it died");
        let cause = error.source().expect("a source").to_string();
        assert_eq!(cause, "the client's thread died: on purpose");
    }

    #[tokio::test]
    async fn a_panic_after_the_answer_is_told_once() {
        let work = |answer: Answer<u8>| async {
            answer.send(Ok(7)).ok();
            panic!("on purpose")
        };
        let (mut worker, answer) = start(work).await.unwrap();
        assert_eq!(answer, 7);
        assert!(matches!(worker.ended(&place()).await, BrokerError::Unreachable { .. }));
        assert!(matches!(worker.ended(&place()).await, BrokerError::Closed));
    }

    #[tokio::test]
    async fn a_caught_panic_is_told_and_the_thread_goes_on() {
        let work = |answer: Answer<String>| async {
            let panicked = caught(async {
                tokio::task::yield_now().await;
                panic!("on purpose")
            });
            let error: Panicked = panicked.await.map(|()| "none").expect_err("it panicked");
            answer.send(Ok(error.to_string())).ok();
        };
        let (mut worker, told) = Worker::start(&place(), work).await.unwrap();
        assert_eq!(told, "the client panicked: on purpose");
        assert!(matches!(worker.ended(&place()).await, BrokerError::Closed));
    }

    #[tokio::test]
    async fn an_orderly_end_means_closed() {
        let work = |answer: Answer<u8>| async {
            answer.send(Ok(7)).ok();
        };
        let (mut worker, _) = start(work).await.unwrap();
        assert!(matches!(worker.ended(&place()).await, BrokerError::Closed));
    }
}
