//! `cargo xtask mutants`: faults planted in a copy of the tree, each of which its tests must catch.

mod bench;
mod list;
mod tree;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;

use crate::shell::{Outcome, root, section, target};
use crate::table;
use bench::{Bench, Verdict};
use list::Mutant;
use tree::Tree;

/// How many faults are tried at a time.
const PLACES: usize = 2;

/// Which faults are planted.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only faults whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only show what faults there are
    #[arg(long)]
    list: bool,
}

/// Plants each fault and sees whether its tests fail.
pub(crate) fn mutants(arguments: &Arguments) -> Outcome {
    let only = arguments.only.as_deref().unwrap_or_default();
    let mutants = list::read(&root().join("xtask/mutants.toml"), only)?;
    if arguments.list {
        let rows: Vec<_> =
            mutants.iter().map(|mutant| [mutant.name.clone(), mutant.file.clone()]).collect();
        table::print(["fault", "file"], &rows);
        return Ok(());
    }
    let folder = target().join("mutants");
    section("planted faults");
    let places = share(&mutants, PLACES);
    let missed = thread::scope(|scope| {
        let running: Vec<_> = places
            .iter()
            .enumerate()
            .map(|(place, mutants)| {
                let folder = folder.join(format!("place-{}", place + 1));
                scope.spawn(move || try_all(mutants, &folder).map_err(|error| error.to_string()))
            })
            .collect();
        let tried = running.into_iter().map(|place| place.join().expect("no place panics"));
        tried.collect::<Result<Vec<_>, _>>()
    })?;
    let missed = missed.concat();
    println!("{} of {} planted faults caught", mutants.len() - missed.len(), mutants.len());
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not caught: {}", missed.join(", ")).into())
    }
}

/// Plants each of these faults in turn in a copy of the tree, and gives the names of those that its tests missed.
fn try_all<'a>(mutants: &[&'a Mutant], folder: &Path) -> Outcome<Vec<&'a str>> {
    let tree = Tree::copy(&root(), &folder.join("tree"))?;
    // A text that is not found once means a list out of date: said before anything is built.
    for mutant in mutants {
        mutant.apply(&tree.read(&mutant.file)?)?;
    }
    let bench = Bench::new(folder)?;
    for test in mutants.iter().map(|mutant| mutant.test.as_str()).collect::<BTreeSet<_>>() {
        let verdict = bench.judge(test, "sound")?;
        if verdict != Verdict::Missed {
            let log = bench.log("sound");
            return Err(format!(
                "without a fault: cargo test {test}: does not pass: {}",
                log.display()
            )
            .into());
        }
        println!("without a fault: cargo test {test}: passes");
    }
    let mut missed = Vec::new();
    for mutant in mutants {
        let sound = tree.read(&mutant.file)?;
        tree.write(&mutant.file, &mutant.apply(&sound)?)?;
        let verdict = bench.judge(&mutant.test, &mutant.name);
        tree.write(&mutant.file, &sound)?;
        let verdict = verdict?;
        println!("{}: its tests {verdict}", mutant.name);
        if !verdict.is_caught() {
            println!("{}: its log: {}", mutant.name, bench.log(&mutant.name).display());
            missed.push(mutant.name.as_str());
        }
    }
    Ok(missed)
}

/// Shares the faults among at most `places`, so that all that one package's tests must catch are in one: each place
/// builds what its tests need.
fn share(mutants: &[Mutant], places: usize) -> Vec<Vec<&Mutant>> {
    let mut packages: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        packages.entry(mutant.package()).or_default().push(mutant);
    }
    let mut packages: Vec<_> = packages.into_values().collect();
    packages.sort_by_key(|mutants| Reverse(mutants.len()));
    let mut shares: Vec<Vec<&Mutant>> = vec![Vec::new(); places];
    for package in packages {
        let least = shares.iter_mut().min_by_key(|share| share.len());
        least.expect("there is a place").extend(package);
    }
    shares.retain(|share| !share.is_empty());
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_tried_in_one_place() {
        let mutant = |package| Mutant::of(format!("-p {package} --test t"));
        let mutants = ["b", "a", "c", "a", "b", "a"].map(mutant);
        let shares: Vec<Vec<_>> = share(&mutants, 2)
            .iter()
            .map(|share| share.iter().map(|mutant| mutant.package()).collect())
            .collect();
        assert_eq!(shares, [vec!["a", "a", "a"], vec!["b", "b", "c"]]);
        assert_eq!(share(&mutants[..1], 2).len(), 1);
    }
}
