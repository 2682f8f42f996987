use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::credentials::anonymous;
use google_cloud_spanner::channel_pool::StaticChannelPoolConfig;
use google_cloud_spanner::client::{
    DatabaseAdmin, DatabaseClient, Spanner, SpannerBuilderExt as _,
};
use leasehold_core::{Error, Result, table};
use leasehold_driver::{Deadline, StoreUrl};
use rustls::crypto::{CryptoProvider, ring};
use tokio::sync::Semaphore;

use crate::client::{Client, SpannerClock};
use crate::error;
use crate::refusals::Refusals;
use crate::sender::{Connect, Sender};
use crate::table::{NOW, Sql, TableName};

/// Which database and table to use, and how.
///
/// ```
/// use leasehold_spanner::SpannerConfig;
/// use std::time::Duration;
///
/// let config = SpannerConfig::parse("spanner://my-project/my-instance/my-database?table=locks")?
///     .timeout(Duration::from_secs(2));
/// assert!(SpannerConfig::parse("spanner://p/i/d?ttl=1").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SpannerConfig {
    project: String,
    instance: String,
    database: String,
    table: Option<String>,
    emulator: Option<String>,
    emulator_http: Option<String>,
    timeout: Duration,
    pub(crate) forget_after: Option<Duration>,
    pub(crate) clock: &'static str,
    read_again_after: Duration,
}

/// How many transactions may be under way; the emulator runs one at a time, and aborts others.
const PLACES: usize = 64;

/// After so long a wait for the rows, Spanner's clock is read again: the statement read it before the wait.
const SOON: Duration = Duration::from_millis(50);

impl SpannerConfig {
    /// The scheme of its URLs.
    pub const SCHEMES: &[&str] = &["spanner"];
    /// The default table: `leasehold`.
    pub const DEFAULT_TABLE: &str = "leasehold";
    /// The default time limit of an operation: 5 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

    pub(crate) const OPTIONS: &[&str] = &["table", "emulator", "emulator_http", "timeout"];

    /// Parses `spanner://PROJECT/INSTANCE/DATABASE?option=value&…`, without connecting. Options:
    /// - `table`: the table, by default `leasehold`;
    /// - `emulator`: `HOST:PORT` of an emulator, by default what the environment variable `SPANNER_EMULATOR_HOST` says;
    /// - `emulator_http`: `HOST:PORT` of the emulator's REST interface, by which the table is created;
    /// - `timeout`: the limit of an operation, such as `5s`.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong URL, which no message repeats.
    pub fn parse(url: &str) -> Result<Self> {
        let (config, url) = Self::read(url)?;
        url.finish(Self::OPTIONS)?;
        config.table_name()?;
        Ok(config)
    }

    /// Takes what it knows from a URL.
    pub(crate) fn read(url: &str) -> Result<(Self, StoreUrl)> {
        let mut url = StoreUrl::parse(url)?;
        let form = || {
            Error::invalid_input(
                "the spanner URL cannot be parsed; write it as spanner://PROJECT/INSTANCE/DATABASE",
            )
        };
        if !Self::SCHEMES.contains(&url.scheme()) || url.user().is_some() {
            return Err(form());
        }
        let [place] = url.places()? else { return Err(form()) };
        if place.port.is_some() {
            return Err(form());
        }
        let project = place.host.clone();
        let parts: Vec<_> =
            url.path().trim_start_matches('/').split('/').map(str::to_owned).collect();
        let [instance, database] = parts.as_slice() else { return Err(form()) };
        let mut config = Self::new(project, instance, database);
        config.table = url.take("table");
        config.emulator = url.take("emulator").or(config.emulator);
        config.emulator_http = url.take("emulator_http");
        if let Some(timeout) = url.take_duration("timeout")? {
            config.timeout = timeout;
        }
        Ok((config, url))
    }

