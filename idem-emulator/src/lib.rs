//! idem-emulator
