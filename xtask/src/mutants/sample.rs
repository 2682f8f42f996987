//! Chooses the faults that CI plants.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::list::Mutant;
use crate::shell::{Outcome, capture, command};

/// After this long no more faults are planted than one in each place.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// How many faults are chosen.
const COUNT: usize = 30;

/// How many test programs the chosen ones need at most: before its first fault, each is built and run without one.
const PROGRAMS: usize = 2;

/// How many of the last commits count as recent.
const RECENT: &str = "10";

/// Faults in files that recent commits changed, and others by lot, all for a few test programs; in the order of the list.
pub(super) fn choose(mutants: Vec<Mutant>) -> Outcome<Vec<Mutant>> {
    let commit = git(&["rev-parse", "HEAD"])?;
    let recent = git(&["log", "--max-count", RECENT, "--name-only", "--format="])?;
    let changed = git(&["diff", "--name-only", "HEAD"])?;
    let files = recent.lines().chain(changed.lines()).collect();
    Ok(pick(mutants, commit.trim(), &files, COUNT))
}

fn git(arguments: &[&str]) -> Outcome<String> {
    capture(command(Path::new("git"), arguments))
}

fn pick(
    mut mutants: Vec<Mutant>,
    commit: &str,
    changed: &BTreeSet<&str>,
    count: usize,
) -> Vec<Mutant> {
    let rank = |mutant: &&Mutant| {
        (!changed.contains(mutant.file.as_str()), lot(&[commit, &mutant.name].concat()))
    };
    let mut ranked: Vec<_> = mutants.iter().collect();
    ranked.sort_by_key(rank);
    let mut programs = BTreeSet::new();
    for mutant in &ranked {
        if programs.len() < PROGRAMS {
            programs.insert(&mutant.tests.test);
        }
    }
    let of_programs = ranked.iter().filter(|mutant| programs.contains(&mutant.tests.test));
    let chosen: BTreeSet<_> = of_programs.take(count).map(|mutant| mutant.name.clone()).collect();
    mutants.retain(|mutant| chosen.contains(&mutant.name));
    mutants
}

/// FNV-1a, the same on every machine.
fn lot(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(commit: &str, changed: &[&str], count: usize) -> Vec<String> {
        let mutants = ('a'..='z').map(|name| Mutant::named(&name.to_string())).collect();
        let picked = pick(mutants, commit, &changed.iter().copied().collect(), count);
        picked.into_iter().map(|mutant| mutant.name).collect()
    }

    #[test]
    fn faults_in_changed_files_come_first_and_the_commit_chooses_the_others() {
        let (one, other) = (names("1", &["k.rs"], 5), names("2", &["k.rs"], 5));
        assert_eq!((one.len(), other.len()), (5, 5));
        assert!(one.contains(&"k".to_owned()) && other.contains(&"k".to_owned()));
        assert_ne!(one, other);
        assert_eq!(one, names("1", &["k.rs"], 5));
        assert!(one.is_sorted());
    }

    #[test]
    fn the_chosen_ones_need_few_programs() {
        let mutants = ('a'..='z').enumerate().map(|(nth, name)| {
            let mut mutant = Mutant::named(&name.to_string());
            mutant.tests.test = format!("--test {}", nth % 5);
            mutant
        });
        let picked = pick(mutants.collect(), "1", &["k.rs"].into(), 8);
        let programs: BTreeSet<_> = picked.iter().map(|one| one.tests.test.as_str()).collect();
        assert_eq!((picked.len(), programs.len()), (8, PROGRAMS));
        assert!(picked.iter().any(|one| one.name == "k"));
    }

    #[test]
    fn a_sample_may_be_smaller_than_wanted_or_full_of_changed_files() {
        assert_eq!(names("1", &[], 100).len(), 26);
        let changed = ["c.rs", "b.rs", "a.rs"];
        assert!(names("1", &changed, 2).iter().all(|name| "abc".contains(name)));
    }
}