    /// A database: of the emulator that the environment variable `SPANNER_EMULATOR_HOST` names, or else of Cloud Spanner.
    pub fn new(
        project: impl Into<String>,
        instance: impl Into<String>,
        database: impl Into<String>,
    ) -> Self {
        Self {
            project: project.into(),
            instance: instance.into(),
            database: database.into(),
            table: None,
            emulator: std::env::var("SPANNER_EMULATOR_HOST").ok().filter(|host| !host.is_empty()),
            emulator_http: None,
            timeout: Self::DEFAULT_TIMEOUT,
            forget_after: Some(table::FORGET_AFTER),
            clock: NOW,
            read_again_after: SOON,
        }
    }

    /// Sets the table.
    #[must_use]
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = Some(name.into());
        self
    }

    /// Uses the emulator at `HOST:PORT`.
    #[must_use]
    pub fn emulator(mut self, place: impl Into<String>) -> Self {
        self.emulator = Some(place.into());
        self
    }

    /// Creates the table by the emulator's REST interface at `HOST:PORT`.
    #[must_use]
    pub fn emulator_http(mut self, place: impl Into<String>) -> Self {
        self.emulator_http = Some(place.into());
        self
    }

    /// Sets the time limit of an operation.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets when the token counter of a key without a holder is forgotten (C7): after 30 days by default, `None` for never.
    #[must_use]
    pub fn forget_after(mut self, forget_after: Option<Duration>) -> Self {
        self.forget_after = forget_after;
        self
    }

    /// Sets how statements read the clock, for Leasehold's own tests.
    #[doc(hidden)]
    #[must_use]
    pub fn clock(mut self, expression: &'static str) -> Self {
        self.clock = expression;
        self
    }

    /// Sets after how long a wait the clock is read again, for Leasehold's own tests.
    #[doc(hidden)]
    #[must_use]
    pub fn read_again_after(mut self, wait: Duration) -> Self {
        self.read_again_after = wait;
        self
    }

    /// The statement that creates the table, for a migration of your own.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting.
    pub fn schema_sql(&self) -> Result<String> {
        Ok(Sql::new(self.table_name()?, self.clock).create)
    }

    /// The database as Spanner names it.
    pub(crate) fn path(&self) -> String {
        let Self { project, instance, database, .. } = self;
        format!("projects/{project}/instances/{instance}/databases/{database}")
    }

    pub(crate) fn is_emulated(&self) -> bool {
        self.emulator.is_some()
    }

    /// How many transactions may be under way.
    pub(crate) fn places(&self) -> usize {
        if self.is_emulated() { 1 } else { PLACES }
    }

    /// Whether a table is named.
    pub(crate) fn names_table(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn table_name(&self) -> Result<TableName> {
        let table = self.table.as_deref().unwrap_or(Self::DEFAULT_TABLE);
        TableName::new(table).ok_or_else(|| {
            Error::invalid_input(format!(
                "the table is {table:?}; its name must be a letter and then letters, digits and _, at most {} in all",
                TableName::MAX_BYTES
            ))
        })
    }

    pub(crate) async fn open(&self) -> Result<Client> {
        let until = Deadline::after(self.timeout);
        let server = format!("spanner://{}/{}/{}", self.project, self.instance, self.database);
        let lanes = Arc::new(Semaphore::new(self.places()));
        let own = match self.is_emulated() {
            true => Arc::clone(&lanes),
            false => Arc::new(Semaphore::new(PLACES)),
        };
        let connect: Connect = {
            let (config, server) = (self.clone(), server.clone());
            Arc::new(move || {
                let (config, server) = (config.clone(), server.clone());
                Box::pin(async move { config.client(&server).await })
            })
        };
        let senders = Box::pin(async {
            let requests = Sender::new(Arc::clone(&connect), lanes).await?;
            Ok((requests, Sender::new(connect, own).await?))
        });
        let senders = until.bound(senders).await;
        let (requests, renewals) =
            senders.unwrap_or_else(|| Err(error::unanswered(&server, self.timeout, false)))?;
        let now = format!("SELECT {} AS now", self.clock).into();
        let clock = SpannerClock { now, read_again_after: self.read_again_after };
        let (refusals, timeout) = (Refusals::default(), self.timeout);
        Ok(Client { requests, renewals, clock, refusals, server, timeout })
    }

    async fn client(&self, server: &str) -> Result<DatabaseClient> {
        let spanner = self.spanner(server).await?;
        let database = spanner.database_client(self.path()).build().await;
        database.map_err(|error| error::of(server, error, false))
    }

    async fn spanner(&self, server: &str) -> Result<Spanner> {
        // The driver takes the provider of the process; the program's own stays.
        if CryptoProvider::get_default().is_none() {
            drop(ring::default_provider().install_default());
        }
        let builder = match &self.emulator {
            None => Spanner::builder(),
            Some(place) => Spanner::builder()
                .with_endpoint(format!("http://{place}"))
                .with_credentials(anonymous::Builder::new().build())
                .with_channel_pool(StaticChannelPoolConfig::new(1)),
        };
        builder.build().await.map_err(|error| error::of_building(server, error))
    }

    /// The client that creates tables.
    pub(crate) async fn admin(&self, server: &str) -> Result<DatabaseAdmin> {
        let mut builder = self.spanner(server).await?.database_admin_builder();
        if let Some(place) = &self.emulator_http {
            builder = builder.with_endpoint(format!("http://{place}"));
        }
        builder.build().await.map_err(|error| error::of_building(server, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_url_is_parsed() {
        let url = "spanner://p-1/i-1/d_1?table=locks&emulator=127.0.0.1:9010&emulator_http=127.0.0.1:9020&timeout=2s";
        let config = SpannerConfig::parse(url).unwrap();
        assert_eq!(config.path(), "projects/p-1/instances/i-1/databases/d_1");
        assert_eq!(config.emulator.as_deref(), Some("127.0.0.1:9010"));
        assert_eq!(config.emulator_http.as_deref(), Some("127.0.0.1:9020"));
        assert_eq!(config.timeout, Duration::from_secs(2));
        assert!(config.schema_sql().unwrap().starts_with("CREATE TABLE IF NOT EXISTS `locks` ("));
    }

    #[test]
    fn what_a_url_does_not_set_has_a_default() {
        let config = SpannerConfig::parse("spanner://p/i/d").unwrap();
        let table = config.table_name().unwrap();
        assert_eq!((table.as_str(), config.timeout), ("leasehold", Duration::from_secs(5)));
        assert_eq!(config.forget_after, Some(table::FORGET_AFTER));
    }

    #[test]
    fn mistakes_in_a_url_are_named_and_no_secret() {
        let mistakes = [
            ("spanner:p/i/d", "cannot be parsed"),
            ("spanner://p/i", "spanner://PROJECT/INSTANCE/DATABASE"),
            ("spanner://p/i/d/e", "spanner://PROJECT/INSTANCE/DATABASE"),
            ("spanner://p,q/i/d", "spanner://PROJECT/INSTANCE/DATABASE"),
            ("spanner://p:9010/i/d", "spanner://PROJECT/INSTANCE/DATABASE"),
            ("spanner://u:hunter2@p/i/d", "spanner://PROJECT/INSTANCE/DATABASE"),
            ("mysql://p/i/d", "spanner://PROJECT/INSTANCE/DATABASE"),
            ("spanner://p/i/d?ttl=1", "\"ttl\""),
            ("spanner://p/i/d?table=a`b", "\"a`b\""),
            ("spanner://p/i/d?table=_a", "\"_a\""),
            ("spanner://p/i/d?timeout=0s", "above zero"),
        ];
        leasehold_testkit::urls::refuses(SpannerConfig::parse, &mistakes);
    }
}
