//! The seeds, and damaged copies of them, through the functions that fuzz targets call.

use std::fs;
use std::path::Path;

use super::*;
use crate::events::EventTotals;

/// How many damaged copies there are of each recorded connection.
const COPIES: usize = 60;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// The same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let high = u32::try_from(self.0 >> 33).unwrap();
        usize::try_from(high).unwrap() % bound
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// Damages, cuts or repeats a few places.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            let end = (at + 1 + self.below(64)).min(bytes.len());
            match self.below(8) {
                0 => drop(bytes.drain(at..end)),
                1 => bytes.extend_from_within(at..end),
                2 => bytes[at..end].fill(0xff),
                _ => bytes[at] = self.byte(),
            }
            if bytes.is_empty() {
                return;
            }
        }
    }
}

#[test]
fn recorded_connections_do_what_they_did() {
    let totals: Vec<EventTotals> =
        seeds("connection").iter().map(|seed| connection(seed)).collect();
    let all = |of: fn(&EventTotals) -> u64| totals.iter().map(of).sum::<u64>();
    for (what, count) in [
        ("scheduled", all(|it| it.scheduled)),
        ("schedule cancelled", all(|it| it.schedule_cancelled)),
        ("duplicate dropped", all(|it| it.duplicate_dropped)),
        ("completed", all(|it| it.completed)),
        ("abandoned", all(|it| it.abandoned)),
        ("deferred", all(|it| it.deferred)),
        ("lock renewed", all(|it| it.lock_renewed)),
        ("lock expired", all(|it| it.lock_expired)),
        ("session accepted", all(|it| it.session_accepted)),
        ("session lock renewed", all(|it| it.session_lock_renewed)),
        ("transaction committed", all(|it| it.transaction_committed)),
        ("transaction rolled back", all(|it| it.transaction_rolled_back)),
        ("session released", all(|it| it.session_released)),
    ] {
        assert!(count > 0, "no seed has {what}");
    }
    // Each broker has one dead letter from the start.
    let brokers = u64::try_from(totals.len()).unwrap();
    assert!(all(|it| it.dead_lettered) > brokers, "no seed has dead-lettered");
}

#[test]
fn damaged_connections_are_dealt_with() {
    let mut random = Random(7);
    let mut delivered = 0;
    for seed in seeds("connection") {
        for _ in 0..COPIES {
            let mut copy = seed.clone();
            random.damage(&mut copy);
            delivered += connection(&copy).delivered;
        }
    }
    assert!(delivered > 0, "some damage leaves a connection in use");
}

#[test]
fn damaged_values_are_dealt_with() {
    let mut random = Random(11);
    for seed in seeds("values") {
        values(&seed);
        for _ in 0..20 * COPIES {
            let mut copy = seed.clone();
            random.damage(&mut copy);
            values(&copy);
        }
    }
}

#[test]
fn damaged_rules_are_dealt_with() {
    let mut random = Random(13);
    for seed in seeds("rules") {
        rules(&seed);
        for _ in 0..20 * COPIES {
            let mut copy = seed.clone();
            random.damage(&mut copy);
            rules(&copy);
        }
    }
}

#[cfg(feature = "config")]
#[test]
fn damaged_configurations_are_dealt_with() {
    let mut random = Random(17);
    for seed in seeds("config") {
        config(&seed);
        for _ in 0..2 * COPIES {
            let mut copy = seed.clone();
            random.damage(&mut copy);
            config(&copy);
        }
    }
}
