//! PgBouncer between the store and PostgreSQL.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use idem_runtime::Outcome;
use idem_runtime::execute;
use idem_runtime::store::{Postgres, Store};
use idem_tests::database::left_out;
use idem_tests::until;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::bodies::{assert_counts, assert_outcome};
use crate::engines::postgres::{OnPostgres, on_postgres};
use crate::engines::{Engine, delivery};
use crate::start::chain;

/// A pooler in front of the server of a database URL; ends with the test.
struct Pooler {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Pooler {
    /// `None`, and a line that says so, where PgBouncer is not installed.
    async fn start(database_url: &str, mode: &str) -> Option<Self> {
        // Debian has it where only root looks.
        let paths = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];
        let Some(program) = paths.into_iter().find(|path| Path::new(path).exists()) else {
            left_out("a pooler in front of PostgreSQL, for pgbouncer is not installed");
            return None;
        };
        let (user, rest) = database_url.strip_prefix("postgres://")?.split_once(':')?;
        let (password, rest) = rest.split_once('@')?;
        let (server, name) = rest.split_once('/')?;
        let (host, port) = server.split_once(':')?;
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr();
        let address = free.expect("it has an address");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let write = |name: &str, text: String| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("written");
            path
        };
        let users = write("users", format!("\"{user}\" \"{password}\"\n"));
        let settings = format!(
            "[databases]\n* = host={host} port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = plain\nauth_file = {}\n\
             pool_mode = {mode}\ndefault_pool_size = 30\n\
             ignore_startup_parameters = extra_float_digits\n",
            address.port(),
            users.display()
        );
        let settings = write("settings", settings);
        // It refuses to run as root, and the password is that of the tests' server.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its owner is us");
        let mut command = Command::new(program);
        if fs::metadata(folder.path()).expect("it is there").uid() == 0 {
            command.args(["-u", "nobody"]);
        }
        command.arg("-q").arg(settings).stdin(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().expect("it starts");
        let url = format!("postgres://{user}:{password}@{address}/{name}");
        let pooler = Self { child, url, _folder: folder };
        until("the pooler listens", async || TcpStream::connect(address).await.is_ok()).await;
        Some(pooler)
    }
}

/// a pooler that gives each transaction another session loses what the driver has prepared.
#[tokio::test]
async fn a_pooler_that_loses_prepared_statements_is_refused_at_start() {
    let Some(engine) = on_postgres().await else { return };
    let Some(pooler) = Pooler::start(&engine.database.url, "transaction").await else { return };
    let store = Postgres::connect(&pooler.url).await.expect("it lets us in");
    match store.check().await {
        Err(refused) => {
            let text = chain(&refused);
            assert!(text.contains("`max_prepared_statements`"), "{text}");
        }
        // PgBouncer 1.21 and later keeps them, where it is told to or from 1.24 on by itself.
        Ok(()) => deliver(&engine, &store).await,
    }
    drop((store, pooler));
    engine.remove().await;
}

#[tokio::test]
async fn a_pooler_that_pools_sessions_is_like_none() {
    let Some(engine) = on_postgres().await else { return };
    let Some(pooler) = Pooler::start(&engine.database.url, "session").await else { return };
    for _ in 0..2 {
        let store = Postgres::connect(&pooler.url).await.expect("it lets us in");
        store.check().await.expect("it keeps what is prepared");
        deliver(&engine, &store).await;
        store.pool().close().await;
    }
    drop(pooler);
    engine.remove().await;
}

/// The first time all are new.
async fn deliver(engine: &OnPostgres, store: &Postgres) {
    let before = engine.effects().await;
    for number in 0..200 {
        let name = format!("r{number}");
        let run = async |count| {
            let context = engine.context(delivery(&name, "ok").with_delivery_count(count));
            execute::<<OnPostgres as Engine>::ByKey, _>(store, &context).await
        };
        if before == 0 {
            assert_outcome!(run(1).await, Outcome::Done(_));
        }
        assert_outcome!(run(2).await, Outcome::Duplicate(_));
    }
    assert_counts(engine, 200, 200).await;
}
