//! Finds the store that a command works on.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use leasehold::Locker;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::args::StoreArgs;
use crate::failure::Failure;
use crate::folder::STORE_FILE;

/// The environment variable for the URL of the store.
const VARIABLE: &str = "LEASEHOLD_STORE";

/// The environment variable for a file that contains the URL of the store.
const FILE_VARIABLE: &str = "LEASEHOLD_STORE_FILE";

/// The environment variable of a command that runs under a lock: its lease file.
pub(crate) const LEASE_FILE_VARIABLE: &str = "LEASEHOLD_LEASE_FILE";

/// The environment variable of a command that runs under a lock: its keys.
pub(crate) const KEY_VARIABLE: &str = "LEASEHOLD_KEY";

/// True for an environment variable that the command under a lock must not see: it may contain a password.
pub(crate) fn is_setting(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(VARIABLE.as_bytes())
}

/// The requested store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Url(String),
    /// The URL in the environment.
    Variable(String),
    /// A file that contains the URL.
    UrlIn(PathBuf),
    /// The file with the URL of the `leasehold` that runs this one.
    Outer(PathBuf),
    /// A SQLite file in the user's state directory.
    Default,
}

/// The `leasehold` that runs this one, as the environment shows it.
#[derive(Default)]
struct Outer {
    lease_file: Option<OsString>,
    is_present: bool,
}

impl Choice {
    /// Takes the command line's value, else the environment's, else that of the `leasehold` that runs this one, else the
    /// default.
    pub(crate) fn new(args: StoreArgs) -> Result<Self, Failure> {
        let outer = Outer {
            lease_file: std::env::var_os(LEASE_FILE_VARIABLE),
            is_present: std::env::var_os(KEY_VARIABLE).is_some(),
        };
        let variables = [VARIABLE, FILE_VARIABLE].map(std::env::var_os);
        Self::from_parts(args, variables, outer)
    }

    fn from_parts(
        args: StoreArgs,
        variables: [Option<OsString>; 2],
        outer: Outer,
    ) -> Result<Self, Failure> {
        let is_set = |value: &OsString| !value.is_empty();
        let [variable, file_variable] = variables.map(|value| value.filter(is_set));
        match (args.store, args.store_file) {
            (Some(_), Some(_)) => {
                Err(Failure::usage("--store and --store-file are both given; give one of them"))
            }
            (Some(url), None) => Ok(Self::Url(named(url))),
            (None, Some(file)) => Ok(Self::UrlIn(file)),
            (None, None) => match (variable, file_variable, outer.lease_file.filter(is_set)) {
                (Some(_), Some(_), _) => Err(Failure::usage(format!(
                    "{VARIABLE} and {FILE_VARIABLE} are both set; set one of them"
                ))),
                (None, Some(file), _) => Ok(Self::UrlIn(file.into())),
                (None, None, None) if outer.is_present => Err(Failure::usage(format!(
                    "this process was started by a `leasehold` that had no place for its lease file, so its store is \
                     not known here; give --store, --store-file or {VARIABLE}"
                ))),
                (None, None, None) => Ok(Self::Default),
                (None, None, Some(lease)) => {
                    Ok(Self::Outer(Path::new(&lease).with_file_name(STORE_FILE)))
                }
                // Its content is not shown: it may be a password.
                (Some(url), None, _) => {
                    url.into_string().map(|url| Self::Variable(named(url))).map_err(|_| {
                        Failure::usage(format!("the environment variable {VARIABLE} is not UTF-8"))
                    })
                }
            },
        }
    }

    /// The same store without a file to read: a pipe can be read only once.
    pub(crate) fn resolved(&self) -> Result<Self, Failure> {
        Ok(match self {
            Self::Url(url) | Self::Variable(url) => Self::Url(url.clone()),
            Self::UrlIn(file) => Self::Url(url_in(file)?),
            Self::Outer(file) => Self::Url(outer_url(file)?),
            Self::Default => Self::Default,
        })
    }

