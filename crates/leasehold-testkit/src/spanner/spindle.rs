//! A scripted client of spindle v2, the Go library (flowerinthenight/spindle v2.2.0): its rounds, its statements as it writes
//! them, and its defects.

use google_cloud_spanner::client::DatabaseClient;
use google_cloud_spanner::result::Row;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::ReadWriteTransaction;
use google_cloud_spanner::types;
use google_cloud_wkt::Timestamp;
use leasehold_conformance::Result;
use twox_hash::XxHash64;

/// The table as its README creates it.
pub const TABLE: &str = "CREATE TABLE locktable (name STRING(MAX) NOT NULL, heartbeat TIMESTAMP OPTIONS (allow_commit_timestamp=true), \
                         token TIMESTAMP OPTIONS (allow_commit_timestamp=true), writer STRING(MAX)) PRIMARY KEY (name)";

/// The text of a token that is null.
const NO_TOKEN: &str = "0001-01-01T00:00:00Z";

/// A `Spindle` on the table `locktable`.
pub struct Spindle {
    client: DatabaseClient,
    name: String,
    id: String,
    duration: i64,
    /// The token that it believes to have.
    own: Option<Timestamp>,
    /// Whether it may still add the row.
    is_initial: bool,
    /// How many rounds it has led.
    leads: u64,
}

/// What a round finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Leads,
    /// Another leader is alive.
    Follows,
    /// The lock is free, and its attempt succeeded: the next round finds that it leads.
    Attempted,
    /// The lock is free, and its attempt failed.
    Failed,
}

impl Spindle {
    /// With a duration in milliseconds; a shorter one than a second is a second.
    pub fn new(client: DatabaseClient, name: &str, id: &str, duration: i64) -> Self {
        let duration = duration.max(1_000);
        let (name, id) = (name.to_owned(), id.to_owned());
        Self { client, name, id, duration, own: None, is_initial: true, leads: 0 }
    }

    /// A round of `Run`.
    pub async fn round(&mut self) -> Result<Round> {
        let (diff, token) = self.check().await?;
        if self.own.is_some() && self.own == token {
            self.leads += 1;
            if self.leads == 1 {
                self.heartbeat().await?;
            }
            return Ok(Round::Leads);
        }
        if diff.is_some_and(|diff| {
            diff > 0 && (diff <= self.duration || diff - self.duration <= 1_000)
        }) {
            self.leads = 0;
            return Ok(Round::Follows);
        }
        self.attempt().await
    }

    /// What it does once it has found the lock free, without another look at the heartbeat.
    pub async fn attempt(&mut self) -> Result<Round> {
        if self.is_initial {
            if self.insert().await {
                return Ok(Round::Attempted);
            }
            self.is_initial = false;
        }
        let row = self.row("token").await?;
        let token = row.map(|row| row.get::<Option<Timestamp>>("token")).transpose()?;
        let text = match token {
            // As in `claim_without_row`.
            None => String::new(),
            Some(None) => NO_TOKEN.to_owned(),
            Some(Some(token)) => String::from(token),
        };
        match self.claim_by_text(&text).await {
            None => Ok(Round::Failed),
            Some(new) => {
                self.update(new).await?;
                Ok(Round::Attempted)
            }
        }
    }

    /// `HasLock`.
    pub async fn has_lock(&self) -> Result<bool> {
        Ok(self.own.is_some() && self.own == self.check().await?.1)
    }

    /// `Leader`.
    pub async fn leader(&self) -> Result<Option<String>> {
        let row = self.row("writer").await?;
        Ok(row.map(|row| row.get("writer")).transpose()?.flatten())
    }

    /// How old the heartbeat is, in milliseconds, and the token.
    pub async fn check(&self) -> Result<(Option<i64>, Option<Timestamp>)> {
        let columns = "timestamp_diff(current_timestamp(), heartbeat, millisecond) as diff, token";
        let Some(row) = self.row(columns).await? else { return Ok((None, None)) };
        Ok((row.get("diff")?, row.get("token")?))
    }

    /// Its first transaction of a takeover: the claim row. Returns when it was committed.
    pub async fn claim(&mut self, token: Option<Timestamp>) -> Option<Timestamp> {
        self.claim_by_text(&token.map_or_else(|| NO_TOKEN.to_owned(), String::from)).await
    }

    /// The same of a client that has found no row of the lock.
    pub async fn claim_without_row(&self) -> Option<Timestamp> {
        self.claim_by_text("").await
    }

    async fn claim_by_text(&self, text: &str) -> Option<Timestamp> {
        let hash = XxHash64::oneshot(0, text.as_bytes());
        self.write(format!("insert locktable (name) values ('{}_{hash}')", self.name)).await.ok()
    }

    /// Its second one: whatever the token is by now.
    pub async fn update(&mut self, new: Timestamp) -> Result<()> {
        let sql = "update locktable set heartbeat = PENDING_COMMIT_TIMESTAMP(), token = @token, writer = @writer \
                   where name = @name";
        let statement = Statement::builder(sql)
            .add_typed_param("token", new, types::timestamp())
            .add_param("writer", &*self.id)
            .add_param("name", &*self.name);
        self.write(statement.build()).await?;
        self.own = Some(new);
        Ok(())
    }

    /// A heartbeat, whoever leads, and then the claim rows.
    pub async fn heartbeat(&self) -> Result<()> {
        let name = &self.name;
        self.write(format!(
            "update locktable set heartbeat = PENDING_COMMIT_TIMESTAMP() where name = '{name}'"
        ))
        .await?;
        self.write(format!("delete from locktable where starts_with(name, '{name}_')")).await?;
        Ok(())
    }

    async fn insert(&mut self) -> bool {
        let sql = format!(
            "insert locktable (name, heartbeat, token, writer) values ('{}', PENDING_COMMIT_TIMESTAMP(), \
             PENDING_COMMIT_TIMESTAMP(), '{}')",
            self.name, self.id
        );
        let at = self.write(sql).await;
        self.own = at.as_ref().ok().copied().or(self.own);
        at.is_ok()
    }

    async fn row(&self, columns: &str) -> Result<Option<Row>> {
        let sql = format!("select {columns} from locktable where name = @name");
        let statement = Statement::builder(sql).add_param("name", &*self.name).build();
        let mut found = self.client.single_use().build().execute_query(statement).await?;
        Ok(found.next().await.transpose()?)
    }

    /// Returns when it was committed.
    async fn write(&self, statement: impl Into<Statement>) -> Result<Timestamp> {
        let statement = statement.into();
        let runner = self.client.read_write_transaction().build();
        let done = runner
            .run(move |transaction: ReadWriteTransaction| {
                let statement = statement.clone();
                async move { transaction.execute_update(statement).await }
            })
            .await?;
        Ok(done.commit_timestamp().expect("it was committed"))
    }
}
