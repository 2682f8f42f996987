//! Credentials that change while the store runs.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_redis::RedisConfig;
use leasehold_redis::redis::{BasicAuth, Client, RedisResult, StreamingCredentialsProvider};
use leasehold_testkit::redis::Server;
use leasehold_testkit::requests::{acquire, failed, granted};
use leasehold_testkit::until;
use tokio::sync::watch;

/// Credentials that a test changes.
struct Rotating(watch::Receiver<&'static str>);

impl StreamingCredentialsProvider for Rotating {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send + 'static>> {
        let mut users = self.0.clone();
        users.mark_changed();
        let latest = futures_util::stream::unfold(users, async |mut users| {
            users.changed().await.ok()?;
            let user = *users.borrow_and_update();
            Some((user, users))
        });
        latest.map(|user| Ok(BasicAuth::new(user.to_owned(), "secret".to_owned()))).boxed()
    }
}

#[tokio::test]
async fn credentials_of_a_provider_are_used_and_changed() {
    let server = Server::start(&[]).await.unwrap();
    for user in ["first", "second"] {
        server.ask(&["ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"]).await.unwrap();
    }
    let (users, provider) = watch::channel("first");
    let client = Client::open(server.url()).unwrap();
    let config = RedisConfig::client(&client).unwrap().credentials(Rotating(provider));
    assert!(!format!("{config:?}").contains("secret"));
    let store = config.clone().connect().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert!(server.has_client("user=first").await);
    users.send("second").unwrap();
    until(async || server.has_client("user=second").await).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    users.send("nobody").unwrap();
    failed(config.connect().await, ErrorKind::Denied, Effect::NotApplied, "refused the user");
}
