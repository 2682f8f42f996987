//! Finds the store that a command works on.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use leasehold::Locker;

use crate::args::StoreArgs;
use crate::failure::Failure;

/// The environment variable for the URL of the store.
const VARIABLE: &str = "LEASEHOLD_STORE";

/// True for an environment variable that the command under a lock must not see: it may contain a password.
pub(crate) fn is_setting(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(VARIABLE.as_bytes())
}

/// The requested store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Url(String),
    /// A file that contains the URL.
    UrlIn(PathBuf),
    /// A SQLite file in the user's state directory.
    Default,
}

impl Choice {
    /// Takes the command line's value, else the environment's, else the default.
    pub(crate) fn new(args: StoreArgs) -> Result<Self, Failure> {
        Self::from_parts(args, std::env::var_os(VARIABLE))
    }

    fn from_parts(args: StoreArgs, variable: Option<OsString>) -> Result<Self, Failure> {
        match (args.store, args.store_file) {
            (Some(_), Some(_)) => {
                Err(Failure::usage("--store and --store-file are both given; give one of them"))
            }
            (Some(url), None) => Ok(Self::Url(url)),
            (None, Some(file)) => Ok(Self::UrlIn(file)),
            (None, None) => match variable {
                None => Ok(Self::Default),
                Some(empty) if empty.is_empty() => Ok(Self::Default),
                // Its content is not shown: it may be a password.
                Some(url) => url.into_string().map(Self::Url).map_err(|_| {
                    Failure::usage(format!("the environment variable {VARIABLE} is not UTF-8"))
                }),
            },
        }
    }

    /// Opens the store.
    pub(crate) async fn open(&self) -> Result<Locker, Failure> {
        match self {
            Self::Url(url) => Ok(Locker::connect(url).await?),
            Self::UrlIn(file) => Ok(Locker::connect(&url_in(file)?).await?),
            Self::Default => open_default().await,
        }
    }
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
    Ok(url.to_owned())
}

#[cfg(feature = "sqlite")]
async fn open_default() -> Result<Locker, Failure> {
    use etcetera::BaseStrategy as _;

    let state = etcetera::choose_base_strategy().ok().and_then(|base| base.state_dir());
    let Some(state) = state else {
        return Err(Failure::usage(format!(
            "there is no home directory to keep the default store in; give --store or set {VARIABLE}"
        )));
    };
    let path = state.join("leasehold").join("locks.db");
    let store = leasehold_sqlite::SqliteConfig::file(path).create_parent(true).open().await?;
    let locker = Locker::new(store);
    locker.check().await?;
    Ok(locker)
}

#[cfg(not(feature = "sqlite"))]
async fn open_default() -> Result<Locker, Failure> {
    Err(Failure::usage(format!("this build has no default store; give --store or set {VARIABLE}")))
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
        Choice::from_parts(args, variable.map(OsString::from))
    }

    #[test]
    fn the_command_line_comes_first() {
        let url = |url: &str| Choice::Url(url.to_owned());
        assert_eq!(choose(Some("a:"), None, Some("b:")).unwrap(), url("a:"));
        assert_eq!(choose(None, Some("f"), Some("b:")).unwrap(), Choice::UrlIn("f".into()));
        assert_eq!(choose(None, None, Some("b:")).unwrap(), url("b:"));
        assert_eq!(choose(None, None, Some("")).unwrap(), Choice::Default);
        assert_eq!(choose(None, None, None).unwrap(), Choice::Default);
        assert!(choose(Some("a:"), Some("f"), None).is_err());
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
    fn settings_of_the_store_are_recognised_by_name() {
        assert!(is_setting(OsStr::new("LEASEHOLD_STORE")));
        assert!(is_setting(OsStr::new("LEASEHOLD_STORE_FILE")));
        assert!(!is_setting(OsStr::new("LEASEHOLD_KEY")));
    }
}
