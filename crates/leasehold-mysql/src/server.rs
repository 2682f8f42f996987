//! Which server a URL names.

use leasehold_core::{Error, Result};
use leasehold_driver::{Place, StoreUrl, is_loopback};
use mysql_async::{Opts, OptsBuilder};

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
    /// The server of a URL. Takes the options that state how to connect.
    pub(crate) fn parse(url: &mut StoreUrl, default: &str) -> Result<Self> {
        let place = match url.places()? {
            [] => None,
            [place] => Some(place.clone()),
            _ => {
                return Err(Error::invalid_input(
                    "the mysql URL names several servers; name the one that is written to, or give a quorum of them",
                ));
            }
        };
        let database = match url.path().strip_prefix('/') {
            None | Some("") => default.to_owned(),
            Some(database) => database.to_owned(),
        };
        let database = DatabaseName::new(&database).ok_or_else(|| {
            Error::invalid_input(format!(
                "the database {database:?} of the mysql URL must be 1 to {} letters, digits, _, - and $",
                DatabaseName::MAX_BYTES
            ))
        })?;
        let mut either = |names: [&str; 2]| names.iter().filter_map(|name| url.take(name)).next();
        let mode = either(["ssl-mode", "sslmode"]);
        let authority = either(["ssl-ca", "sslca"]);
        let opts =
            OptsBuilder::default().user(url.user()).pass(url.password()).prefer_socket(false);
        if let Some(socket) = url.take("socket") {
            if place.is_some() || mode.is_some() || authority.is_some() {
                return Err(Error::invalid_input(
                    "the mysql URL has the option socket, and so no host and no TLS; write mysql:///DATABASE?socket=PATH",
                ));
            }
            let opts = opts.socket(Some(socket.clone())).into();
            return Ok(Self { opts, database, name: socket });
        }
        let Place { host, port } = place.ok_or_else(|| {
            Error::invalid_input(
                "the mysql URL has no host; write mysql://HOST/DATABASE, or mysql:///DATABASE?socket=PATH",
            )
        })?;
        let port = port.unwrap_or(3306);
        let opts = opts.ip_or_hostname(host.clone()).tcp_port(port);
        let is_encrypted = match mode.as_deref().map(str::to_ascii_lowercase).as_deref() {
            Some("disabled") => false,
            Some("required" | "verify_ca" | "verify_identity") => true,
            // Here TLS is never given up because the server has none.
            None | Some("preferred") => !is_loopback(&host) || authority.is_some(),
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
