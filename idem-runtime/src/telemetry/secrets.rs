//! What must not show where somebody logs a value of ours: passwords, keys, bodies, replies.

use std::fmt::Debug;

use crate::delivery::{Delivery, Property, SourceId};
use crate::handler::{Context, States};
use crate::outcome::Reply;
use crate::store::Earlier;

const SECRET: &str = "hush4711";

#[track_caller]
fn assert_hidden(value: &impl Debug) {
    for shown in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(!shown.contains(SECRET), "{shown}");
        // The bytes, as a list of numbers would show them.
        assert!(!shown.replace(['\n', ' '], "").contains("104,117,115,104"), "{shown}");
    }
}

#[test]
fn what_messages_hold_is_hidden() {
    let delivery = Delivery::new(SourceId::new("bus.example.net", "orders"), SECRET)
        .with_property("owner", Property::Text(SECRET.to_owned()));
    assert_hidden(&delivery);
    let mut states = States::default();
    states.insert(SECRET);
    assert_hidden(&Context::new(delivery, states));

    let message = crate::broker::OutgoingMessage { body: SECRET.into(), ..Default::default() };
    assert_hidden(&message);
    assert_hidden(&Reply::of(&SECRET).unwrap());
    let claimed_at = time::OffsetDateTime::UNIX_EPOCH;
    let reply = Some(SECRET.as_bytes().to_vec());
    assert_hidden(&Earlier { claimed_at, same: Vec::new(), reply });

    let mut key = crate::key::KeyEncoder::default();
    key.part(&SECRET);
    assert_hidden(&key);
    assert_hidden(&key.values());
}

#[cfg(feature = "servicebus")]
#[test]
fn connection_strings_are_hidden() {
    use crate::broker::servicebus::ServiceBus;

    for credential in [
        format!("SharedAccessKeyName=Root;SharedAccessKey={SECRET}"),
        format!("SharedAccessSignature=SharedAccessSignature sr=x&sig={SECRET}"),
    ] {
        let text = format!("Endpoint=sb://bus.example.net/;{credential}");
        let bus = ServiceBus::connect(&text).expect("it holds together");
        assert_hidden(&bus);
        assert_hidden(&bus.queue("orders"));
        let broken = text.replace("Endpoint=", "Endpoint:");
        assert_hidden(&ServiceBus::connect(&broken).unwrap_err());
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn the_password_of_postgres_is_hidden() {
    use crate::store::Postgres;

    let url = format!("postgres://idem:{SECRET}@127.0.0.1:1/shop");
    let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy(&url).expect("a readable URL");
    assert_hidden(&Postgres::from_pool(pool));
    assert_hidden(&Postgres::connect(&url).await.expect_err("nobody listens there"));
    let unreadable = url.replace(":1/", ":one/");
    assert_hidden(&Postgres::connect(&unreadable).await.expect_err("no port"));
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn the_password_of_mysql_is_hidden() {
    use crate::store::Mysql;

    let url = format!("mysql://idem:{SECRET}@127.0.0.1:1/shop");
    let pool = sqlx::mysql::MySqlPoolOptions::new().connect_lazy(&url).expect("a readable URL");
    assert_hidden(&Mysql::from_pool(pool));
    assert_hidden(&Mysql::connect(&url).await.expect_err("nobody listens there"));
    let unreadable = url.replace(":1/", ":one/");
    assert_hidden(&Mysql::connect(&unreadable).await.expect_err("no port"));
}

#[cfg(feature = "sqlserver")]
#[tokio::test]
async fn the_password_of_sql_server_is_hidden() {
    use crate::store::SqlServer;

    let url = format!("sqlserver://idem:{SECRET}@127.0.0.1:1/shop");
    let config = SqlServer::read_url(&url).expect("a readable URL");
    assert_hidden(&config);
    assert_hidden(&SqlServer::from_config(config, 1));
    assert_hidden(&SqlServer::connect(&url).await.expect_err("nobody listens there"));
    let unreadable = url.replace(":1/", ":one/");
    assert_hidden(&SqlServer::connect(&unreadable).await.expect_err("no port"));
}
