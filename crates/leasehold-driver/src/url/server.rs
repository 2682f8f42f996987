use std::fmt;
use std::net::IpAddr;

/// What follows `//` in a URL: the login and the servers.
#[derive(Default)]
pub(super) struct Server {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    /// `None` if they cannot be parsed.
    pub(super) places: Option<Vec<Place>>,
}

/// A server's host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a place is a host and a port")]
pub struct Place {
    /// A name, an address of IPv6 without brackets, or a path that was percent-encoded.
    pub host: String,
    /// `None` if the URL names none.
    pub port: Option<u16>,
}

/// Whether a host is this machine by its name or its address.
pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Server {
    /// Parses `[USER[:PASSWORD]@][HOST[:PORT][,HOST[:PORT]…]]`; `None` for a part that is not UTF-8 after decoding.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (login, places) = text.rsplit_once('@').unwrap_or(("", text));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let part = |text: &str| Some(Some(decoded(text)?).filter(|text| !text.is_empty()));
        let places = match places {
            "" => Some(Vec::new()),
            places => places.split(',').map(place).collect(),
        };
        Some(Self { user: part(user)?, password: part(password)?, places })
    }
}

/// Without the login.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Place { host, port }) in self.places.iter().flatten().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            if host.contains(':') {
                write!(f, "[{host}]")?
            } else {
                f.write_str(host)?
            }
            port.map_or(Ok(()), |port| write!(f, ":{port}"))?;
        }
        Ok(())
    }
}

fn place(text: &str) -> Option<Place> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_number = |port: &&str| port.bytes().all(|b| b.is_ascii_digit());
    let port = match port {
        "" => None,
        port => Some(port.strip_prefix(':').filter(is_number)?.parse().ok()?),
    };
    let host = decoded(host).filter(|host| !host.is_empty())?;
    Some(Place { host, port })
}

/// `None` for what is not UTF-8 after decoding.
pub(super) fn decoded(text: &str) -> Option<String> {
    percent_encoding::percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Option<Vec<(String, Option<u16>)>> {
        let places = Server::parse(text).unwrap().places?;
        Some(places.into_iter().map(|place| (place.host, place.port)).collect())
    }

    #[test]
    fn servers_have_a_host_and_perhaps_a_port() {
        let one = |host: &str, port| Some(vec![(host.to_owned(), port)]);
        assert_eq!(places(""), Some(vec![]));
        assert_eq!(places("u:p@"), Some(vec![]));
        assert_eq!(places("db-1"), one("db-1", None));
        assert_eq!(places("u:p@db-1:65535"), one("db-1", Some(65535)));
        assert_eq!(places("[::1]"), one("::1", None));
        assert_eq!(places("[::1]:80"), one("::1", Some(80)));
        assert_eq!(places("%2Frun%2Fpg:5433"), one("/run/pg", Some(5433)));
        let two = vec![("a".to_owned(), Some(1)), ("b".to_owned(), None)];
        assert_eq!(places("u:p@a:1,b"), Some(two));
        for bad in ["h:", "h:x", "h:+1", "h:65536", ":1", "[::1", "[::1]1", "a,", "a,,b", "a:1:2"] {
            assert_eq!(places(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_server_is_shown_without_its_login() {
        for (text, shown) in [
            ("u:hunter2@host:6379", "host:6379"),
            ("u@[::1]:80,b", "[::1]:80,b"),
            ("u:hunter", ""),
            ("", ""),
        ] {
            assert_eq!(Server::parse(text).unwrap().to_string(), shown, "{text}");
        }
    }
}
