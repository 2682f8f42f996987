//! The committed list of faults.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::shell::Outcome;

/// One fault, and the tests that must catch it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutant {
    /// What goes wrong, in a few hyphenated words.
    pub(super) name: String,
    /// The file to plant it in, from the root of the workspace.
    pub(super) file: String,
    /// Correct text that occurs exactly once in the file.
    from: String,
    /// The faulty text that replaces it.
    to: String,
    #[serde(flatten)]
    pub(super) tests: Tests,
}

/// Some tests of a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Tests {
    /// What `cargo test` must build, as words separated by spaces.
    pub(super) test: String,
    /// Parts of the names of the tests to run.
    pub(super) only: Vec<String>,
}

impl Tests {
    /// A name that no function and no module has, or part of one. The names of some tests begin with that of a store, in
    /// which there is a hyphen; these are taken to be there.
    pub(super) fn unknown(&self, names: &HashSet<String>) -> Option<&str> {
        let is_there = |test: &str| {
            let last = test.trim_end_matches("::").rsplit("::").next().unwrap_or_default();
            test.contains('-') || names.iter().any(|name| name.contains(last))
        };
        self.only.iter().map(String::as_str).find(|test| !is_there(test))
    }
}

impl fmt::Display for Tests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.test, self.only.join(" "))
    }
}

impl Mutant {
    /// The text with the fault in it.
    pub(super) fn apply(&self, text: &str) -> Outcome<String> {
        match text.matches(&self.from).count() {
            1 => Ok(text.replacen(&self.from, &self.to, 1)),
            times => Err(format!(
                "{}: its `from` text occurs {times} times in {}, not once",
                self.name, self.file
            )
            .into()),
        }
    }
}

#[cfg(test)]
impl Mutant {
    /// A fault in a file of that name.
    pub(super) fn named(name: &str) -> Self {
        let tests = Tests { test: String::new(), only: Vec::new() };
        let (from, to) = (String::new(), String::new());
        Self { name: name.to_owned(), file: format!("{name}.rs"), from, to, tests }
    }
}

/// The faults of a file whose names contain `only`.
pub(super) fn read(file: &Path, only: &str) -> Outcome<Vec<Mutant>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut mutants = parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    mutants.retain(|mutant| mutant.name.contains(only));
    if mutants.is_empty() {
        return Err(format!("no fault has a name with {only:?}").into());
    }
    Ok(mutants)
}

fn parse(text: &str) -> Outcome<Vec<Mutant>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        mutant: Vec<Mutant>,
    }
    let mutants = toml::from_str::<File>(text)?.mutant;
    let mut names = BTreeSet::new();
    for mutant in &mutants {
        if !names.insert(&mutant.name) {
            return Err(format!("{} is listed twice", mutant.name).into());
        }
        if mutant.from == mutant.to {
            return Err(format!("{} changes nothing", mutant.name).into());
        }
        if mutant.tests.only.is_empty() {
            return Err(format!("{} names no tests", mutant.name).into());
        }
    }
    Ok(mutants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, from: &str, to: &str) -> String {
        format!(
            "[[mutant]]\nname='{name}'\nfile='f'\nfrom='{from}'\nto='{to}'\ntest='--test x'\nonly=['a::']\n"
        )
    }

    #[test]
    fn a_fault_is_planted_where_its_text_occurs_once() {
        let mutants = parse(&entry("late", "<=", "<")).unwrap();
        assert_eq!(mutants[0].apply("a <= b").unwrap(), "a < b");
        for text in ["a == b", "a <= b <= c"] {
            let error = mutants[0].apply(text).unwrap_err().to_string();
            assert!(error.starts_with("late: its `from` text occurs"), "{error}");
        }
    }

    #[test]
    fn a_test_that_was_renamed_is_noticed() {
        let names = HashSet::from(["clock".to_owned(), "a_batch_waits_for_no_row".to_owned()]);
        let unknown = |only: &str| {
            let tests = Tests { test: String::new(), only: vec![only.to_owned()] };
            tests.unknown(&names).map(str::to_owned)
        };
        for there in ["clock::", "clock::a_batch_waits", "quorum-redis::c01_"] {
            assert_eq!(unknown(there), None);
        }
        assert_eq!(unknown("clock::what_waits").as_deref(), Some("clock::what_waits"));
    }

    #[test]
    fn a_fault_that_changes_nothing_is_refused() {
        let error = |list: &str| parse(list).unwrap_err().to_string();
        assert_eq!(
            error(&(entry("late", "a", "b") + &entry("late", "c", "d"))),
            "late is listed twice"
        );
        assert_eq!(error(&entry("late", "a", "a")), "late changes nothing");
        assert_eq!(error(&entry("late", "a", "b").replace("'a::'", "")), "late names no tests");
    }
}
