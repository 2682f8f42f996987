use std::fmt;
use std::time::Duration;

use leasehold_core::{Error, Result};

use self::options::{Setting, options};
use self::server::{Server, decoded};

mod options;
mod server;

pub use self::server::{Place, is_loopback};

/// A parsed store URL: `scheme:path?option=value&…`, or `scheme://user:password@host:port/path?option=value&…`.
///
/// All parts are percent-decoded. Take every option before [`finish`](StoreUrl::finish), which refuses any that is left:
/// no option is ignored. It is shown as the URL without login and options, in which no part of a password remains.
pub struct StoreUrl {
    scheme: String,
    server: Option<Server>,
    path: String,
    options: Vec<Setting>,
}

impl StoreUrl {
    /// Parses `url`.
    ///
    /// # Errors
    /// `InvalidInput` if it has no scheme, or a part that is not UTF-8, or if it has `//` and one of `@` and `#` where
    /// only a password that is not percent-encoded has it: a second `@` before the path, or one of them in the path or in
    /// the options. (Behind `///` a path is a file's, and may have both.) Messages never repeat what follows the
    /// scheme, because it may contain a password.
    pub fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
        else {
            return Err(Error::invalid_input(
                "the store URL has no scheme; write it as SCHEME:…, for example sqlite:locks.db",
            ));
        };
        let scheme = scheme.to_ascii_lowercase();
        let (server, rest) = match rest.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                (Some(&rest[..end]), &rest[end..])
            }
            None => (None, rest),
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_ambiguous = match server {
            None => false,
            Some("") => query.contains(['@', '#']),
            Some(server) => server.matches('@').count() > 1 || rest.contains(['@', '#']),
        };
        if is_ambiguous {
            return Err(Error::invalid_input(format!(
                "the {scheme} URL has an @ or # that is not percent-encoded; percent-encode the password: @ is %40, / is %2F, \
                 ? is %3F, # is %23, : is %3A, & is %26 and % is %25"
            )));
        }
        let not_utf_8 =
            |what: &str| Error::invalid_input(format!("{what} is not UTF-8 after decoding"));
        let the_url = format!("the {scheme} URL");
        let server = server
            .map(|server| Server::parse(server).ok_or_else(|| not_utf_8(&the_url)))
            .transpose()?;
        let path = decoded(path).ok_or_else(|| not_utf_8(&the_url))?;
        let options =
            options(query).ok_or_else(|| not_utf_8(&format!("an option of {the_url}")))?;
        Ok(Self { scheme, server, path, options })
    }

    /// The part before the first colon, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Whether `//` follows the scheme, and a login or a server.
    pub fn has_server(&self) -> bool {
        let names =
            |server: &Server| server.places.as_ref().is_none_or(|places| !places.is_empty());
        self.user().is_some()
            || self.password().is_some()
            || self.server.as_ref().is_some_and(names)
    }

    /// The user, unless it is empty.
    pub fn user(&self) -> Option<&str> {
        self.server.as_ref()?.user.as_deref()
    }

    /// The password, unless it is empty.
    pub fn password(&self) -> Option<&str> {
        self.server.as_ref()?.password.as_deref()
    }

    /// The servers; none behind `///`.
    ///
    /// # Errors
    /// `InvalidInput` without `//`, or if they are not `HOST` or `HOST:PORT`, separated by commas.
    pub fn places(&self) -> Result<&[Place]> {
        let places = self.server.as_ref().and_then(|server| server.places.as_deref());
        places.ok_or_else(|| {
            Error::invalid_input(format!(
                "the {0} URL cannot be parsed; write {0}://USER:PASSWORD@HOST:PORT/…, with a number as the port, and with \
                 what is special in a URL percent-encoded (@ is %40)",
                self.scheme
            ))
        })
    }

    /// The part between the scheme or the servers and the options, with the slash that it begins with.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Takes an option: the first one, if it is repeated.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|option| option.name == name)?;
        Some(self.options.remove(at).value)
    }

    /// Takes all options with these names, with their names, in the order of the URL.
    pub fn take_these(&mut self, names: &[&str]) -> Vec<(String, String)> {
        let (taken, left): (Vec<_>, _) = std::mem::take(&mut self.options)
            .into_iter()
            .partition(|option| names.contains(&option.name.as_str()));
        self.options = left;
        taken.into_iter().map(|option| (option.name, option.value)).collect()
    }

    /// Takes an option whose value `parse` accepts, as `allowed` describes it.
    ///
    /// # Errors
    /// `InvalidInput` for another value, with what is allowed.
    pub fn take_parsed<T>(
        &mut self,
        name: &str,
        allowed: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let wrong = || {
            let scheme = &self.scheme;
            format!("the option {name} of the {scheme} URL is {value:?}; it must be {allowed}")
        };
        parse(&value).map(Some).ok_or_else(|| Error::invalid_input(wrong()))
    }

    /// Takes an option that is a duration such as `5s` or `250ms`.
    ///
    /// # Errors
    /// `InvalidInput` if it is not a duration, or zero.
    pub fn take_duration(&mut self, name: &str) -> Result<Option<Duration>> {
        self.take_parsed(name, "a duration above zero, for example 5s or 250ms", |text| {
            humantime::parse_duration(text).ok().filter(|duration| !duration.is_zero())
        })
    }

    /// Takes an option that is `0` (the default) or `1`.
    ///
    /// # Errors
    /// `InvalidInput` for another value.
    pub fn take_flag(&mut self, name: &str) -> Result<bool> {
        let number = |text: &str| ["0", "1"].iter().position(|known| *known == text);
        Ok(self.take_parsed(name, "0 or 1", number)? == Some(1))
    }

    /// Drops options that other clients of the server have, and that change nothing here.
    pub fn drop_all(&mut self, names: &[&str]) {
        self.options.retain(|option| !names.contains(&option.name.as_str()));
    }

    /// Refuses options that other clients of the server have, and that this store cannot obey.
    ///
    /// # Errors
    /// `InvalidInput` with the first of them, and `instead`: what to do.
    pub fn refuse(&self, names: &[&str], instead: &str) -> Result<()> {
        match self.options.iter().find(|option| names.contains(&option.name.as_str())) {
            None => Ok(()),
            Some(Setting { name, .. }) => Err(Error::invalid_input(format!(
                "the option {name} of the {} URL is not supported; {instead}",
                self.scheme
            ))),
        }
    }

    /// Checks that no option is left; `known` lists the store's options.
    ///
    /// # Errors
    /// `InvalidInput` with the unknown option and the known ones, or with the option that was given twice.
    pub fn finish(self, known: &[&str]) -> Result<()> {
        match self.options.first() {
            None => Ok(()),
            Some(Setting { name, .. }) if known.contains(&name.as_str()) => {
                Err(Error::invalid_input(format!(
                    "the option {name:?} of the {} URL is given twice",
                    self.scheme
                )))
            }
            Some(Setting { name, is_shown, .. }) => {
                let name = if *is_shown { format!(" {name:?}") } else { String::new() };
                Err(Error::invalid_input(format!(
                    "the {} URL has an unknown option{name}; known options: {}; in values & is %26",
                    self.scheme,
                    known.join(", ")
                )))
            }
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            // Without its host, what follows may be a password.
            Some(server) if server.places.is_none() => write!(f, "{}://…", self.scheme),
            Some(server) => write!(f, "{}://{server}{}", self.scheme, self.path),
            None => write!(f, "{}:{}", self.scheme, self.path),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_decoded() {
        let mut url = StoreUrl::parse("SQLite:a%3Fb%20c.db?timeout=250ms&prefix=x_").unwrap();
        assert_eq!((url.scheme(), url.path()), ("sqlite", "a?b c.db"));
        assert_eq!(url.take_duration("timeout").unwrap(), Some(Duration::from_millis(250)));
        assert_eq!(url.take("prefix").as_deref(), Some("x_"));
        url.finish(&[]).unwrap();
    }

    #[test]
    fn text_that_is_not_utf_8_is_refused_and_not_shown() {
        for bad in ["x:%FF", "x:?a=%FFhunter2", "x:?%FFhunter2=1", "x:?b=1&a=%C3%28hunter2"] {
            let error = StoreUrl::parse(bad).unwrap_err();
            assert_eq!(error.kind(), leasehold_core::ErrorKind::InvalidInput, "{bad}");
            let text = error.to_string();
            assert!(text.contains("not UTF-8") && !text.contains("hunter2"), "{text}");
        }
        let mut url = StoreUrl::parse("x:?a=%C3%A9%20b+%2B&&c&d=e=f").unwrap();
        assert_eq!(url.take("a").as_deref(), Some("é b++"));
        assert_eq!(url.take("c").as_deref(), Some(""));
        assert_eq!(url.take("d").as_deref(), Some("e=f"));
        url.finish(&[]).unwrap();
    }

    #[test]
    fn an_option_that_may_be_the_rest_of_a_password_is_not_shown() {
        let unknown = |query: &str| {
            let mut url = StoreUrl::parse(&format!("quorum:?{query}")).unwrap();
            drop((url.take("node"), url.take("pass")));
            url.finish(&[]).unwrap_err().to_string()
        };
        for query in [
            "node=redis://u:hunter&secret@h",
            "node=redis://u:hunter&secret=1&two@h",
            "node=redis://u:hunter&secret=1%40h",
            "node=redis%2Bunix:///s?pass=hunter&secret=1",
            "pass=hunter&secret",
            "pass=hunter&secret=1",
        ] {
            let error = unknown(query);
            assert!(error.contains("unknown option;") && !error.contains("secret"), "{error}");
        }
        assert!(unknown("ttl=1&node=redis://h").contains("\"ttl\""));
        assert!(unknown("node=redis://u:p@h&ttl=1").contains("\"ttl\""));
    }

    #[test]
    fn what_only_an_unencoded_password_has_is_refused() {
        for url in [
            "mysql://app:hunter2/secret@h/db",
            "redis://app:hunter2?secret@h",
            "redis://app:12#34@h",
            "redis://app:hunter2#secret",
            "postgres://app:hunter2@secret@h",
            "postgres://app@h/db?password=hunter2@secret",
            "postgres:///db?password=hunter2@secret",
            "redis+unix:///s?pass=hunter2#secret",
        ] {
            let error = StoreUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), leasehold_core::ErrorKind::InvalidInput, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains("percent-encode the password") && text.contains("@ is %40"));
            assert!(!text.contains("hunter2") && !text.contains("secret"), "{text}");
        }
        for (url, path) in [
            ("sqlite:/srv/a@b#c.db?prefix=x@y", "/srv/a@b#c.db"),
            ("sqlite:///srv/a@b#c.db", "/srv/a@b#c.db"),
            ("redis+unix:///run/a@b.sock", "/run/a@b.sock"),
        ] {
            assert_eq!(StoreUrl::parse(url).unwrap().path(), path, "{url}");
        }
    }

    #[test]
    fn every_password_arrives_if_it_is_encoded_and_is_never_shown() {
        let all = (0..=255).map(|byte| format!("hunter2{}secret", char::from(byte)));
        for password in all {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let url = StoreUrl::parse(&format!("x://%40:{encoded}@h:1/db?a=b")).unwrap();
            assert_eq!((url.user(), url.password()), (Some("@"), Some(&*password)));
            assert_eq!(url.to_string(), "x://h:1/db");
        }
    }

    #[test]
    fn a_url_is_shown_without_login_and_options() {
        for (url, shown) in [
            ("redis://u:hunter2@host:6379/0?a=b", "redis://host:6379/0"),
            ("redis://u:hunter/two", "redis://…"),
            ("redis://u:hunter2@[::1]:6379/0", "redis://[::1]:6379/0"),
            ("sqlite:/srv/a@b/x.db?timeout=1s", "sqlite:/srv/a@b/x.db"),
            ("sqlite:///srv/a:b/x.db", "sqlite:///srv/a:b/x.db"),
            ("local:", "local:"),
        ] {
            let url = StoreUrl::parse(url).unwrap();
            assert_eq!(
                (url.to_string(), format!("{url:?}")),
                (shown.into(), format!("StoreUrl({shown})"))
            );
        }
    }

    #[test]
    fn options_of_other_clients_are_dropped_or_refused_by_name() {
        let mut url = StoreUrl::parse("x:?cache=100&cert=/hunter2&cache=2").unwrap();
        url.drop_all(&["cache"]);
        let error = url.refuse(&["key", "cert"], "leave it out").unwrap_err().to_string();
        assert!(error.contains("the option cert of the x URL"), "{error}");
        assert!(error.contains("leave it out") && !error.contains("hunter2"), "{error}");
        url.refuse(&["key"], "leave it out").unwrap();
        assert!(url.take("cert").is_some());
        url.finish(&[]).unwrap();
    }

    #[test]
    fn errors_name_the_mistake_and_no_secret() {
        assert!(StoreUrl::parse("locks.db").is_err());
        assert!(StoreUrl::parse("/a:b").is_err());
        let mut twice = StoreUrl::parse("x:?a=1&b=3&a=2").unwrap();
        assert!(twice.take("a").is_some() && twice.take("b").is_some());
        let error = twice.finish(&["a", "b"]).unwrap_err().to_string();
        assert!(error.contains("\"a\"") && error.contains("twice"), "{error}");
        let mut many = StoreUrl::parse("x:?a=2&b=3&a=1").unwrap();
        assert_eq!([many.take("a"), many.take("a")], [Some("2".into()), Some("1".into())]);
        assert!(many.take("a").is_none());
        let url = StoreUrl::parse("redis://user:hunter2@host?ttl=1").unwrap();
        assert!(!format!("{url:?}").contains("hunter2"));
        let error = url.finish(&["timeout"]).unwrap_err().to_string();
        assert!(error.contains("\"ttl\"") && error.contains("timeout"), "{error}");
        assert!(!error.contains("hunter2"));
        for bad in ["0s", "5", "-1s", ""] {
            let mut url = StoreUrl::parse(&format!("sqlite:x?timeout={bad}")).unwrap();
            assert!(url.take_duration("timeout").is_err(), "{bad}");
        }
    }
}
