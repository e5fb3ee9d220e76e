//! Microsoft's configuration file.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| idem_emulator::fuzzing::config(input));
