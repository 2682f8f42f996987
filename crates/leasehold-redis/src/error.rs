//! Converts failures of the driver and of the server.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use leasehold_core::{Effect, Error, ErrorKind};
use redis::{ErrorKind as Driver, RedisError};

/// The code of a failure that the server did not report, but that was found while connecting.
pub(crate) const IN_CLUSTER: &str = "LHINCLUSTER";

/// The longest quote of a server's reply, in characters: some replies explain the protocol.
const LONGEST_QUOTE: usize = 100;

/// The error of a request to `server`.
pub(crate) fn of(server: &str, error: RedisError) -> Error {
    let kind = match error.kind() {
        Driver::Server(_) | Driver::Extension => return of_server(server, error),
        kind => kind,
    };
    let mapped = match kind {
        Driver::AuthenticationFailed => refused_login(server, &error),
        Driver::RESP3NotSupported => too_old(server),
        Driver::InvalidClientConfig | Driver::Client => {
            Error::invalid_input(format!("{server} cannot be used: {error}"))
        }
        Driver::Parse | Driver::UnexpectedReturnType => {
            let reply = one_line(&error);
            Error::unexpected(format!("{server} sent a reply that is not Redis's ({reply})"))
                .with_effect(Effect::Unknown)
        }
        _ => Error::unavailable(
            Effect::Unknown,
            format!("the connection to {server} broke before its reply arrived ({error})"),
        ),
    };
    mapped.with_source(error)
}

/// The error of connecting to `server`.
pub(crate) fn of_connecting(server: &str, error: RedisError) -> Error {
    if is_of_tls(&error) {
        let message = format!(
            "{server} and this client do not trust each other's certificates, or one of them does not use TLS \
             ({error})"
        );
        return Error::denied(message).with_source(error);
    }
    if matches!(error.kind(), Driver::Parse | Driver::UnexpectedReturnType) {
        let message = format!("{server} is not a Redis server ({})", one_line(&error));
        return Error::incompatible(message).with_source(error);
    }
    let mapped = of(server, error.clone());
    if mapped.kind() != ErrorKind::Unavailable {
        return mapped.with_effect(Effect::NotApplied);
    }
    let why = format!("connecting to {server} failed ({error})");
    Error::unavailable(Effect::NotApplied, why).with_source(error)
}

/// The driver's words about what it could not read have several lines.
fn one_line(error: &RedisError) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As much of a reply as a message quotes.
fn beginning(reply: &str) -> String {
    match reply.char_indices().nth(LONGEST_QUOTE) {
        Some((end, _)) => format!("{}…", &reply[..end]),
        None => reply.to_owned(),
    }
}

