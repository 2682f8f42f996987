//! The conformance suite on real PostgreSQL servers, each case with a schema of its own.

use std::process::ExitCode;

use futures_util::FutureExt as _;
use leasehold_conformance::Suite;
use leasehold_testkit::postgres::{Server, program};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::conformance::Kind;

fn main() -> ExitCode {
    let postgres = Kind {
        names: ["postgres", "postgres-nene"],
        start: || async { Server::start(Server::UNSYNCED).await?.hostile().await }.boxed(),
        unavailable: || program("postgres").err().map(|error| error.to_string()),
    };
    postgres.add_to(Suite::new()).main()
}
