//! The client under its own name, but connecting without TLS.
//!
//! All that its tests import is the client's own. Only the constructors of [`ServiceBusClient`] that
//! the tests call are ours: they ask the client for a connection as it makes them to emulators, and
//! keep the port of a connection string, which the client drops.

use azure_core::error::ErrorKind;
use azure_core::Error;
use original::authorization::AzureNamedKeyCredential;
use original::core::BasicRetryPolicy;

pub use original::*;

/// The client's prelude, with our constructors too.
pub mod prelude {
    pub use original::prelude::*;

    pub use super::ServiceBusClient;
}

/// The client's constructors. The explicit name hides the client's type, which they return.
#[derive(Debug)]
pub struct ServiceBusClient;

type Client = original::ServiceBusClient<BasicRetryPolicy>;

impl ServiceBusClient {
    /// Connects to the host and port in the connection string, with the key in it.
    pub async fn new_from_connection_string(
        connection_string: impl AsRef<str>,
        options: ServiceBusClientOptions,
    ) -> Result<Client, Error> {
        let value = |name| value(connection_string.as_ref(), name);
        let endpoint = value("Endpoint")?;
        let host = endpoint.trim_start_matches("sb://").trim_end_matches('/');
        let credential =
            AzureNamedKeyCredential::new(value("SharedAccessKeyName")?, value("SharedAccessKey")?);
        Self::new_from_named_key_credential(host, credential, options).await
    }

    /// Connects to a host, with its port, with this key.
    pub async fn new_from_named_key_credential(
        host: impl Into<String>,
        credential: AzureNamedKeyCredential,
        options: ServiceBusClientOptions,
    ) -> Result<Client, Error> {
        original::ServiceBusClient::unsecured()
            .new_from_named_key_credential(host, credential, options)
            .await
    }
}

fn value(connection_string: &str, name: &str) -> Result<String, Error> {
    let mut parts = connection_string.split(';').filter_map(|part| part.split_once('='));
    let found = parts.find(|(found, _)| *found == name);
    found
        .map(|(_, value)| value.to_owned())
        .ok_or_else(|| Error::new(ErrorKind::Other, format!("the connection string has no {name}")))
}
