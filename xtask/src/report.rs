//! Reads the reports of the conformance runs: which stores were tested, and which were not and why.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::provision::Provision;
use crate::shell::Outcome;
use crate::stores::STORES;
use crate::table;

/// One run of the conformance suite, as its runner writes it. A store may be run in several forms, each with
/// a report of its own.
#[derive(Debug, Deserialize)]
struct Report {
    store: String,
    #[serde(flatten)]
    cases: Cases,
}

/// How the cases of a store ended.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Cases {
    passed: u64,
    failed: u64,
    not_applicable: u64,
    cannot_here: u64,
    ignored: u64,
    oracle_operations: u64,
}

impl Cases {
    /// Whether none ran, although some could have.
    fn are_ignored(self) -> bool {
        self.ignored > 0 && self.passed + self.failed + self.not_applicable + self.cannot_here == 0
    }

    fn and(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            not_applicable: self.not_applicable + other.not_applicable,
            cannot_here: self.cannot_here + other.cannot_here,
            ignored: self.ignored + other.ignored,
            oracle_operations: self.oracle_operations + other.oracle_operations,
        }
    }
}

/// The results of the tests: the stores that have tests, in order, then other subjects that reported.
#[derive(Debug)]
pub(crate) struct Tally(Vec<Line>);

#[derive(Debug)]
struct Line {
    store: String,
    /// It is one of the stores, not a subject of the suite's own tests.
    is_known: bool,
    /// The cases, or why there are none.
    cases: Result<Cases, String>,
}

