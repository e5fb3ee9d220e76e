//! The attribute and derives of idem.
