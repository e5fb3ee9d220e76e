//! A union, of which nobody knows what is in it.

#![allow(unused)]

use idem_runtime::KeyPart;

#[derive(KeyPart)]
union Bits {
    number: u32,
    bytes: [u8; 4],
}

fn is_a_key_part<P: KeyPart>(_: P) {}

fn uses(bits: Bits) {
    is_a_key_part(bits);
}

fn main() {}