    /// Opens the store, without creating one: a mistyped path is an error, not an empty store.
    pub(crate) async fn open_existing(&self) -> Result<Locker, Failure> {
        let resolved = self.resolved()?;
        #[cfg(feature = "sqlite")]
        if let Self::Url(url) = &resolved
            && let Some(absent) = absent_file(url)
        {
            return Err(Failure::usage(format!(
                "there is no store at {}; `leasehold run` and `leasehold init` create one",
                absent.display()
            )));
        }
        resolved.open().await
    }

    /// Opens the store.
    pub(crate) async fn open(&self) -> Result<Locker, Failure> {
        match self {
            Self::Url(url) | Self::Variable(url) => Ok(Locker::connect_unchecked(url).await?),
            Self::UrlIn(file) => Ok(Locker::connect_unchecked(&url_in(file)?).await?),
            Self::Outer(file) => Ok(Locker::connect_unchecked(&outer_url(file)?).await?),
            Self::Default => open_default().await,
        }
    }

    /// Where the URL was taken from.
    pub(crate) fn origin(&self) -> String {
        match self {
            Self::Url(_) => "--store".to_owned(),
            Self::Variable(_) => format!("the environment variable {VARIABLE}"),
            Self::UrlIn(file) => format!("the file {}", file.display()),
            Self::Outer(file) => format!("the leasehold that runs this one, {}", file.display()),
            Self::Default => "the default".to_owned(),
        }
    }

    /// The URL of the store, and of each node if it is a quorum.
    pub(crate) fn urls(&self) -> Result<(String, Vec<String>), Failure> {
        let url = self.url()?;
        let options = url.strip_prefix("quorum:?").unwrap_or_default();
        let nodes = nodes(options).flatten().collect();
        Ok((url, nodes))
    }

    /// The URL of the store.
    pub(crate) fn url(&self) -> Result<String, Failure> {
        Ok(match self.resolved()? {
            Self::Url(url) => url,
            _ => format!("sqlite:{}", encoded(&default_path()?)),
        })
    }

    /// The URL by which a command under the lock finds the same store, from any directory; `None` if only this process
    /// can use the store.
    pub(crate) fn shared_url(&self) -> Result<Option<String>, Failure> {
        let url = self.url()?;
        let here = std::env::current_dir().map_err(|error| {
            Failure::unexpected(format!("there is no current directory: {error}"))
        })?;
        Ok(shared(&url, &here))
    }
}

/// A URL without its login and its options, which may be secret.
pub(crate) fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => url.to_owned(),
    }
}

/// The URL of a store that may be named by the path of a SQLite file alone.
fn named(url: String) -> String {
    let is_path = ["/", "./", "../"].iter().any(|begin| url.starts_with(begin));
    if is_path { format!("sqlite:{}", encoded(Path::new(&url))) } else { url }
}

/// What stays as it is in the path of a URL, and in a value of its options.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

fn encoded(path: &Path) -> String {
    percent_encode(path.as_os_str().as_encoded_bytes(), PLAIN).to_string()
}

/// The URL with absolute paths; `None` for a store inside one process.
fn shared(url: &str, here: &Path) -> Option<String> {
    let (scheme, rest) = url.split_once(':')?;
    match scheme.to_ascii_lowercase().as_str() {
        "local" => None,
        "sqlite" if rest.starts_with(':') => None,
        "sqlite" if !rest.starts_with('/') => Some(format!("sqlite:{}/{rest}", encoded(here))),
        "quorum" => {
            let options = rest.strip_prefix('?')?.split('&').map(|option| {
                let Some(node) = option.strip_prefix("node=") else {
                    return Some(option.to_owned());
                };
                let node = shared(&percent_decode_str(node).decode_utf8().ok()?, here)?;
                Some(format!("node={}", percent_encode(node.as_bytes(), PLAIN)))
            });
            let options: Option<Vec<String>> = options.collect();
            Some(format!("quorum:?{}", options?.join("&")))
        }
        _ => Some(url.to_owned()),
    }
}

