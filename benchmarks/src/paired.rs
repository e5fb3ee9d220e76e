//! Paired measurement: every worker runs all variants in random order, message by message, so that
//! whatever else the machine does hits all of them alike.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

/// How often a worker runs a variant in one turn.
const TURN: u32 = 50;

/// Has all workers change variants together, in one random order.
#[derive(Debug)]
pub(crate) struct Turns {
    workers: Barrier,
    seed: u64,
}

impl Turns {
    pub(crate) fn of(workers: usize) -> Self {
        Self { workers: Barrier::new(workers), seed: fastrand::u64(..) }
    }
}

/// The latencies of each variant, in the order they were taken.
#[derive(Debug)]
pub(crate) struct Latencies<const N: usize>([Vec<Duration>; N]);

impl<const N: usize> Latencies<N> {
    /// Runs every variant once a round, in random order. `run` gets the variant's index.
    pub(crate) async fn measure(
        rounds: u32,
        mut run: impl AsyncFnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let mut latencies = std::array::from_fn(|_| Vec::new());
        let mut order: [usize; N] = std::array::from_fn(|variant| variant);
        for _ in 0..rounds {
            fastrand::shuffle(&mut order);
            for variant in order {
                let started = Instant::now();
                run(variant).await?;
                latencies[variant].push(started.elapsed());
            }
        }
        Ok(Self(latencies))
    }

    /// The same in turns: all workers run one variant for a while, and then the next. What a variant
    /// leaves to be done in the background, such as giving back a connection, falls on itself then.
    pub(crate) async fn measure_in_turns(
        rounds: u32,
        turns: Arc<Turns>,
        mut run: impl AsyncFnMut(usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let mut latencies = std::array::from_fn(|_| Vec::new());
        let mut order: [usize; N] = std::array::from_fn(|variant| variant);
        let mut random = fastrand::Rng::with_seed(turns.seed);
        for _ in 0..rounds / TURN {
            random.shuffle(&mut order);
            for variant in order {
                turns.workers.wait().await;
                for _ in 0..TURN {
                    let started = Instant::now();
                    run(variant).await?;
                    latencies[variant].push(started.elapsed());
                }
            }
        }
        Ok(Self(latencies))
    }

    /// Latencies that were taken one by one.
    pub(crate) fn of(latencies: [Vec<Duration>; N]) -> Self {
        Self(latencies)
    }

    /// Joins the latencies of several workers.
    pub(crate) fn join(workers: Vec<Self>) -> Self {
        let mut joined = std::array::from_fn(|_| Vec::new());
        for worker in workers {
            for (all, one) in joined.iter_mut().zip(worker.0) {
                all.extend(one);
            }
        }
        Self(joined)
    }

    /// The latency that so many percent of a variant's runs stay below.
    pub(crate) fn percentile(&self, variant: usize, percent: usize) -> Duration {
        let mut latencies = self.0[variant].clone();
        latencies.sort_unstable();
        let place = (latencies.len() * percent / 100).min(latencies.len() - 1);
        latencies[place]
    }

    /// How many times faster `variant` is than `baseline`.
    pub(crate) fn ratio(&self, variant: usize, baseline: usize) -> Ratio {
        self.ratio_of_batch(variant, baseline, 1)
    }

    /// How many times faster `variant`, which handles so many messages each time, is than `baseline`.
    pub(crate) fn ratio_of_batch(&self, variant: usize, baseline: usize, size: u32) -> Ratio {
        let size = f64::from(size);
        const SLICES: usize = 8;
        let slice = |latencies: &[Duration], number: usize| {
            let length = latencies.len() / SLICES;
            trimmed_mean(&latencies[number * length..(number + 1) * length])
        };
        let mut slices: Vec<f64> = (0..SLICES)
            .map(|number| size * slice(&self.0[baseline], number) / slice(&self.0[variant], number))
            .collect();
        slices.sort_by(f64::total_cmp);
        let value = size * trimmed_mean(&self.0[baseline]) / trimmed_mean(&self.0[variant]);
        // The outermost slices are dropped: one stall of the machine is no spread.
        Ratio { value, low: slices[1], high: slices[SLICES - 2] }
    }
}

/// The mean without the slowest and the fastest tenth.
fn trimmed_mean(latencies: &[Duration]) -> f64 {
    let mut seconds: Vec<f64> = latencies.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let cut = seconds.len() / 10;
    let kept = &seconds[cut..seconds.len() - cut];
    kept.iter().sum::<f64>() / f64::from(u32::try_from(kept.len()).unwrap_or(u32::MAX))
}

/// A ratio of one run, with the spread among slices of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ratio {
    value: f64,
    low: f64,
    high: f64,
}

impl Ratio {
    pub(crate) fn value(self) -> f64 {
        self.value
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ({:.2} to {:.2})", self.value, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_of_half_the_latency_is_twice_as_fast_whatever_one_outlier_says() {
        let mut slow = vec![Duration::from_millis(2); 800];
        slow[17] = Duration::from_secs(60);
        let latencies = Latencies([vec![Duration::from_millis(1); 800], slow]);
        let ratio = latencies.ratio(0, 1);
        assert_eq!(ratio.to_string(), "2.00 (2.00 to 2.00)");
    }
}
