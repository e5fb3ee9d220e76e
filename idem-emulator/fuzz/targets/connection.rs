//! What a peer sends over one connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    idem_emulator::fuzzing::connection(input);
});
