//! Service Bus connection strings: `Endpoint=sb://…;SharedAccessKeyName=…;SharedAccessKey=…`.
//!
//! The client has a parser of its own, but it drops the port and does not know
//! `UseDevelopmentEmulator`, so that no emulator on another port could be reached.

use std::fmt;

/// The port of AMQP over TLS.
const PORT_TLS: u16 = 5671;
/// The port of AMQP without TLS.
const PORT_PLAIN: u16 = 5672;

const ENDPOINT: &str = "Endpoint";
const KEY_NAME: &str = "SharedAccessKeyName";
const KEY: &str = "SharedAccessKey";
const SIGNATURE: &str = "SharedAccessSignature";
const ENTITY_PATH: &str = "EntityPath";
const EMULATOR: &str = "UseDevelopmentEmulator";

const NAMES: [&str; 6] = [ENDPOINT, KEY_NAME, KEY, SIGNATURE, ENTITY_PATH, EMULATOR];

/// A connection string that holds together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectionString {
    pub(super) endpoint: Endpoint,
    pub(super) credential: Credential,
    entity_path: Option<String>,
}

/// Where the broker listens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// TLS on the usual port.
    Tls {
        /// The host's name.
        host: String,
    },
    /// Without TLS: an emulator.
    Plain {
        /// The host's name or address.
        host: String,
        /// The port.
        port: u16,
    },
}

/// What a client proves itself with.
#[derive(PartialEq, Eq)]
pub(super) enum Credential {
    /// A shared access key, which tokens are signed with.
    Key {
        /// The name of the key's policy.
        name: String,
        /// The key.
        key: String,
    },
    /// A token that somebody else signed.
    Signature(String),
}

/// Why a connection string cannot be used. Texts never repeat a value that may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionStringError {
    /// A part is not of the form `Name=value`.
    #[error(
        "part {position} of the connection string has no `=`; write `Name=value` pairs with `;` between them"
    )]
    NotAPair {
        /// Which part, counted from 1.
        position: usize,
    },
    /// A part that must be there is missing or empty.
    #[error("the connection string has no `{name}`; add `{name}={example}`")]
    Missing {
        /// The part's name.
        name: &'static str,
        /// What its value looks like.
        example: &'static str,
    },
    /// A part is there more than once.
    #[error("the connection string has more than one `{name}`; keep one")]
    Repeated {
        /// The part's name.
        name: &'static str,
    },
    /// There are both a key and a signature.
    #[error("the connection string has both `{KEY}` and `{SIGNATURE}`; keep one")]
    TwoCredentials,
    /// The endpoint is no `sb://` address.
    #[error(
        "`{ENDPOINT}` is not an address; write `sb://<namespace>.servicebus.windows.net/`, or `sb://localhost:5672` for an emulator"
    )]
    Endpoint,
    /// A port was given that is not that of AMQP over TLS.
    #[error(
        "port {port} is not the port of AMQP over TLS; leave it out, or add `{EMULATOR}=true` for an emulator"
    )]
    Port {
        /// The port.
        port: u16,
    },
    /// `UseDevelopmentEmulator` is neither true nor false.
    #[error("`{EMULATOR}` must be `true` or `false`")]
    Emulator,
    /// The connection string is for another entity.
    #[error(
        "the connection string is for the entity `{given}`, not `{opened}`; open `{given}`, or use a connection string of the namespace"
    )]
    OtherEntity {
        /// The value of `EntityPath`.
        given: String,
        /// The entity that was to be opened.
        opened: String,
    },
}

impl ConnectionString {
    pub(super) fn parse(text: &str) -> Result<Self, ConnectionStringError> {
        let parts = Parts::split(text)?;
        let host_and_port =
            host_and_port(parts.required(ENDPOINT, "sb://<namespace>.servicebus.windows.net/")?)?;
        Ok(Self {
            endpoint: endpoint(host_and_port, parts.emulator()?)?,
            credential: parts.credential()?,
            entity_path: parts.get(ENTITY_PATH).map(str::to_owned),
        })
    }

