use std::time::Duration;

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;

/// What is configured in the same way for each server.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "the configurations of the stores set each field")]
pub struct Settings {
    /// The time limit of an operation.
    pub timeout: Duration,
    /// The most connections of the store's own.
    pub connections: usize,
    /// How statements read the clock, if not by the server's function: an expression, for tests.
    pub clock: Option<&'static str>,
}

/// The setters of [`Settings`], for the `impl` of a configuration with a field `settings`.
#[macro_export]
macro_rules! setters {
    () => {
        /// The default time limit of an operation: 5 s.
        pub const DEFAULT_TIMEOUT: ::std::time::Duration = $crate::Settings::TIMEOUT;
        /// The default of the most connections: 5.
        pub const DEFAULT_CONNECTIONS: usize = $crate::Settings::CONNECTIONS;

        /// Sets the time limit of an operation, connecting included. The time that it may wait for a row which somebody
        /// else's transaction holds is within it.
        #[must_use]
        pub fn timeout(mut self, timeout: ::std::time::Duration) -> Self {
            self.settings.timeout = timeout;
            self
        }

        /// Sets the most connections for requests, at least 2; no effect on your own pool.
        #[must_use]
        pub fn connections(mut self, most: usize) -> Self {
            self.settings.connections = most;
            self
        }

        /// Sets how statements read the clock, for Leasehold's own tests: `{schema}` stands for the schema.
        #[doc(hidden)]
        #[must_use]
        pub fn clock(mut self, expression: &'static str) -> Self {
            self.settings.clock = Some(expression);
            self
        }
    };
}

/// The URLs of a store, and what it does with the options of other clients.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::exhaustive_structs, reason = "each store gives all of them")]
pub struct UrlRules {
    /// The server, for messages.
    pub store: &'static str,
    /// The schemes of its URLs.
    pub schemes: &'static [&'static str],
    /// Options that change nothing.
    pub dropped: &'static [&'static str],
    /// Options that the driver cannot obey.
    pub refused: &'static [&'static str],
    /// What takes connections of the caller's instead.
    pub instead: &'static str,
}

impl Settings {
    /// The default time limit of an operation: 5 s.
    pub const TIMEOUT: Duration = Duration::from_secs(5);
    /// The default of the most connections: 5.
    pub const CONNECTIONS: usize = 5;

    /// Takes `timeout` and `connections` from a URL.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong value.
    pub fn take(url: &mut StoreUrl) -> Result<Self> {
        let mut settings = Self::default();
        if let Some(timeout) = url.take_duration("timeout")? {
            settings.timeout = timeout;
        }
        let enough = |text: &str| text.parse().ok().filter(|most| *most >= 2);
        if let Some(most) = url.take_parsed("connections", "a number of 2 or more", enough)? {
            settings.connections = most;
        }
        Ok(settings)
    }

    /// Refuses a time limit that is too short.
    ///
    /// # Errors
    /// `InvalidInput`, with the shortest one.
    pub fn check(&self) -> Result<()> {
        if self.timeout >= Duration::from_millis(1) {
            return Ok(());
        }
        let message = format!("the option timeout is {:?}; it must be at least 1ms", self.timeout);
        Err(Error::invalid_input(message))
    }
}

impl Default for Settings {
    fn default() -> Self {
        let (timeout, connections) = (Self::TIMEOUT, Self::CONNECTIONS);
        Self { timeout, connections, clock: None }
    }
}

impl UrlRules {
    /// Parses a URL of the store.
    ///
    /// # Errors
    /// `InvalidInput` for another scheme or an option that the driver cannot obey.
    pub fn parse(&self, url: &str) -> Result<StoreUrl> {
        let mut url = StoreUrl::parse(url)?;
        if !self.schemes.contains(&url.scheme()) {
            return Err(Error::invalid_input(format!(
                "the URL of a store for {} begins with {}://",
                self.store,
                self.schemes.join(":// or ")
            )));
        }
        url.drop_all(self.dropped);
        let instead = format!(
            "leave it out, or make connections with it yourself and give {} their pool",
            self.instead
        );
        url.refuse(self.refused, &instead)?;
        Ok(url)
    }
}