/// The first SQLite file of the URL that does not exist. A mistake in the URL is found later.
#[cfg(feature = "sqlite")]
fn absent_file(url: &str) -> Option<PathBuf> {
    let (scheme, rest) = url.split_once(':')?;
    if scheme.eq_ignore_ascii_case("quorum") {
        return nodes(rest.strip_prefix('?')?).flatten().find_map(|node| absent_file(&node));
    }
    let config = leasehold_sqlite::SqliteConfig::parse(url).ok()?;
    // What cannot be examined is reported by the store.
    config.path().filter(|path| path.try_exists().is_ok_and(|exists| !exists)).map(Path::to_owned)
}

/// The URLs of a quorum's nodes; `None` for one that is not UTF-8.
fn nodes(options: &str) -> impl Iterator<Item = Option<String>> {
    let values = options.split('&').filter_map(|option| option.strip_prefix("node="));
    values.map(|node| Some(percent_decode_str(node).decode_utf8().ok()?.into_owned()))
}

fn outer_url(file: &Path) -> Result<String, Failure> {
    url_in(file).map_err(|_| {
        Failure::usage(format!(
            "this process was started by a `leasehold` whose store it cannot find: {} cannot be read; give --store, \
             --store-file or {VARIABLE}",
            file.display()
        ))
    })
}

fn url_in(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::usage(format!("the store file {} cannot be read: {error}", file.display()))
    })?;
    let url = text.trim();
    if url.is_empty() || url.contains('\n') {
        return Err(Failure::usage(format!(
            "the store file {} must contain one line, the URL of the store",
            file.display()
        )));
    }
    Ok(named(url.to_owned()))
}

#[cfg(feature = "sqlite")]
fn default_path() -> Result<PathBuf, Failure> {
    use etcetera::BaseStrategy as _;

    // Without a home there is no default path, which the end of this function states.
    let base = etcetera::choose_base_strategy().ok();
    let state = base.and_then(|base| {
        let (home, state) = (base.home_dir().to_owned(), base.state_dir()?);
        // A home that does not exist is not created.
        (home.is_dir() || !state.starts_with(&home)).then_some(state)
    });
    match state {
        Some(state) => Ok(state.join("leasehold").join("locks.db")),
        None => Err(Failure::usage(format!(
            "there is no home directory to keep the default store in; give --store or set {VARIABLE}"
        ))),
    }
}

#[cfg(feature = "sqlite")]
async fn open_default() -> Result<Locker, Failure> {
    let config = leasehold_sqlite::SqliteConfig::file(default_path()?).create_parent(true);
    let locker = Locker::new(config.connect().await?);
    locker.check().await?;
    Ok(locker)
}

#[cfg(not(feature = "sqlite"))]
fn default_path() -> Result<PathBuf, Failure> {
    Err(Failure::usage(format!("this build has no default store; give --store or set {VARIABLE}")))
}