/// The driver wraps rustls's errors as invalid data.
fn is_of_tls(error: &RedisError) -> bool {
    let wrapped =
        error.source().and_then(|source| source.downcast_ref::<Arc<dyn StdError + Send + Sync>>());
    let io = wrapped.and_then(|error| error.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

fn of_server(server: &str, error: RedisError) -> Error {
    let code = error.code().unwrap_or("ERR").to_owned();
    let detail = error.detail().unwrap_or("").to_owned();
    of_text(server, &code, &detail).with_source(error)
}

/// The error that the server reported, or a script did for one lease among many.
pub(crate) fn of_text(server: &str, code: &str, detail: &str) -> Error {
    let reply = format!("{server} replied: {code} {}", beginning(detail));
    let not_now = |what: &str| Error::unavailable(Effect::NotApplied, format!("{what}; {reply}"));
    match code {
        "WRONGTYPE" => Error::incompatible(format!(
            "the key, or its metadata key lh:lock:…, has a value of another type, which is not a lock; use another \
             key or a prefix, or remove the value; {reply}"
        )),
        "LHCORRUPT" => Error::corrupt(format!(
            "{} cannot be read because it was changed; restore it as https://docs.rs/leasehold-redis describes, or \
             remove a metadata key, and with it the token of its holder",
            // The server adds the position in the script.
            detail.split_once(" script: ").map_or(detail, |(what, _)| what)
        )),
        "NOAUTH" | "WRONGPASS" => {
            Error::denied(format!("{server} refused the user or its password; {reply}"))
        }
        "NOPERM" => Error::denied(format!(
            "the user lacks a privilege (https://docs.rs/leasehold-redis); {reply}"
        )),
        "READONLY" => not_now("this server is a replica, which cannot lock; connect to its master"),
        "OOM" => not_now("the server is out of memory (maxmemory)"),
        "LOADING" => not_now("the server is still loading its data"),
        "BUSY" => not_now("another client's script keeps the server busy"),
        "MISCONF" => not_now("the server cannot write to its disk, so it refuses writes"),
        "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "NOREPLICAS" => {
            not_now("the server cannot serve this now")
        }
        "ERR" if detail.contains("max number of clients") => {
            not_now("the server has no connection free")
        }
        "ERR" if detail.contains("DB index is out of range") => Error::invalid_input(format!(
            "the number of the database in the URL is too large for the server's setting `databases`; {reply}"
        )),
        IN_CLUSTER => Error::incompatible(format!(
            "{server} is a node of a Redis Cluster; write redis+cluster:// instead, with one or more of its nodes"
        )),
        "ERR" if detail.contains("non local key") => {
            not_now("the slot of a key is being moved to another node")
        }
        // The script may have run other commands before this one.
        "ERR"
            if detail.contains("user executing the script")
                || detail.contains("ACL failure in script") =>
        {
            Error::denied(format!(
                "the user lacks a privilege for a part of this (https://docs.rs/leasehold-redis); {reply}"
            ))
            .with_effect(Effect::Unknown)
        }
        "ERR" if detail.contains("cluster support disabled") => Error::incompatible(format!(
            "{server} is not a node of a Redis Cluster; write redis:// instead, with this server only"
        )),
        "ERR" if detail.contains("SCRIPT KILL") || detail.contains("killed by user") => {
            not_now("the script was killed before it had changed anything")
        }
        // The script may have run other commands before this one.
        "ERR" if detail.contains("command called from script") => Error::incompatible(format!(
            "{server} has renamed or removed a command that our scripts use; https://docs.rs/leasehold-redis lists \
             them; {reply}"
        ))
        .with_effect(Effect::Unknown),
        "ERR" if detail.starts_with("unknown command") => Error::incompatible(format!(
            "{server} has renamed or removed a command that this store uses, or is older than Redis 7.0; \
             https://docs.rs/leasehold-redis lists the commands; {reply}"
        )),
        _ => Error::unexpected(reply).with_effect(Effect::Unknown),
    }
}

/// The error for a reply that no script of ours gives.
pub(crate) fn unexpected(server: &str, what: &str) -> Error {
    let message = format!("{server} sent a reply that none of our scripts gives: {what}");
    Error::unexpected(message).with_effect(Effect::Unknown)
}

fn refused_login(server: &str, error: &RedisError) -> Error {
    let reply = error.detail().unwrap_or("no more is known");
    Error::denied(format!("{server} refused the user or its password ({reply})"))
}

pub(crate) fn too_old(server: &str) -> Error {
    Error::incompatible(format!(
        "{server} is older than Redis 7.0 (in a Cluster 7.0.7), or another product, and lacks what this store needs"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_of_a_server_has_its_kind_and_effect() {
        use ErrorKind::{Corrupt, Denied, Incompatible, InvalidInput, Unavailable, Unexpected};
        for (code, detail, kind, effect) in [
            ("WRONGTYPE", "Operation against a key", Incompatible, Effect::NotApplied),
            ("LHCORRUPT", "a holder of lh:lock:{a}:a", Corrupt, Effect::NotApplied),
            ("NOPERM", "this user has no permissions", Denied, Effect::NotApplied),
            ("NOAUTH", "Authentication required.", Denied, Effect::NotApplied),
            (
                "READONLY",
                "You can't write against a read only replica.",
                Unavailable,
                Effect::NotApplied,
            ),
            ("OOM", "command not allowed", Unavailable, Effect::NotApplied),
            ("ERR", "max number of clients reached", Unavailable, Effect::NotApplied),
            ("ERR", "DB index is out of range", InvalidInput, Effect::NotApplied),
            ("BUSY", "Redis is busy running a script.", Unavailable, Effect::NotApplied),
            (
                "ERR",
                "Error running script: Script killed by user with SCRIPT KILL",
                Unavailable,
                Effect::NotApplied,
            ),
            ("ERR", "unknown command 'EVALSHA'", Incompatible, Effect::NotApplied),
            (
                "ERR",
                "Unknown Redis command called from script script: 5f, on @user_script:9.",
                Incompatible,
                Effect::Unknown,
            ),
            (
                "ERR",
                "Unknown command called from script script: 5f, on @user_script:9.",
                Incompatible,
                Effect::Unknown,
            ),
            ("ERR", "user_script:3: attempt to index", Unexpected, Effect::Unknown),
        ] {
            let error = of_text("h:1", code, detail);
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code} {detail}");
        }
    }
}