    /// Refuses an entity that the connection string does not grant.
    pub(super) fn check_entity(&self, entity: &str) -> Result<(), ConnectionStringError> {
        match &self.entity_path {
            Some(given) if !given.trim_matches('/').eq_ignore_ascii_case(entity) => {
                Err(ConnectionStringError::OtherEntity {
                    given: given.clone(),
                    opened: entity.to_owned(),
                })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls { host } => f.write_str(host),
            Self::Plain { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Debug for Credential {
    /// Shows no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { name, .. } => {
                f.debug_struct("Key").field("name", name).finish_non_exhaustive()
            }
            Self::Signature(_) => f.write_str("Signature(..)"),
        }
    }
}

/// The known parts by their place in [`NAMES`]. Other parts are of no interest to us.
#[derive(Default)]
struct Parts<'a>([Option<&'a str>; NAMES.len()]);

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ConnectionStringError> {
        let mut parts = Self::default();
        for (index, part) in text.split(';').enumerate() {
            if part.trim().is_empty() {
                continue;
            }
            let (name, value) = part
                .split_once('=')
                .ok_or(ConnectionStringError::NotAPair { position: index + 1 })?;
            parts.insert(name.trim(), value.trim())?;
        }
        Ok(parts)
    }

    fn insert(&mut self, name: &str, value: &'a str) -> Result<(), ConnectionStringError> {
        for (known, slot) in NAMES.into_iter().zip(&mut self.0) {
            if known.eq_ignore_ascii_case(name) && slot.replace(value).is_some() {
                return Err(ConnectionStringError::Repeated { name: known });
            }
        }
        Ok(())
    }

    /// An empty value counts as missing.
    fn get(&self, name: &str) -> Option<&'a str> {
        let slots = NAMES.into_iter().zip(self.0);
        slots
            .filter(|(known, _)| *known == name)
            .find_map(|(_, value)| value)
            .filter(|value| !value.is_empty())
    }

    fn required(
        &self,
        name: &'static str,
        example: &'static str,
    ) -> Result<&'a str, ConnectionStringError> {
        self.get(name).ok_or(ConnectionStringError::Missing { name, example })
    }

    fn credential(&self) -> Result<Credential, ConnectionStringError> {
        match (self.get(SIGNATURE), self.get(KEY)) {
            (Some(_), Some(_)) => Err(ConnectionStringError::TwoCredentials),
            (Some(signature), None) => Ok(Credential::Signature(signature.to_owned())),
            (None, _) => Ok(Credential::Key {
                name: self.required(KEY_NAME, "<policy>")?.to_owned(),
                key: self.required(KEY, "<key>")?.to_owned(),
            }),
        }
    }

    fn emulator(&self) -> Result<bool, ConnectionStringError> {
        match self.get(EMULATOR) {
            None => Ok(false),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
            Some(_) => Err(ConnectionStringError::Emulator),
        }
    }
}

fn endpoint(
    (host, port): (&str, Option<u16>),
    emulator: bool,
) -> Result<Endpoint, ConnectionStringError> {
    let host = host.to_owned();
    match port {
        _ if emulator => Ok(Endpoint::Plain { host, port: port.unwrap_or(PORT_PLAIN) }),
        None | Some(PORT_TLS) => Ok(Endpoint::Tls { host }),
        Some(port) => Err(ConnectionStringError::Port { port }),
    }
}

