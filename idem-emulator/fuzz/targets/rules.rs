//! The language of SQL filters and actions.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| idem_emulator::fuzzing::rules(input));