impl Tally {
    /// Reads the reports in a folder.
    pub(crate) fn of(folder: &Path, provided: &[(&'static str, Provision)]) -> Outcome<Self> {
        let untested = provided.iter().map(|(store, got)| {
            let why = match got {
                Provision::Missing { why } => why.clone(),
                _ => "none of its conformance tests ran to the end".to_owned(),
            };
            Line { store: (*store).to_owned(), is_known: true, cases: Err(why) }
        });
        let mut lines: Vec<_> = untested.collect();
        let mut files: Vec<_> =
            fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<std::io::Result<_>>()?;
        files.sort();
        for file in files {
            let report: Report = serde_json::from_slice(&fs::read(&file)?)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            match lines.iter_mut().find(|line| line.store == report.store) {
                // Its server is not here, and the reason is known.
                Some(_) if report.cases.are_ignored() => {}
                Some(line) => {
                    let before = line.cases.as_ref().copied().unwrap_or_default();
                    line.cases = Ok(report.cases.and(before));
                }
                None => {
                    let Report { store, cases } = report;
                    lines.push(Line { store, is_known: false, cases: Ok(cases) });
                }
            }
        }
        Ok(Self(lines))
    }

    /// Prints the table, and below it which stores were not tested and why.
    pub(crate) fn print(&self) {
        let rows: Vec<_> = self.0.iter().map(|line| row(&line.store, &line.cases)).collect();
        let headings = [
            "store",
            "tested",
            "passed",
            "failed",
            "not applicable",
            "cannot here",
            "ignored",
            "oracle operations",
        ];
        table::print(headings, &rows);
        for line in &self.0 {
            if let Err(why) = &line.cases {
                println!("{} was not tested: {why}", line.store);
            }
        }
        let known: Vec<_> = self.0.iter().filter(|line| line.is_known).collect();
        let tested = known.iter().filter(|line| line.cases.is_ok()).count();
        println!("{tested} of {} stores tested", known.len());
    }

    /// What is missing for this store, in any form that was run: `redis` includes `redis-cluster`.
    fn lacking(&self, store: &str) -> Vec<String> {
        let is_form = |line: &&Line| {
            let rest = line.store.strip_prefix(store);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let lacking = self.0.iter().filter(is_form).filter_map(|line| match &line.cases {
            Ok(Cases { failed: 0, ignored: 0, .. }) => None,
            Ok(Cases { failed, ignored, .. }) => {
                Some(format!("{}: {failed} cases failed and {ignored} were ignored", line.store))
            }
            Err(_) => Some(format!("{}: not tested", line.store)),
        });
        lacking.collect()
    }

    #[cfg(test)]
    fn cases(&self, store: &str) -> Option<&Result<Cases, String>> {
        self.0.iter().find(|line| line.store == store).map(|line| &line.cases)
    }
}

fn row(store: &str, cases: &Result<Cases, String>) -> [String; 8] {
    let (tested, counts) = match cases {
        Err(_) => ("no", [const { None }; 6]),
        Ok(cases) => {
            let Cases { passed, failed, not_applicable, cannot_here, ignored, oracle_operations } =
                cases;
            let counts = [passed, failed, not_applicable, cannot_here, ignored, oracle_operations];
            ("yes", counts.map(Some))
        }
    };
    let [passed, failed, not_applicable, cannot_here, ignored, oracle] =
        counts.map(|count| count.map(u64::to_string).unwrap_or_default());
    [
        store.to_owned(),
        tested.to_owned(),
        passed,
        failed,
        not_applicable,
        cannot_here,
        ignored,
        oracle,
    ]
}

/// The stores that must be tested, with no case ignored: `LEASEHOLD_REQUIRE`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Required(Vec<&'static str>);

impl Required {
    /// Parses names separated by commas; an unknown name is an error.
    pub(crate) fn parse(text: &str) -> Outcome<Self> {
        let known: Vec<_> = STORES.iter().map(|store| store.name).collect();
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let required = names.map(|name| {
            known.iter().copied().find(|known| *known == name).ok_or_else(|| {
                let known = known.join(", ");
                format!("LEASEHOLD_REQUIRE names the store {name:?}; those with tests are {known}")
            })
        });
        Ok(Self(required.collect::<Result<_, _>>()?))
    }

    /// Fails unless every required store was tested in full.
    pub(crate) fn judge(&self, tally: &Tally) -> Outcome {
        let lacking: Vec<_> = self.0.iter().flat_map(|store| tally.lacking(store)).collect();
        if lacking.is_empty() {
            Ok(())
        } else {
            Err(format!("LEASEHOLD_REQUIRE is not met: {}", lacking.join("; ")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(reports: &[&str]) -> Tally {
        let folder = tempfile::tempdir().unwrap();
        for (number, report) in reports.iter().enumerate() {
            fs::write(folder.path().join(format!("{number}.json")), report).unwrap();
        }
        let provided = [
            ("local", Provision::NotNeeded("it is in the process")),
            ("sqlite", Provision::Missing { why: "there is no disk".to_owned() }),
        ];
        Tally::of(folder.path(), &provided).unwrap()
    }

    const GOOD: &str = r#"{"store": "local", "passed": 90, "failed": 0, "not_applicable": 2, "cannot_here": 1, "ignored": 0,
        "oracle_operations": 100000, "seed": 7}"#;
    const IGNORED: &str = r#"{"store": "local", "passed": 1, "failed": 0, "not_applicable": 0, "cannot_here": 0, "ignored": 1,
        "oracle_operations": 5}"#;

    #[test]
    fn reports_of_one_store_add_up() {
        let cases = Cases {
            passed: 91,
            failed: 0,
            not_applicable: 2,
            cannot_here: 1,
            ignored: 1,
            oracle_operations: 100_005,
        };
        assert_eq!(tally(&[GOOD, IGNORED]).cases("local"), Some(&Ok(cases)));
    }

    #[test]
    fn a_store_without_a_report_was_not_tested() {
        let tally = tally(&[GOOD]);
        let cases = Err("there is no disk".to_owned());
        assert_eq!(tally.cases("sqlite"), Some(&cases));
        assert_eq!(row("sqlite", &cases)[..3], ["sqlite", "no", ""]);
    }

    #[test]
    fn other_subjects_come_last_and_are_not_stores() {
        let other = GOOD.replace("local", "a-toy");
        let lines: Vec<_> =
            tally(&[&other]).0.into_iter().map(|line| (line.store, line.is_known)).collect();
        let known = |store: &str, is_known| (store.to_owned(), is_known);
        assert_eq!(lines, [known("local", true), known("sqlite", true), known("a-toy", false)]);
    }

    #[test]
    fn a_required_store_must_be_tested_in_full() {
        let judge = |required: &str, reports: &[&str]| {
            let required = Required::parse(required).unwrap();
            required.judge(&tally(reports)).map_err(|error| error.to_string())
        };
        assert_eq!(judge("", &[]), Ok(()));
        assert_eq!(judge("local", &[GOOD]), Ok(()));
        let other_form = IGNORED.replace("local", "local-in-real-time");
        assert_eq!(
            judge("local", &[GOOD, &other_form]),
            Err("LEASEHOLD_REQUIRE is not met: local-in-real-time: 0 cases failed and 1 were ignored"
                .to_owned())
        );
        assert_eq!(
            judge("local, sqlite", &[GOOD]),
            Err("LEASEHOLD_REQUIRE is not met: sqlite: not tested".to_owned())
        );
        assert_eq!(
            judge("local", &[GOOD, IGNORED]),
            Err("LEASEHOLD_REQUIRE is not met: local: 0 cases failed and 1 were ignored".to_owned())
        );
    }

    #[test]
    fn only_stores_with_tests_can_be_required() {
        assert_eq!(Required::parse(" sqlite,local,").unwrap(), Required(vec!["sqlite", "local"]));
        let error = Required::parse("sqlight").unwrap_err().to_string();
        assert!(
            error.contains("\"sqlight\"")
                && error.contains(
                    "local, mariadb, mongodb, mysql, postgres, quorum, redis, spanner, sqlite"
                ),
            "{error}"
        );
    }
}
