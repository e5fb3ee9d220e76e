//! What `azservicebus` takes from `azure_core`: error, URL and credential types.
//!
//! The real crate's default features bring an HTTP client on OpenSSL. The Service Bus client turns
//! them on and uses none of it, and with them our examples would need OpenSSL's development files
//! where they are to need nothing but Rust. This crate takes its place in our own workspace, through
//! `[patch.crates-io]`; whoever depends on `idem-runtime` gets the real one.

pub use error::{Error, Result};

/// URLs.
pub mod http {
    pub use url::Url;
}

/// Errors.
pub mod error {
    use std::error::Error as StdError;
    use std::fmt;

    /// What kind of failure it is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum ErrorKind {
        /// Input and output.
        Io,
        /// Something could not be converted.
        DataConversion,
        /// Credentials were refused or could not be had.
        Credential,
        /// Anything else.
        Other,
    }

    /// A failure and its cause.
    #[derive(Debug)]
    pub struct Error {
        kind: ErrorKind,
        cause: Box<dyn StdError + Send + Sync>,
    }

    /// A result with [`Error`].
    pub type Result<T> = std::result::Result<T, Error>;

    impl Error {
        /// A failure of this kind.
        pub fn new(kind: ErrorKind, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
            Self { kind, cause: cause.into() }
        }

        /// What kind of failure it is.
        pub fn kind(&self) -> &ErrorKind {
            &self.kind
        }
    }

    impl From<url::ParseError> for Error {
        fn from(error: url::ParseError) -> Self {
            Self::new(ErrorKind::DataConversion, error)
        }
    }

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.cause.fmt(f)
        }
    }

    impl StdError for Error {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(self.cause.as_ref())
        }
    }
}

/// Credentials.
pub mod credentials {
    use std::fmt;

    use time::OffsetDateTime;

    /// A text that is not shown.
    #[derive(Clone, PartialEq, Eq)]
    pub struct Secret(String);

    impl Secret {
        /// Hides a text.
        pub fn new(secret: impl Into<String>) -> Self {
            Self(secret.into())
        }

        /// The text.
        pub fn secret(&self) -> &str {
            &self.0
        }
    }

    impl fmt::Debug for Secret {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Secret")
        }
    }

    impl From<String> for Secret {
        fn from(secret: String) -> Self {
            Self(secret)
        }
    }

    /// A token and the time until which it is good.
    #[derive(Clone, Debug)]
    pub struct AccessToken {
        /// The token.
        pub token: Secret,
        /// Until when it is good.
        pub expires_on: OffsetDateTime,
    }

    impl AccessToken {
        /// A token that is good until `expires_on`.
        pub fn new(token: impl Into<Secret>, expires_on: OffsetDateTime) -> Self {
            Self { token: token.into(), expires_on }
        }
    }

    /// How a token is asked for.
    #[derive(Clone, Debug, Default)]
    pub struct TokenRequestOptions;

    /// Gives tokens.
    #[async_trait::async_trait]
    pub trait TokenCredential: fmt::Debug + Send + Sync {
        /// A token for these scopes.
        ///
        /// # Errors
        ///
        /// When there is none to be had.
        async fn get_token(
            &self,
            scopes: &[&str],
            options: Option<TokenRequestOptions>,
        ) -> crate::Result<AccessToken>;
    }
}
