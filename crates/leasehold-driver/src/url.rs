use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use leasehold_core::{Error, Result};

/// A parsed store URL: `scheme:rest?option=value&…`.
///
/// `rest` and the values are percent-decoded. Take every option before [`finish`](StoreUrl::finish), which refuses
/// any that is left: no option is ignored.
pub struct StoreUrl {
    scheme: String,
    rest: String,
    options: Vec<(String, String)>,
}

impl StoreUrl {
    /// Parses `url`.
    ///
    /// # Errors
    /// `InvalidInput` if it has no scheme, or a part that is not UTF-8. Messages never repeat what follows the
    /// scheme, because it may contain a password.
    pub fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':').filter(|(scheme, _)| is_scheme(scheme))
        else {
            return Err(Error::invalid_input(
                "the store URL has no scheme; write it as SCHEME:…, for example sqlite:locks.db",
            ));
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let rest = percent_encoding::percent_decode_str(rest).decode_utf8().map_err(|e| {
            Error::invalid_input(format!("the {scheme} URL is not UTF-8 after decoding"))
                .with_source(e)
        })?;
        let options = options(query).ok_or_else(|| {
            Error::invalid_input(format!(
                "an option of the {scheme} URL is not UTF-8 after decoding"
            ))
        })?;
        Ok(Self { scheme: scheme.to_ascii_lowercase(), rest: rest.into_owned(), options })
    }

    /// The part before the first colon, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The part between the scheme and the options, decoded.
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// Takes an option.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.options.iter().position(|(known, _)| known == name)?;
        Some(self.options.remove(at).1)
    }

    /// Takes an option that may be repeated, in the order of the URL.
    pub fn take_all(&mut self, name: &str) -> Vec<String> {
        std::iter::from_fn(|| self.take(name)).collect()
    }

    /// Takes an option that is a duration such as `5s` or `250ms`.
    ///
    /// # Errors
    /// `InvalidInput` if it is not a duration, or zero.
    pub fn take_duration(&mut self, name: &str) -> Result<Option<Duration>> {
        let Some(value) = self.take(name) else { return Ok(None) };
        match humantime::parse_duration(&value) {
            Ok(duration) if !duration.is_zero() => Ok(Some(duration)),
            _ => Err(Error::invalid_input(format!(
                "the option {name} of the {} URL is {value:?}; it must be a duration above zero, \
                 for example 5s or 250ms",
                self.scheme
            ))),
        }
    }

    /// Takes an option that is `0` (the default) or `1`.
    ///
    /// # Errors
    /// `InvalidInput` for another value.
    pub fn take_flag(&mut self, name: &str) -> Result<bool> {
        match self.take(name).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(value) => Err(Error::invalid_input(format!(
                "the option {name} of the {} URL is {value:?}; it must be 0 or 1",
                self.scheme
            ))),
        }
    }

    /// Drops options that other clients of the server have, and that change nothing here.
    pub fn drop_all(&mut self, names: &[&str]) {
        self.options.retain(|(name, _)| !names.contains(&name.as_str()));
    }

    /// Refuses options that other clients of the server have, and that this store cannot obey.
    ///
    /// # Errors
    /// `InvalidInput` with the first of them, and `instead`: what to do.
    pub fn refuse(&self, names: &[&str], instead: &str) -> Result<()> {
        match self.options.iter().find(|(name, _)| names.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(Error::invalid_input(format!(
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
            Some((name, _)) if known.contains(&name.as_str()) => Err(Error::invalid_input(
                format!("the option {name:?} of the {} URL is given twice", self.scheme),
            )),
            Some((name, _)) => {
                let name = if is_option(name) { format!(" {name:?}") } else { String::new() };
                Err(Error::invalid_input(format!(
                    "the {} URL has an unknown option{name}; known options: {}; in values, write % as %25 and & as \
                     %26",
                    self.scheme,
                    known.join(", ")
                )))
            }
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({}:…)", self.scheme)
    }
}

/// The options of a query, unless one is not UTF-8 once decoded.
fn options(query: &str) -> Option<Vec<(String, String)>> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let decoded = percent_encoding::percent_decode_str(&text).decode_utf8();
        decoded.ok().map(Cow::into_owned)
    };
    let options = query.split('&').filter(|option| !option.is_empty());
    options
        .map(|option| {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            Some((decode(name)?, decode(value)?))
        })
        .collect()
}

/// Whether a name may be shown: text that is not a name may be the rest of a password with an `&` in it.
fn is_option(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
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
        assert_eq!((url.scheme(), url.rest()), ("sqlite", "a?b c.db"));
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
        let mut url = StoreUrl::parse("x:?a=%C3%A9+b%2B&&c&d=e=f").unwrap();
        assert_eq!(url.take("a").as_deref(), Some("é b+"));
        assert_eq!(url.take("c").as_deref(), Some(""));
        assert_eq!(url.take("d").as_deref(), Some("e=f"));
        url.finish(&[]).unwrap();
    }

    #[test]
    fn the_rest_of_a_password_is_not_shown_as_an_option() {
        for rest in ["two@h/0", "Two", "two words", "", &"x".repeat(41)] {
            let url = format!("quorum:?node=redis://u:hunter&{rest}=");
            let mut url = StoreUrl::parse(&url).unwrap();
            assert!(url.take("node").is_some());
            let error = url.finish(&["node", "fenced"]).unwrap_err().to_string();
            assert!(error.contains("unknown option; known options: node, fenced"), "{error}");
            assert!(error.contains("%26"), "{error}");
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
        assert_eq!(many.take_all("a"), ["2", "1"]);
        assert!(many.take_all("a").is_empty());
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
