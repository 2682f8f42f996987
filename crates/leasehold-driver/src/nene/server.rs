use std::future::Future;
use std::time::Duration;

use leasehold_core::Result;

use super::{NeneConfig, NeneRows, NeneTable, Statements};
use crate::StoreUrl;

/// The configuration of a server in whose databases the table may be.
pub trait NeneServer: Sized + Send {
    /// The options of its URLs.
    const OPTIONS: &'static [&'static str];

    /// A database of the server.
    type Rows: NeneRows;

    /// Parses a URL of the server. Returns the options that are left too.
    ///
    /// # Errors
    /// `InvalidInput` for another scheme or a wrong value.
    fn parse_for_nene(url: &str) -> Result<(Self, StoreUrl)>;

    /// Connects to the database with this table. Returns the statements and the time limit of an operation too.
    ///
    /// # Errors
    /// As [`NeneServerConfig::connect`].
    fn connect_to_nene(
        self,
        nene: &NeneConfig,
    ) -> impl Future<Output = Result<(Self::Rows, Statements, Duration)>> + Send;
}

/// Which server to use, and how.
#[derive(Debug, Clone)]
pub struct NeneServerConfig<S> {
    server: S,
    nene: NeneConfig,
}

impl<S: NeneServer> NeneServerConfig<S> {
    /// The table `distributed_locks` of this server. When to forget token counters and where to be woken from have no
    /// meaning here.
    pub fn new(server: S) -> Self {
        Self { server, nene: NeneConfig::default() }
    }

    /// Parses a URL of the server with `format=nene`, and with the server's options, except `wakeups`, and those of
    /// [`NeneConfig::take`].
    ///
    /// # Errors
    /// `InvalidInput` for another scheme or format, an unknown option or a wrong value. No message repeats the URL, which
    /// may contain a password.
    pub fn parse(url: &str) -> Result<Self> {
        let (server, mut options) = S::parse_for_nene(url)?;
        let nene = NeneConfig::take(&mut options)?;
        options.finish(&[NeneConfig::OPTIONS, S::OPTIONS].concat())?;
        Ok(Self { server, nene })
    }

    /// Sets the table, and how it is used.
    #[must_use]
    pub fn nene(mut self, nene: NeneConfig) -> Self {
        self.nene = nene;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the server cannot be reached or refuses the
    /// login.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<NeneTable<S::Rows>> {
        let connected = async {
            self.nene.check()?;
            self.server.connect_to_nene(&self.nene).await
        };
        let connected = connected.await.map_err(|e| e.with_context(S::Rows::NAME, "connect"));
        let (rows, statements, timeout) = connected?;
        Ok(NeneTable::new(rows, statements, timeout, self.nene))
    }
}
