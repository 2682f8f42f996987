use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::{Value, json};

use crate::case::CaseResult;
use crate::ended::Ended;
use crate::{Failure, history, oracle};

/// The results of everything that was run on one store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Report {
    /// The store.
    pub store: String,
    /// Every case by name, and why it failed if it did.
    pub cases: BTreeMap<String, Result<Ended, String>>,
    /// What the oracle compared, if it ran.
    pub oracle: Option<oracle::Figures>,
    /// What the history contains, if it was recorded.
    pub history: Option<history::Figures>,
    /// Ignored cases count as failures.
    pub(crate) is_required: bool,
}

impl Report {
    pub(crate) fn new(store: &str) -> Self {
        Self {
            store: store.to_owned(),
            cases: BTreeMap::new(),
            oracle: None,
            history: None,
            is_required: false,
        }
    }

    /// Names of the cases that passed.
    pub fn passed(&self) -> impl Iterator<Item = &str> {
        self.named(|ended| matches!(ended, Ok(Ended::Passed))).map(|(name, _)| name)
    }

    /// Names of the cases that failed, and why.
    pub fn failed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named(Result::is_err)
    }

    /// Names of the cases that do not apply to this store, and why.
    pub fn not_applicable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named(|ended| matches!(ended, Ok(Ended::NotApplicable(_))))
    }

    /// Names of the cases that cannot run on this subject, by its nature, and why.
    pub fn cannot_here(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named(|ended| matches!(ended, Ok(Ended::CannotHere(_))))
    }

    /// Names of the cases that could not run, and why.
    pub fn ignored(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named(|ended| matches!(ended, Ok(Ended::Ignored(_))))
    }

    fn named(
        &self,
        wanted: impl Fn(&Result<Ended, String>) -> bool,
    ) -> impl Iterator<Item = (&str, &str)> {
        self.cases.iter().filter(move |(_, ended)| wanted(ended)).map(|(name, ended)| {
            let why = match ended {
                Ok(Ended::Passed) => "",
                Ok(Ended::NotApplicable(why) | Ended::CannotHere(why) | Ended::Ignored(why))
                | Err(why) => why,
            };
            (name.as_str(), why)
        })
    }

    /// Turns an ignored case into a failure if the store is required.
    pub(crate) fn judge(&self, verdict: CaseResult) -> CaseResult {
        match verdict {
            Ok(Ended::Ignored(why)) if self.is_required => {
                Err(Failure::new(format!("ignored, but {} is required: {why}", self.store)))
            }
            verdict => verdict,
        }
    }

    pub(crate) fn add(&mut self, name: String, verdict: &CaseResult) {
        let ended = match verdict {
            Ok(ended) => Ok(ended.clone()),
            Err(failure) => Err(failure.to_string()),
        };
        self.cases.insert(name, ended);
    }

    /// The report as written to `LEASEHOLD_REPORT`.
    pub fn to_json(&self) -> String {
        let reasons = |cases: &mut dyn Iterator<Item = (&str, &str)>| -> Value {
            cases.map(|(name, why)| (name.to_owned(), Value::from(why))).collect()
        };
        let report = json!({
            "store": self.store,
            "passed": self.passed().count(),
            "failed": self.failed().count(),
            "not_applicable": self.not_applicable().count(),
            "cannot_here": self.cannot_here().count(),
            "ignored": self.ignored().count(),
            "oracle_operations": self.oracle.as_ref().map_or(0, |oracle| oracle.operations),
            "oracle": self.oracle.as_ref().map(oracle::Figures::to_json),
            "history": self.history.as_ref().map(history::Figures::to_json),
            "failures": reasons(&mut self.failed()),
            "reasons_not_applicable": reasons(&mut self.not_applicable()),
            "reasons_cannot_here": reasons(&mut self.cannot_here()),
            "reasons_ignored": reasons(&mut self.ignored()),
        });
        format!("{report:#}\n")
    }

    /// Writes the report into `directory`, under the store's name.
    pub(crate) fn write(&self, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join(format!("{}.json", self.store)), self.to_json())
    }
}

/// The summary that is printed at the end.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} passed, {} failed, {} not applicable, {} cannot here, {} ignored",
            self.store,
            self.passed().count(),
            self.failed().count(),
            self.not_applicable().count(),
            self.cannot_here().count(),
            self.ignored().count(),
        )?;
        if let Some(oracle) = &self.oracle {
            writeln!(f, "  oracle: {oracle}")?;
        }
        if let Some(history) = &self.history {
            writeln!(f, "  history: {history}")?;
        }
        by_reason(f, "not applicable", self.not_applicable())?;
        by_reason(f, "cannot here", self.cannot_here())?;
        by_reason(f, "ignored", self.ignored())
    }
}

/// Groups names by their common reason.
fn by_reason<'a>(
    f: &mut fmt::Formatter<'_>,
    ended: &str,
    cases: impl Iterator<Item = (&'a str, &'a str)>,
) -> fmt::Result {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, why) in cases {
        reasons.entry(why).or_default().push(name);
    }
    for (why, names) in reasons {
        writeln!(f, "  {ended}, because {why}:")?;
        for name in names {
            writeln!(f, "    {name}")?;
        }
    }
    Ok(())
}
