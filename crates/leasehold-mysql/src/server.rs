//! Which server a URL names.

use std::net::IpAddr;

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use mysql_async::{Opts, OptsBuilder};
use percent_encoding::percent_decode_str;

use crate::sql::DatabaseName;
use crate::tls;

/// A server, the login, and the database of the store.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) opts: Opts,
    pub(crate) database: DatabaseName,
    /// Without the login.
    pub(crate) name: String,
}

impl Server {
    /// The server of `//[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`.
    pub(crate) fn parse(address: &str, default: &str, options: &mut StoreUrl) -> Result<Self> {
        let malformed = || {
            Error::invalid_input(
                "the mysql URL cannot be parsed; write mysql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, with what is \
                 special in a URL percent-encoded (@ is %40)",
            )
        };
        let rest = address.strip_prefix("//").ok_or_else(malformed)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = match authority.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        let (user, password) = match login.map(|login| login.split_once(':').ok_or(login)) {
            None => (None, None),
            Some(Err(user)) => (Some(decoded(user).ok_or_else(malformed)?), None),
            Some(Ok((user, password))) => (
                Some(decoded(user).ok_or_else(malformed)?),
                Some(decoded(password).ok_or_else(malformed)?),
            ),
        };
        let database = match path {
            "" => default.to_owned(),
            path => decoded(path).ok_or_else(malformed)?,
        };
        let database = DatabaseName::new(&database).ok_or_else(|| {
            Error::invalid_input(format!(
                "the database {database:?} of the mysql URL must be 1 to {} letters, digits, _, - and $",
                DatabaseName::MAX_BYTES
            ))
        })?;
        let mut either =
            |names: [&str; 2]| names.iter().filter_map(|name| options.take(name)).next();
        let mode = either(["ssl-mode", "sslmode"]);
        let authority = either(["ssl-ca", "sslca"]);
        let opts = OptsBuilder::default().user(user).pass(password).prefer_socket(false);
        if let Some(socket) = options.take("socket") {
            if !place.is_empty() || mode.is_some() || authority.is_some() {
                return Err(Error::invalid_input(
                    "the mysql URL has the option socket, and so no host and no TLS; write mysql:///DATABASE?socket=PATH",
                ));
            }
            let opts = opts.socket(Some(socket.clone())).into();
            return Ok(Self { opts, database, name: socket });
        }
        let (host, port) = place_of(place).ok_or_else(malformed)?;
        let opts = opts.ip_or_hostname(host.clone()).tcp_port(port);
        let is_encrypted = match mode.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("disabled") => false,
            Some("required" | "verify_ca" | "verify_identity") => true,
            // Here TLS is never given up because the server has none.
            None | Some("preferred") => !is_here(&host) || authority.is_some(),
            Some(_) => {
                return Err(Error::invalid_input(format!(
                    "the option ssl-mode is {:?}; it must be verify_identity, required (the same), preferred (the default) or disabled",
                    mode.unwrap_or_default()
                )));
            }
        };
        let ssl = is_encrypted.then(|| tls::of_authority(authority.as_deref())).transpose()?;
        let name = format!("{host}:{port}");
        Ok(Self { opts: opts.ssl_opts(ssl).into(), database, name })
    }
}

fn decoded(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

/// Host and port, 3306 by default. An address of IPv6 is in brackets.
fn place_of(place: &str) -> Option<(String, u16)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let port = port.map_or(Ok(3306), str::parse).ok()?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
