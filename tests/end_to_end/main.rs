//! End to end: the emulator's wire, the consumer, and a database.

#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/axum_service.rs"]
mod axum_service;
mod bench;
mod cases;
mod dead_letters;
mod duplicates;
mod health;
mod hot_key;
mod input;
mod job;
mod kill;
mod locks;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/naive.rs"]
mod naive;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/own_loop.rs"]
mod own_loop;
mod own_loops;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/place_order.rs"]
mod place_order;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../../examples/prometheus.rs"]
mod prometheus;
mod routing;
mod service;
mod sessions;
mod stop;
mod subscriptions;
mod watching;
