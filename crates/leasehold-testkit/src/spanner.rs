//! Real emulators of Cloud Spanner, with one instance and one database.

pub mod spindle;

use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use google_cloud_auth::credentials::anonymous;
use google_cloud_lro::Poller as _;
use google_cloud_spanner::channel_pool::StaticChannelPoolConfig;
use google_cloud_spanner::client::{DatabaseClient, Spanner, SpannerBuilderExt as _};
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::ReadWriteTransaction;
use leasehold_conformance::{Result, free_port};
use libtest_mimic::Arguments;
pub use libtest_mimic::Trial;
pub use tokio::runtime::Runtime;

use crate::program::program;
use crate::server_process::{ServerProcess, start_at_a_free_port};

/// The project, the instance and the database.
pub const PLACE: [&str; 3] = ["test-project", "test-instance", "test-database"];

/// A clock that tests move.
const CLOCK: &str =
    "CREATE TABLE clock (id INT64 NOT NULL, micros INT64 NOT NULL) PRIMARY KEY (id)";

/// How the store reads it.
pub const CLOCK_READ: &str = "(SELECT micros FROM clock WHERE id = 1)";

const PROGRAM: &str = "gateway_main";

/// An emulator, with its REST interface.
pub struct Emulator {
    process: ServerProcess,
    http: u16,
    is_first_come: bool,
}

impl Emulator {
    pub async fn start() -> Result<Self> {
        Self::start_as(false).await
    }

    /// One that never aborts a transaction under way because another one begins; usually it does so each fifth time.
    pub async fn start_first_come() -> Result<Self> {
        Self::start_as(true).await
    }

    async fn start_as(is_first_come: bool) -> Result<Self> {
        start_at_a_free_port(async |process| {
            let emulator = Self { process, http: free_port()?, is_first_come };
            emulator.launch().await?;
            Ok(emulator)
        })
        .await
    }

    async fn launch(&self) -> Result<()> {
        let program = find()?;
        let mut command = vec![program.display().to_string()];
        let (port, http) = (self.port().to_string(), self.http.to_string());
        let options = ["--hostname", "127.0.0.1", "--grpc_port", &port, "--http_port", &http];
        command.extend(options.map(str::to_owned));
        if self.is_first_come {
            let script = self.first_come(&program.with_file_name("emulator_main"))?;
            command.extend(["--grpc_binary".to_owned(), script]);
        }
        let answers = async || {
            TcpStream::connect(("127.0.0.1", self.port())).is_ok()
                && TcpStream::connect(("127.0.0.1", self.http)).is_ok()
                && self.create().await.is_ok()
        };
        self.process.run(&command, answers).await
    }

    /// A script that starts this program with an option that the gateway does not pass on.
    fn first_come(&self, program: &Path) -> Result<String> {
        let script = self.directory().join("emulator");
        let program = program.display();
        let text = format!(
            "#!/bin/sh\nexec '{program}' --abort_current_transaction_probability=0 \"$@\"\n"
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, Permissions::from_mode(0o755))?;
        Ok(script.display().to_string())
    }

    /// Creates the instance and the database.
    async fn create(&self) -> Result<()> {
        let [project, instance, database] = PLACE;
        let spanner = self.spanner().await?;
        let http = format!("http://{}", self.http());
        let instances = spanner.instance_admin_builder().with_endpoint(&http).build().await?;
        let created = google_cloud_spanner::client::InstanceAdmin::create_instance(&instances)
            .set_parent(format!("projects/{project}"))
            .set_instance_id(instance)
            .set_instance(
                google_cloud_spanner_admin_instance_v1::model::Instance::new()
                    .set_config(format!("projects/{project}/instanceConfigs/emulator-config"))
                    .set_display_name("test"),
            );
        // An earlier try may have created it.
        drop(created.poller().until_done().await);
        let databases = spanner.database_admin_builder().with_endpoint(&http).build().await?;
        let created = databases
            .create_database()
            .set_parent(format!("projects/{project}/instances/{instance}"))
            .set_create_statement(format!("CREATE DATABASE `{database}`"))
            .set_extra_statements([CLOCK.to_owned(), spindle::TABLE.to_owned()]);
        created.poller().until_done().await?;
        Ok(())
    }

    async fn spanner(&self) -> Result<Spanner> {
        drop(rustls::crypto::ring::default_provider().install_default());
        let builder = Spanner::builder()
            .with_endpoint(format!("http://{}", self.grpc()))
            .with_credentials(anonymous::Builder::new().build())
            .with_channel_pool(StaticChannelPoolConfig::new(1));
        Ok(builder.build().await?)
    }

    /// A client past the store.
    pub async fn client(&self) -> Result<DatabaseClient> {
        let [project, instance, database] = PLACE;
        let path = format!("projects/{project}/instances/{instance}/databases/{database}");
        Ok(self.spanner().await?.database_client(path).build().await?)
    }

