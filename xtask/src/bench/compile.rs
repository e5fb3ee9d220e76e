//! `cargo xtask bench compile`: what the attribute costs in `cargo check`.
//!
//! Two crates have the same 200 functions with the same messages and the same statements. In one of
//! them the functions are handlers. Each is checked from nothing, and again after a change in the body
//! of one function; its dependencies are ready before.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::shell::Shell;

const HANDLERS: usize = 200;

/// How often the two crates take turns.
const ROUNDS: usize = 9;

/// The most that the annotated crate may take, in times of the plain one.
const RATIO_MAX: f64 = 1.25;

/// Measures, and fails where a median misses the target.
pub(super) fn run(shell: &Shell) -> Result<()> {
    let workspace = Workspace::generate(shell)?;
    for variant in VARIANTS {
        workspace.check(shell, variant)?;
    }
    let mut ratios: [Vec<f64>; 2] = Default::default();
    for round in 0..ROUNDS {
        let mut variants = VARIANTS;
        if round % 2 == 1 {
            variants.reverse();
        }
        let mut seconds = [[0.0; 2]; 2];
        for variant in variants {
            workspace.clean(shell, variant)?;
            let clean = workspace.check(shell, variant)?;
            workspace.change(variant, round)?;
            let incremental = workspace.check(shell, variant)?;
            eprintln!("    {}: {clean:.2} s, {incremental:.2} s", variant.name());
            seconds[variant as usize] = [clean, incremental];
        }
        let [annotated, plain] = seconds;
        for ((ratios, annotated), plain) in ratios.iter_mut().zip(annotated).zip(plain) {
            ratios.push(annotated / plain);
        }
    }
    let missed: Vec<&str> = ["clean", "incremental"]
        .into_iter()
        .zip(ratios)
        .filter_map(|(name, ratios)| (!report(name, ratios)).then_some(name))
        .collect();
    match missed.as_slice() {
        [] => Ok(()),
        missed => bail!("the target is missed: {}", missed.join(", ")),
    }
}

/// Prints a median with its spread; whether it meets the target.
fn report(name: &str, mut ratios: Vec<f64>) -> bool {
    ratios.sort_by(f64::total_cmp);
    let [Some(low), Some(median), Some(high)] =
        [0, ratios.len() / 2, ratios.len() - 1].map(|index| ratios.get(index))
    else {
        return false;
    };
    let is_met = *median <= RATIO_MAX;
    let verdict = if is_met { "met" } else { "missed" };
    println!(
        "compile.{name}: {median:.2} ({low:.2} to {high:.2}) of plain functions; \
         target at most {RATIO_MAX}: {verdict}"
    );
    is_met
}

#[derive(Clone, Copy)]
enum Variant {
    Annotated,
    Plain,
}

const VARIANTS: [Variant; 2] = [Variant::Annotated, Variant::Plain];

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Self::Annotated => "annotated",
            Self::Plain => "plain",
        }
    }
}

/// Both crates, in a workspace of their own with the versions of ours.
struct Workspace {
    folder: PathBuf,
}

impl Workspace {
    fn generate(shell: &Shell) -> Result<Self> {
        let workspace = Self { folder: shell.target().join("bench-compile") };
        let root = shell.root().display();
        workspace.write(
            "Cargo.toml",
            &format!(
                "[workspace]\nresolver = \"3\"\nmembers = [\"annotated\", \"plain\"]\n\n\
             [patch.crates-io]\nazure_core = {{ path = \"{root}/patches/azure_core\" }}\n"
            ),
        )?;
        let lock = fs::read_to_string(shell.root().join("Cargo.lock")).context("no Cargo.lock")?;
        workspace.write("Cargo.lock", &lock)?;
        for variant in VARIANTS {
            let name = variant.name();
            workspace.write(&format!("{name}/Cargo.toml"), &format!(
                "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n\
                 idem-runtime = {{ path = \"{root}/idem-runtime\", default-features = false, features = [\"sqlite\"] }}\n\
                 serde = {{ version = \"1\", features = [\"derive\"] }}\n\
                 sqlx = {{ version = \"0.9\", default-features = false, features = [\"runtime-tokio\", \"sqlite\"] }}\n"
            ))?;
            workspace.change(variant, ROUNDS)?;
        }
        Ok(workspace)
    }

    /// Writes the crate; what differs from round to round is in the body of one function.
    fn change(&self, variant: Variant, round: usize) -> Result<()> {
        self.write(&format!("{}/src/lib.rs", variant.name()), &source(variant, round))
    }

    fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.folder.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn clean(&self, shell: &Shell, variant: Variant) -> Result<()> {
        self.cargo(shell, &["clean", "--package", variant.name()])
    }

    /// The seconds that a check takes.
    fn check(&self, shell: &Shell, variant: Variant) -> Result<f64> {
        let start = Instant::now();
        self.cargo(shell, &["check", "--package", variant.name()])?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn cargo(&self, shell: &Shell, arguments: &[&str]) -> Result<()> {
        let mut cargo: Command = shell.cargo();
        cargo.current_dir(&self.folder).args(arguments).arg("--target-dir").arg("target");
        shell.run_logged(&mut cargo, &self.folder.join("log"))
    }
}

/// The functions as people write them, or nearly so.
fn source(variant: Variant, round: usize) -> String {
    let mut source = "\
        #![allow(dead_code)]\n\
        use idem_runtime::store::Sqlite;\n\
        use idem_runtime::{Delivery, Failure, State, Tx, idempotent};\n\n\
        #[derive(Clone)]\npub struct Rates(pub i64);\n"
        .to_owned();
    for number in 0..HANDLERS {
        let (arguments, parameters, amount) = match number % 4 {
            0 => ("", "", "order.amount_cents"),
            1 => ("(key = \"customer_id, external_ref\")", "", "order.amount_cents"),
            2 => (
                "(key = \"customer_id, external_ref\")",
                ", State(rates): State<Rates>",
                "order.amount_cents * rates.0",
            ),
            _ => (
                "(key(customer_id, external_ref), same(amount_cents))",
                ", delivery: &Delivery",
                "order.amount_cents + i64::from(delivery.delivery_count())",
            ),
        };
        let attribute = match variant {
            Variant::Annotated => format!("#[idempotent{arguments}]\n"),
            Variant::Plain => String::new(),
        };
        let added = if number == HANDLERS / 2 { round } else { 0 };
        let _ = write!(
            source,
            "\n#[derive(serde::Deserialize)]\n\
             pub struct Order{number} {{\n    \
                 pub customer_id: i64,\n    \
                 pub external_ref: String,\n    \
                 pub amount_cents: i64,\n\
             }}\n\n\
             {attribute}pub async fn place_order_{number}(\
                 tx: &mut Tx<Sqlite>, order: Order{number}{parameters}\
             ) -> Result<(), Failure> {{\n    \
                 sqlx::query(\"INSERT INTO orders VALUES ($1, $2, $3)\")\n        \
                     .bind(order.customer_id)\n        \
                     .bind(&order.external_ref)\n        \
                     .bind({amount} + {added})\n        \
                     .execute(&mut **tx)\n        \
                     .await?;\n    \
                 Ok(())\n\
             }}\n"
        );
    }
    source
}
