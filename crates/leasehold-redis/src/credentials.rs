//! Credentials that change while the store runs.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use redis::{AsyncConnectionConfig, BasicAuth, RedisResult, StreamingCredentialsProvider};

/// Where connections get their credentials, if not from the URL or the client.
#[derive(Clone, Default)]
pub(crate) struct Credentials(Option<Arc<dyn StreamingCredentialsProvider>>);

/// A provider that several connections share.
struct Shared(Arc<dyn StreamingCredentialsProvider>);

impl Credentials {
    pub(crate) fn new(provider: impl StreamingCredentialsProvider + 'static) -> Self {
        Self(Some(Arc::new(provider)))
    }

    pub(crate) fn applied(&self, config: AsyncConnectionConfig) -> AsyncConnectionConfig {
        match &self.0 {
            Some(provider) => config.set_credentials_provider(Shared(Arc::clone(provider))),
            None => config,
        }
    }
}

impl StreamingCredentialsProvider for Shared {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        self.0.subscribe()
    }
}
