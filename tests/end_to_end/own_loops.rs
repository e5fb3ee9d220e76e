//! A loop of one's own against the emulator.

use crate::own_loop::{Tally, run};

/// The client of the loop hangs now and then on a runtime of many threads.
#[tokio::test]
async fn a_loop_of_ones_own_places_each_order_once() {
    let tally = run().await.expect("the example runs");
    assert_eq!(tally, Tally { done: 50, duplicates: 10, dead_letters: 1, rows: 50 });
}