    /// The URL of its database, with options.
    pub fn url(&self) -> String {
        let [project, instance, database] = PLACE;
        let (grpc, http) = (self.grpc(), self.http());
        format!("spanner://{project}/{instance}/{database}?emulator={grpc}&emulator_http={http}")
    }

    /// The same, of a table of spindle whose clients have a duration of a second.
    pub fn spindle_url(&self) -> String {
        format!("{}&format=spindle&table=locktable&duration=1s", self.url())
    }

    /// Changes rows by a statement, past the store.
    pub async fn write(&self, sql: impl Into<Statement>) -> Result<()> {
        let statement = sql.into();
        let written = self.client().await?.read_write_transaction().build().run(
            move |transaction: ReadWriteTransaction| {
                let statement = statement.clone();
                async move { transaction.execute_update(statement).await }
            },
        );
        written.await?;
        Ok(())
    }

    /// The one number that a statement reads, past the store.
    pub async fn number(&self, sql: impl Into<Statement>) -> Result<i64> {
        let client = self.client().await?;
        let mut found = client.single_use().build().execute_query(sql).await?;
        Ok(found.next().await.transpose()?.expect("it reads a row").get(0)?)
    }

    /// Creates a database of the PostgreSQL dialect beside the other one.
    pub async fn create_postgres_database(&self, name: &str) -> Result<()> {
        let http = format!("http://{}", self.http());
        let admin = self.spanner().await?.database_admin_builder().with_endpoint(&http).build();
        let [project, instance, _] = PLACE;
        let created = admin
            .await?
            .create_database()
            .set_parent(format!("projects/{project}/instances/{instance}"))
            .set_create_statement(format!("CREATE DATABASE \"{name}\""))
            .set_database_dialect("POSTGRESQL");
        created.poller().until_done().await?;
        Ok(())
    }

    /// Changes the schema.
    pub async fn create_table(&self, statement: &str) -> Result<()> {
        let http = format!("http://{}", self.http());
        let admin = self.spanner().await?.database_admin_builder().with_endpoint(&http).build();
        let [project, instance, database] = PLACE;
        let changed = admin
            .await?
            .update_database_ddl()
            .set_database(format!("projects/{project}/instances/{instance}/databases/{database}"))
            .set_statements([statement.to_owned()]);
        changed.poller().until_done().await?;
        Ok(())
    }

    /// Where requests go.
    pub fn grpc(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Where tables are created.
    pub fn http(&self) -> String {
        format!("127.0.0.1:{}", self.http)
    }

    /// Sets the clock that tests move.
    pub async fn set_clock(&self, micros: u64) -> Result<()> {
        let row = Mutation::new_insert_or_update_builder("clock")
            .set("id")
            .to(1_i64)
            .set("micros")
            .to(i64::try_from(micros)?)
            .build();
        self.client().await?.write_only_transaction().build().write([row]).await?;
        Ok(())
    }

    /// Starts it again. It keeps nothing.
    pub async fn restart(&self) -> Result<()> {
        self.kill();
        self.launch().await
    }
}

impl Deref for Emulator {
    type Target = ServerProcess;

    fn deref(&self) -> &ServerProcess {
        &self.process
    }
}

/// The program, which lies beside the resolved `gcloud`.
fn find() -> Result<PathBuf> {
    let gcloud =
        program("gcloud", [] as [PathBuf; 0]).and_then(|gcloud| Ok(gcloud.canonicalize()?));
    let folders =
        gcloud.iter().filter_map(|gcloud| Some(gcloud.parent()?.join("cloud_spanner_emulator")));
    program(PROGRAM, folders)
}

/// Why there is no emulator here, if there is none.
pub fn unavailable() -> Option<String> {
    find().err().map(|_| {
        "the emulator of Cloud Spanner is not installed; install the component cloud-spanner-emulator of the Google Cloud CLI, or the \
         package google-cloud-cli-spanner-emulator"
            .to_owned()
    })
}

/// Tests that need an emulator, by their paths: those that are futures, and others.
#[macro_export]
macro_rules! spanner_tests {
    (async [$($future:path),* $(,)?], [$($test:path),* $(,)?]) => {
        $crate::spanner::run(vec![
            $($crate::spanner::Trial::test(stringify!($future), || {
                $crate::spanner::Runtime::new()?.block_on($future());
                Ok(())
            }),)*
            $($crate::spanner::Trial::test(stringify!($test), || {
                $test();
                Ok(())
            }),)*
        ])
    };
}

/// Runs tests. Without an emulator each is ignored, by name.
pub fn run(tests: Vec<Trial>) -> ExitCode {
    let missing = unavailable();
    if let Some(why) = &missing {
        eprintln!("not tested: {why}");
    }
    let ignored = |trial: Trial| trial.with_ignored_flag(missing.is_some());
    let tests = tests.into_iter().map(ignored).collect();
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
