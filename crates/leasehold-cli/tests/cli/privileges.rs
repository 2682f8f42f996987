//! What the pages report that a user needs: each statement is run from the page, and suffices.

use std::fmt::Debug;
use std::path::Path;
use std::process::Stdio;

use crate::support::{Store, code, text};
use leasehold_testkit::page::{privileges_of, section};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, postgres, redis};
use tokio::runtime::Runtime;

const FIRST_CONTACT: &str = include_str!("../../../../docs/first-contact.md");
const NENE: &str = include_str!("../../../../docs/stores/nene.md");
const MYSQL: &str = include_str!("../../../leasehold-mysql/MANUAL.md");
const POSTGRES: &str = include_str!("../../../leasehold-postgres/MANUAL.md");
const REDIS: &str = include_str!("../../../leasehold-redis/MANUAL.md");

/// Runs commands on this store, which must succeed.
fn succeed(url: &str, lines: &[&str]) {
    let place = Store::new();
    for line in lines {
        let mut command = place.command(line);
        let output = command.env("LEASEHOLD_STORE", url).stdin(Stdio::null()).output().unwrap();
        // 3: nobody holds the key.
        assert!([0, 3].contains(&code(&output)), "{line}: {}", text(&output.stderr));
    }
}

/// What a user who locks does, and `init`, which changes nothing then and tells what it finds.
const LOCKING: &[&str] =
    &["run -n k --min-hold 1h -- true", "list", "status k", "break k", "purge", "init"];

/// The same on the table of the PHP library, where nothing is kept after its release.
const PHP_LOCKING: &[&str] = &["run -n k -- true", "list", "status k", "break k", "purge"];

/// A server, and its administrator.
struct Place<S> {
    runtime: Runtime,
    server: S,
}

impl<S> Place<S> {
    fn new<E: Debug>(start: impl AsyncFnOnce() -> Result<S, E>) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(start()).unwrap();
        Self { runtime, server }
    }

    /// Runs statements one by one.
    fn each(&self, statements: &[&str], run: impl AsyncFn(&S, &str)) {
        assert!(!statements.is_empty(), "the page has them");
        self.runtime.block_on(async {
            for statement in statements {
                run(&self.server, statement).await;
            }
        });
    }
}

impl Place<mysql::Server> {
    fn mariadb() -> Self {
        Self::new(async || mysql::Server::start(&[]).await)
    }

    fn run(&self, statements: &[&str]) {
        self.each(statements, async |server, statement| server.run(statement).await);
    }
}

impl Place<postgres::Server> {
    fn postgresql() -> Self {
        Self::new(async || postgres::Server::start(&[]).await)
    }

    fn run(&self, statements: &[&str]) {
        self.each(statements, async |server, statement| server.run(statement).await);
    }
}

#[test]
fn those_of_the_page_of_mysql_suffice() {
    let place = Place::mariadb();
    let (owners, users): (Vec<_>, Vec<_>) =
        privileges_of(MYSQL).into_iter().partition(|statement| !statement.ends_with(" TO app"));
    place.run(&owners);
    succeed(&place.server.url().replace("root@", "owner:choose%20one@"), &["init", "init"]);
    place.run(&["CREATE USER app"]);
    place.run(&users);
    succeed(&place.server.url().replace("root@", "app@"), LOCKING);
}

#[test]
fn those_of_the_first_contact_with_mysql_suffice() {
    let place = Place::mariadb();
    succeed(&place.server.url(), &["init"]);
    place.run(&privileges_of(section(FIRST_CONTACT, "## MySQL and MariaDB")));
    succeed(&place.server.url().replace("root@", "app:choose%20one@"), LOCKING);
}

#[test]
fn those_of_the_page_of_postgresql_suffice() {
    let place = Place::postgresql();
    succeed(&place.server.url(), &["init"]);
    place.run(&["CREATE ROLE app LOGIN"]);
    place.run(&privileges_of(POSTGRES));
    succeed(&place.server.url().replace("postgres@", "app@"), LOCKING);
}

#[test]
fn those_of_the_first_contact_with_postgresql_suffice() {
    let place = Place::postgresql();
    succeed(&place.server.url(), &["init"]);
    place.run(&privileges_of(section(FIRST_CONTACT, "## PostgreSQL")));
    succeed(&place.server.url().replace("postgres@", "app:choose%20one@"), LOCKING);
}

#[test]
fn those_of_the_page_of_the_php_table_suffice() {
    let page = section(NENE, "## Least privileges");
    let (on_mysql, on_postgres) = page.split_once("\nPostgreSQL:\n").unwrap();
    let owners = |page| -> (Vec<&str>, Vec<&str>) {
        privileges_of(page).into_iter().partition(|statement: &&str| statement.contains("owner"))
    };

    let place = Place::mariadb();
    let url = place.server.url().replace("/leasehold", "/app?format=nene&guard=1");
    place.run(&["CREATE DATABASE app", "CREATE USER worker", "CREATE USER owner"]);
    let (owner, worker) = owners(on_mysql);
    place.run(&owner);
    succeed(&url.replace("root@", "owner@"), &["init"]);
    place.run(&worker);
    succeed(&url.replace("root@", "worker@"), PHP_LOCKING);

    let place = Place::postgresql();
    let url = format!("{}&format=nene", place.server.url());
    place.run(&["CREATE ROLE worker LOGIN", "CREATE ROLE owner LOGIN"]);
    let (owner, worker) = owners(on_postgres);
    place.run(&owner);
    succeed(&url.replace("postgres@", "owner@"), &["init"]);
    place.run(&worker);
    succeed(&url.replace("postgres@", "worker@"), PHP_LOCKING);
}

#[test]
fn those_of_the_page_of_redis_suffice() {
    let place = Place::new(async || redis::Server::start(&[]).await);
    place.each(&privileges_of(REDIS), async |server, rule| {
        let words: Vec<_> = rule.split(' ').collect();
        server.ask(&words).await.unwrap();
    });
    let url = place.server.url().replace("//", "//locker:PASSWORD@");
    succeed(&format!("{url}?prefix=app:"), LOCKING);
}

#[test]
fn no_other_page_has_such_statements() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tested = [FIRST_CONTACT, NENE, MYSQL, POSTGRES, REDIS];
    let mut folders = vec![root.join("docs"), root.join("crates")];
    let mut pages = vec![root.join("README.md"), root.join("CHANGELOG.md")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => pages.push(path),
                _ => {}
            }
        }
    }
    assert!(pages.len() > 30, "{pages:?}");
    for path in pages {
        let page = std::fs::read_to_string(&path).unwrap();
        if !tested.contains(&&*page) {
            assert_eq!(privileges_of(&page), [""; 0], "{}", path.display());
        }
    }
    // Of a page with two sections, what is in them is all.
    let parts = ["## PostgreSQL", "## MySQL and MariaDB"].map(|part| section(FIRST_CONTACT, part));
    assert_eq!(privileges_of(FIRST_CONTACT), parts.map(privileges_of).concat());
    assert_eq!(privileges_of(NENE), privileges_of(section(NENE, "## Least privileges")));
}
