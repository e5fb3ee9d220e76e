//! A figure of several repetitions.

/// The median and the spread.
#[derive(Debug)]
pub(crate) struct Median {
    sorted: Vec<f64>,
}

impl Median {
    /// Takes the figure this often, at least once.
    pub(crate) fn of(
        repetitions: usize,
        mut measure: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<Self> {
        let values: anyhow::Result<Vec<f64>> = (0..repetitions).map(|_| measure()).collect();
        Ok(Self::from(values?))
    }

    pub(crate) fn value(&self) -> f64 {
        self.sorted[self.sorted.len() / 2]
    }
}

impl From<Vec<f64>> for Median {
    fn from(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self { sorted: values }
    }
}

impl std::fmt::Display for Median {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (low, high) = (self.sorted[0], self.sorted[self.sorted.len() - 1]);
        write!(f, "{:.1} ({low:.1} to {high:.1})", self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_shown_with_the_spread() {
        assert_eq!(Median::from(vec![3.0, 100.0, 1.0]).to_string(), "3.0 (1.0 to 100.0)");
    }
}
