//! What the compiler says about a misused attribute.
//!
//! One mistake a file, and one error for it. Each file also calls its handler and registers it, to
//! prove that both survive the mistake.

/// The texts are those of one compiler: rustc words and draws its own part anew every few releases.
const RECORDED_WITH: &str = "rustc 1.95.";

#[test]
fn misuse() {
    let compiler = compiler();
    if !compiler.starts_with(RECORDED_WITH) {
        println!("skipped: recorded with {RECORDED_WITH}x, this is {compiler}");
        return;
    }
    trybuild::TestCases::new().compile_fail("misuse/*.rs");
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = std::process::Command::new(rustc).arg("--version").output().expect("rustc runs");
    String::from_utf8(output.stdout).expect("rustc speaks UTF-8")
}
