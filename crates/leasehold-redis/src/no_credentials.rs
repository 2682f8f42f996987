//! In place of `credentials.rs`, without the feature `credentials`.

use redis::AsyncConnectionConfig;

/// Connections get their credentials from the URL or the client.
#[derive(Clone, Default)]
pub(crate) struct Credentials(());

impl Credentials {
    #[expect(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn applied(&self, config: AsyncConnectionConfig) -> AsyncConnectionConfig {
        config
    }
}
