//! idem-testkit
