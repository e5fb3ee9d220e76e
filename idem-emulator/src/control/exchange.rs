//! Requests and responses: JSON both ways.

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::{self, ConfigError};
use crate::error::{EntityError, UnknownEntity};

const JSON: [(HeaderName, &str); 1] = [(CONTENT_TYPE, "application/json")];

/// What a handler comes to.
pub(super) type Answer = Result<Response, Failure>;

/// An answer with a JSON body.
pub(super) fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(body)
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok((status, JSON, body).into_response())
}

pub(super) fn no_content() -> Answer {
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    problem: String,
}

impl Failure {
    pub(super) fn new(status: StatusCode, problem: impl Into<String>) -> Self {
        Self { status, problem: problem.into() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = serde_json::json!({ "error": self.problem }).to_string();
        (self.status, JSON, body).into_response()
    }
}

impl From<EntityError> for Failure {
    fn from(error: EntityError) -> Self {
        let status = match error {
            EntityError::Invalid { .. } => StatusCode::BAD_REQUEST,
            EntityError::Exists { .. } => StatusCode::CONFLICT,
            EntityError::UnknownTopic { .. } => StatusCode::NOT_FOUND,
        };
        Self::new(status, error.to_string())
    }
}

impl From<UnknownEntity> for Failure {
    fn from(error: UnknownEntity) -> Self {
        Self::new(StatusCode::NOT_FOUND, error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<BytesRejection> for Failure {
    fn from(rejection: BytesRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Failure {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// The body of a request as JSON, whatever its content type says. An empty one stands for `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let bytes = Bytes::from_request(request, state).await?;
        let json = if bytes.trim_ascii().is_empty() { b"{}" } else { &bytes[..] };
        Ok(Self(config::parse(json)?))
    }
}

/// The variable parts of a request's path, percent-decoded.
pub(super) struct InPath<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for InPath<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Path(value) = Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The parameters of a request.
pub(super) struct InQuery<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for InQuery<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let Query(value) = Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}
