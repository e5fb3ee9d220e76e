//! Steps of a transaction that are not cancelled with their caller.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A step that runs to its end whoever drops it: what is left of it then becomes a task.
///
/// It runs where it is awaited as long as it is awaited, since handing each step to another thread
/// and back costs more than an embedded database takes for the step itself.
pub(super) struct Step<T: Send + 'static> {
    rest: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
}

impl<T: Send + 'static> Step<T> {
    pub(super) fn new(step: impl Future<Output = T> + Send + 'static) -> Self {
        Self { rest: Some(Box::pin(step)) }
    }
}

impl<T: Send + 'static> Future for Step<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: after a panic there is nothing left to run.
        let Some(mut rest) = self.rest.take() else { return Poll::Pending };
        let polled = rest.as_mut().poll(context);
        if polled.is_pending() {
            self.rest = Some(rest);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Step<T> {
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        // Without a runtime the process is ending, and the server rolls back what it has not
        // committed.
        let Ok(runtime) = Handle::try_current() else { return };
        #[expect(clippy::disallowed_methods, reason = "its owner has gone, and it must not be")]
        runtime.spawn(async move { drop(rest.await) });
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_step_that_is_dropped_halfway_goes_on() {
        let (done, is_done) = oneshot::channel();
        let step = Step::new(async move {
            sleep(Duration::from_secs(2)).await;
            done.send("to its end").ok();
        });
        assert!(timeout(Duration::from_secs(1), step).await.is_err(), "it was dropped");
        assert_eq!(is_done.await, Ok("to its end"));
    }

    #[tokio::test]
    async fn a_step_that_was_never_polled_runs_too() {
        let (done, is_done) = oneshot::channel();
        drop(Step::new(async move { done.send(()).ok() }));
        assert_eq!(is_done.await, Ok(()));
    }

    #[tokio::test]
    async fn a_step_gives_its_result_and_ends_once() {
        assert_eq!(Step::new(async { 7 }).await, 7);
    }

    #[test]
    fn without_a_runtime_a_step_is_just_dropped() {
        drop(Step::new(std::future::pending::<()>()));
    }

    #[tokio::test]
    async fn a_step_that_panicked_is_not_run_again() {
        let polls = Arc::new(AtomicUsize::new(0));
        let step = Step::new(Panics(Arc::clone(&polls)));
        AssertUnwindSafe(step).catch_unwind().await.expect_err("a panic");
        tokio::task::yield_now().await;
        assert_eq!(polls.load(Ordering::SeqCst), 1);
    }

    struct Panics(Arc<AtomicUsize>);

    impl Future for Panics {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            panic!("the driver panics");
        }
    }
}