#[cfg(not(feature = "sqlite"))]
async fn open_default() -> Result<Locker, Failure> {
    Err(default_path().map(|_| ()).expect_err("there is none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        store: Option<&str>,
        file: Option<&str>,
        variable: Option<&str>,
    ) -> Result<Choice, Failure> {
        let args =
            StoreArgs { store: store.map(str::to_owned), store_file: file.map(PathBuf::from) };
        Choice::from_parts(args, [variable.map(OsString::from), None], Outer::default())
    }

    #[test]
    fn the_command_line_comes_first() {
        let url = |url: &str| Choice::Url(url.to_owned());
        assert_eq!(choose(Some("a:"), None, Some("b:")).unwrap(), url("a:"));
        assert_eq!(choose(None, Some("f"), Some("b:")).unwrap(), Choice::UrlIn("f".into()));
        let variable = |url: &str| Choice::Variable(url.to_owned());
        assert_eq!(choose(None, None, Some("b:")).unwrap(), variable("b:"));
        assert_eq!(choose(None, None, Some("")).unwrap(), Choice::Default);
        assert_eq!(choose(None, None, None).unwrap(), Choice::Default);
        assert!(choose(Some("a:"), Some("f"), None).is_err());
        let args = || StoreArgs { store: None, store_file: None };
        let from = |variable: Option<&str>, file: &str| {
            let variables = [variable.map(OsString::from), Some(file.into())];
            Choice::from_parts(args(), variables, Outer::default())
        };
        assert_eq!(from(None, "f").unwrap(), Choice::UrlIn("f".into()));
        assert_eq!(from(Some("a:"), "").unwrap(), variable("a:"));
        assert!(from(Some("a:"), "f").is_err());
    }

    #[test]
    fn a_path_is_the_url_of_a_sqlite_file() {
        for (path, url) in [
            ("/var/lib/a b/locks.db", "sqlite:/var/lib/a%20b/locks.db"),
            ("./locks.db", "sqlite:./locks.db"),
            ("../a?b", "sqlite:../a%3Fb"),
            ("locks.db", "locks.db"),
            ("redis://h/", "redis://h/"),
        ] {
            assert_eq!(choose(Some(path), None, None).unwrap(), Choice::Url(url.to_owned()));
        }
    }

    #[test]
    fn a_nested_command_takes_the_store_of_the_outer_one() {
        let args = || StoreArgs { store: None, store_file: None };
        let nested = |variable: Option<&str>| {
            let lease_file = Some(OsString::from("/run/x/lease.json"));
            let outer = Outer { lease_file, is_present: true };
            Choice::from_parts(args(), [variable.map(OsString::from), None], outer).unwrap()
        };
        assert_eq!(nested(None), Choice::Outer("/run/x/store".into()));
        assert_eq!(nested(Some("")), Choice::Outer("/run/x/store".into()));
        assert_eq!(nested(Some("b:")), Choice::Variable("b:".to_owned()));
        let error = outer_url(Path::new("/absent/store")).unwrap_err().to_string();
        assert!(error.contains("/absent/store") && error.contains("--store"), "{error}");
        let outer = Outer { lease_file: None, is_present: true };
        let error = Choice::from_parts(args(), [None, None], outer).unwrap_err().to_string();
        assert!(error.contains("no place for its lease file"), "{error}");
    }

    #[test]
    fn a_shared_url_has_absolute_paths() {
        let here = Path::new("/a b");
        for (url, expected) in [
            ("sqlite:locks.db?timeout=1s", Some("sqlite:/a%20b/locks.db?timeout=1s")),
            ("SQLITE:/x.db", Some("SQLITE:/x.db")),
            ("sqlite::memory:", None),
            ("local:", None),
            ("redis://u:p@h/", Some("redis://u:p@h/")),
            (
                "quorum:?node=sqlite:a.db&fenced=1&node=redis%3A%2F%2Fh%2F",
                Some("quorum:?node=sqlite%3A/a%2520b/a.db&fenced=1&node=redis%3A//h/"),
            ),
            ("quorum:?node=sqlite:a.db&node=local:", None),
        ] {
            assert_eq!(shared(url, here).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_store_file_has_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("store");
        std::fs::write(&file, "sqlite:a.db\n").unwrap();
        assert_eq!(url_in(&file).unwrap(), "sqlite:a.db");
        for bad in ["", "\n", "sqlite:a.db\nsqlite:b.db\n"] {
            std::fs::write(&file, bad).unwrap();
            assert!(url_in(&file).is_err(), "{bad:?}");
        }
        assert!(url_in(&directory.path().join("absent")).is_err());
    }

    #[test]
    fn a_url_is_shown_without_secrets() {
        for (url, expected) in [
            ("redis://user:p@ss@h:1/0?password=x", "redis://h:1/0"),
            ("sqlite:/a/b.db?timeout=1s", "sqlite:/a/b.db"),
            ("quorum:?node=redis%3A%2F%2Fu%3Ap%40h%2F", "quorum:"),
            ("mysql://h/db#x", "mysql://h/db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn settings_of_the_store_are_recognised_by_name() {
        assert!(is_setting(OsStr::new("LEASEHOLD_STORE")));
        assert!(is_setting(OsStr::new("LEASEHOLD_STORE_FILE")));
        assert!(!is_setting(OsStr::new("LEASEHOLD_KEY")));
    }
}
