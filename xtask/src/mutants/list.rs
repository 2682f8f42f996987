//! The committed list of faults.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::shell::Outcome;

/// One fault, and the tests that must catch it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutant {
    /// What goes wrong, in a few words joined by hyphens.
    pub(super) name: String,
    /// The file it is planted in, from the root of the workspace.
    pub(super) file: String,
    /// Sound text that occurs exactly once in the file.
    from: String,
    /// The faulty text in its place.
    to: String,
    /// Arguments of `cargo test`, separated by spaces.
    pub(super) test: String,
}

impl Mutant {
    /// The package whose tests must catch it.
    pub(super) fn package(&self) -> &str {
        self.test.split_whitespace().nth(1).unwrap_or_default()
    }

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
    /// One that these tests must catch.
    pub(super) fn of(test: String) -> Self {
        let text = String::new;
        Self { name: text(), file: text(), from: text(), to: text(), test }
    }
}

/// The faults in a file whose names contain `only`.
pub(super) fn read(file: &Path, only: &str) -> Outcome<Vec<Mutant>> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut mutants = parse(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    mutants.retain(|mutant| mutant.name.contains(only));
    if mutants.is_empty() {
        return Err(format!("no fault is named like {only:?}").into());
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
            return Err(format!("{} is there twice", mutant.name).into());
        }
        if mutant.from == mutant.to {
            return Err(format!("{} changes nothing", mutant.name).into());
        }
    }
    Ok(mutants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, from: &str, to: &str) -> String {
        format!("[[mutant]]\nname='{name}'\nfile='f'\nfrom='{from}'\nto='{to}'\ntest='-p x'\n")
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
    fn a_list_that_says_nothing_new_is_refused() {
        let twice = entry("late", "a", "b") + &entry("late", "c", "d");
        assert_eq!(parse(&twice).unwrap_err().to_string(), "late is there twice");
        let same = entry("late", "a", "a");
        assert_eq!(parse(&same).unwrap_err().to_string(), "late changes nothing");
    }
}