/// Takes `sb://host:port/` apart. An IPv6 address is in brackets.
fn host_and_port(address: &str) -> Result<(&str, Option<u16>), ConnectionStringError> {
    const SCHEME: &str = "sb://";
    let authority = address
        .split_at_checked(SCHEME.len())
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME))
        .map(|(_, authority)| authority.trim_end_matches('/'))
        .ok_or(ConnectionStringError::Endpoint)?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let port = port.parse().map_err(|_| ConnectionStringError::Endpoint)?;
            (host, Some(port))
        }
        Some(_) | None => (authority, None),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
    if host.is_empty() || !host.chars().all(is_host) {
        return Err(ConnectionStringError::Endpoint);
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYED: &str = "SharedAccessKeyName=app;SharedAccessKey=c2VjcmV0+/==";

    fn parse(text: &str) -> Result<ConnectionString, ConnectionStringError> {
        ConnectionString::parse(text)
    }

    #[test]
    fn a_namespace_is_reached_by_tls() {
        let parsed = parse(&format!("Endpoint=sb://shop.servicebus.windows.net/;{KEYED}")).unwrap();
        let endpoint = Endpoint::Tls { host: "shop.servicebus.windows.net".to_owned() };
        assert_eq!(parsed.endpoint, endpoint);
        assert_eq!(parsed.endpoint.to_string(), "shop.servicebus.windows.net");
        let credential = Credential::Key { name: "app".to_owned(), key: "c2VjcmV0+/==".to_owned() };
        assert_eq!(parsed.credential, credential);
        assert_eq!(parsed.check_entity("orders"), Ok(()));
    }

    #[test]
    fn names_have_no_case_and_spare_semicolons_and_spaces_do_not_matter() {
        let text = " ;; endpoint = SB://shop.example.net:5671 ;SHAREDACCESSKEYNAME=app; \
                    sharedaccesskey=c2VjcmV0+/== ;TransportType=Amqp;;";
        let plain = parse(&format!("Endpoint=sb://shop.example.net;{KEYED}"));
        assert_eq!(parse(text), plain);
    }

    #[test]
    fn an_emulator_is_reached_without_tls_on_its_port() {
        for (address, host, port) in [
            ("sb://localhost", "localhost", 5672),
            ("sb://127.0.0.1:41234/", "127.0.0.1", 41234),
            ("sb://[::1]", "[::1]", 5672),
            ("sb://[::1]:6000", "[::1]", 6000),
        ] {
            let text = format!("Endpoint={address};{KEYED};UseDevelopmentEmulator=True");
            let endpoint = Endpoint::Plain { host: host.to_owned(), port };
            assert_eq!(parse(&text).unwrap().endpoint, endpoint);
        }
    }

    #[test]
    fn a_signature_stands_for_name_and_key() {
        let signature = "SharedAccessSignature sr=sb%3a%2f%2fh&sig=abc%3d&se=1&skn=app";
        let text = format!("Endpoint=sb://h;SharedAccessSignature={signature}");
        assert_eq!(parse(&text).unwrap().credential, Credential::Signature(signature.to_owned()));
    }

    #[test]
    fn an_entity_path_must_be_that_of_the_entity() {
        let text = format!("Endpoint=sb://h;{KEYED};EntityPath=Orders");
        let parsed = parse(&text).unwrap();
        assert_eq!(parsed.check_entity("orders"), Ok(()));
        let error = parsed.check_entity("bills").unwrap_err().to_string();
        assert!(error.contains("`Orders`, not `bills`"), "{error}");
    }

    #[test]
    fn errors_say_what_to_write_and_keep_the_secret() {
        let host = "Endpoint=sb://h";
        let cases = [
            (String::new(), "no `Endpoint`; add `Endpoint=sb://<namespace>"),
            (format!("Endpoint=;{KEYED}"), "no `Endpoint`"),
            (format!("Endpoint=https://h;{KEYED}"), "write `sb://<namespace>"),
            (format!("Endpoint=sb:/;{KEYED}"), "is not an address"),
            (format!("Endpoint=sb://;{KEYED}"), "is not an address"),
            (format!("Endpoint=sb://h:x;{KEYED}"), "is not an address"),
            (format!("Endpoint=sb://h:70000;{KEYED}"), "is not an address"),
            (format!("Endpoint=sb://h/orders;{KEYED}"), "is not an address"),
            (format!("Endpoint=ß://h;{KEYED}"), "is not an address"),
            (format!("Endpoint=sb://h:5672;{KEYED}"), "port 5672 is not the port of AMQP over TLS"),
            (format!("{host};SharedAccessKey=c2VjcmV0"), "add `SharedAccessKeyName=<policy>`"),
            (format!("{host};SharedAccessKeyName=app"), "add `SharedAccessKey=<key>`"),
            (
                format!("{host};SharedAccessKeyName=app;SharedAcessKey=c2VjcmV0"),
                "no `SharedAccessKey`",
            ),
            (format!("{host};{KEYED};SharedAccessKey=c2VjcmV0"), "more than one `SharedAccessKey`"),
            (
                format!("{host};{KEYED};SharedAccessSignature=c2VjcmV0"),
                "both `SharedAccessKey` and",
            ),
            (
                format!("{host};{KEYED};UseDevelopmentEmulator=c2VjcmV0"),
                "must be `true` or `false`",
            ),
            (format!("{host};c2VjcmV0;{KEYED}"), "part 2 of the connection string has no `=`"),
        ];
        for (text, expected) in cases {
            let error = parse(&text).expect_err(&text);
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert!(!format!("{error} {error:?}").contains("c2VjcmV0"), "{error:?}");
        }
    }

    #[test]
    fn debug_keeps_the_secret() {
        let keyed = parse(&format!("Endpoint=sb://h;{KEYED}")).unwrap();
        let signed = parse("Endpoint=sb://h;SharedAccessSignature=c2VjcmV0").unwrap();
        assert!(!format!("{keyed:?}{signed:?}").contains("c2VjcmV0"));
        assert!(format!("{keyed:?}").contains("app"));
    }
}
