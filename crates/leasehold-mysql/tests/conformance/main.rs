//! The conformance suite on real MariaDB and MySQL servers, each case with a database of its own.

use std::process::ExitCode;

use futures_util::FutureExt as _;
use leasehold_conformance::Suite;
use leasehold_testkit::mysql::{Product, Server};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::conformance::Kind;

fn main() -> ExitCode {
    let mariadb = Kind {
        names: ["mariadb", "mariadb-nene"],
        start: || Server::start_product(Product::MariaDb, Server::UNSYNCED).boxed(),
        unavailable: || missing(Product::MariaDb),
    };
    let mysql = Kind {
        names: ["mysql", "mysql-nene"],
        start: || Server::start_product(Product::MySql, Server::UNSYNCED).boxed(),
        unavailable: || missing(Product::MySql),
    };
    mysql.add_to(mariadb.add_to(Suite::new())).main()
}

fn missing(product: Product) -> Option<String> {
    product.program().err().map(|error| error.to_string())
}
