//! The encoding of values and messages.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| idem_emulator::fuzzing::values(input));
