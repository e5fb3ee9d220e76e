//! The URL of a database.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use tiberius::{AuthMethod, Config, EncryptionLevel};
use url::Url;

use crate::store::{Fault, StoreError};

const EXAMPLE: &str = "write `sqlserver://user:password@host:port/database`";

/// The port that SQL Server listens on by default.
const PORT: u16 = 1433;

/// What a URL says.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) config: Config,
    /// The host with its port.
    pub(super) server: String,
    pub(super) database: String,
}

impl Place {
    pub(super) fn read(url: &str) -> Result<Self, StoreError> {
        let url = Url::parse(url).map_err(|error| {
            let advice = format!("the database URL cannot be read; {EXAMPLE}");
            StoreError::new(advice, Fault::Refused, error)
        })?;
        let host = url.host_str().filter(|_| url.scheme() == "sqlserver");
        let host = host.filter(|host| !host.is_empty()).ok_or_else(|| refused("no SQL Server"))?;
        let port = url.port().unwrap_or(PORT);
        let database = decoded(url.path().trim_start_matches('/'))?;
        if database.is_empty() {
            return Err(refused("no database"));
        }
        let user = decoded(url.username())?;
        if user.is_empty() {
            return Err(refused("no user"));
        }
        let password = decoded(url.password().unwrap_or_default())?;

        let mut config = Config::new();
        config.host(host);
        config.port(port);
        config.database(&database);
        config.authentication(AuthMethod::sql_server(user, password));
        for (name, value) in url.query_pairs() {
            set(&mut config, &name, &value)?;
        }
        let server = format!("{host}:{port}");
        Ok(Self { config, server, database: database.into_owned() })
    }
}

/// The names are those of other drivers' URLs.
fn set(config: &mut Config, name: &str, value: &str) -> Result<(), StoreError> {
    match (name.to_ascii_lowercase().as_str(), value) {
        ("encrypt", "true") => config.encryption(EncryptionLevel::Required),
        ("encrypt", "strict") => config.encryption(EncryptionLevel::Strict),
        ("encrypt", "false") => config.encryption(EncryptionLevel::Off),
        ("trustservercertificate", "true") => config.trust_cert(),
        ("trustservercertificate", "false") => {}
        _ => {
            let problem = format!(
                "the database URL has a parameter `{name}` that is not known or has no such value; \
                 there are `encrypt=true`, `strict` or `false`, and `trustServerCertificate=true` \
                 or `false`, and all else is set with `SqlServer::from_config`"
            );
            return Err(StoreError::found(problem, Fault::Refused));
        }
    }
    Ok(())
}

fn decoded(part: &str) -> Result<Cow<'_, str>, StoreError> {
    percent_decode_str(part).decode_utf8().map_err(|error| {
        let advice = "the database URL has a percent-encoded part that is not UTF-8";
        StoreError::new(advice, Fault::Refused, error)
    })
}

fn refused(missing: &str) -> StoreError {
    StoreError::found(format!("the database URL names {missing}; {EXAMPLE}"), Fault::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_as_whom() {
        let place = Place::read("sqlserver://shop%40eu:p%2Fw%3A1@db.example:14330/orders%20eu");
        let place = place.unwrap();
        assert_eq!(place.server, "db.example:14330");
        assert_eq!(place.database, "orders eu");
        let config = format!("{:?}", place.config);
        assert!(config.contains("shop@eu") && config.contains("encryption: Required"), "{config}");
        assert!(config.contains("bypass: false"), "certificates are checked: {config}");
        let place = Place::read("sqlserver://sa:x@localhost/orders").unwrap();
        assert_eq!(place.server, "localhost:1433");
    }

    #[test]
    fn parameters_are_those_that_are_known() {
        let config = |query: &str| {
            let place = Place::read(&format!("sqlserver://sa:hunter2@localhost/orders?{query}"));
            place.map(|place| format!("{:?}", place.config))
        };
        let trusting = config("trustServerCertificate=true&encrypt=strict").unwrap();
        assert!(trusting.contains("bypass: true"), "{trusting}");
        assert!(trusting.contains("encryption: Strict"), "{trusting}");
        assert!(config("Encrypt=false").unwrap().contains("encryption: Off"));
        for query in ["encryption=true", "encrypt=yes", "trustServerCertificate=1"] {
            let error = config(query).unwrap_err().to_string();
            assert!(error.contains("`encrypt=true`") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_said_with_an_example_and_without_the_password() {
        let urls = [
            ("localhost/orders", "cannot be read"),
            ("postgres://sa:hunter2@localhost/orders", "no SQL Server"),
            ("sqlserver:///orders", "no SQL Server"),
            ("sqlserver://sa:hunter2@localhost", "no database"),
            ("sqlserver://localhost/orders", "no user"),
        ];
        for (url, problem) in urls {
            let error = Place::read(url).unwrap_err();
            assert!(error.to_string().contains(problem), "{url}: {error}");
            assert!(error.to_string().contains(EXAMPLE), "{error}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
        let place = Place::read("sqlserver://sa:hunter2@localhost/orders").unwrap();
        assert!(!format!("{place:?}").contains("hunter2"));
    }
}
