//! `cargo xtask mutants`: faults planted in a copy of the tree, each of which its tests must catch.

mod bench;
mod list;
mod tree;

use std::collections::BTreeSet;

use crate::shell::{Outcome, root, section, target};
use crate::table;
use bench::{Bench, Verdict};
use tree::Tree;

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

/// Plants each fault in turn and sees whether its tests fail.
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
    let tree = Tree::copy(&root(), &folder.join("tree"))?;
    // A text that is not found once means a list out of date: said before anything is built.
    for mutant in &mutants {
        mutant.apply(&tree.read(&mutant.file)?)?;
    }
    let bench = Bench::new(&folder)?;

    section("without a fault");
    for test in mutants.iter().map(|mutant| mutant.test.as_str()).collect::<BTreeSet<_>>() {
        println!("cargo test {test}");
        let verdict = bench.judge(test, "sound")?;
        if verdict != Verdict::Missed {
            let log = bench.log("sound");
            return Err(format!("its tests do not pass without a fault: {}", log.display()).into());
        }
    }

    section("planted faults");
    let width = mutants.iter().map(|mutant| mutant.name.len()).max().unwrap_or(0);
    let mut missed = Vec::new();
    for mutant in &mutants {
        let sound = tree.read(&mutant.file)?;
        tree.write(&mutant.file, &mutant.apply(&sound)?)?;
        let verdict = bench.judge(&mutant.test, &mutant.name);
        tree.write(&mutant.file, &sound)?;
        let verdict = verdict?;
        println!("{:width$}  its tests {verdict}", mutant.name);
        if !verdict.is_caught() {
            missed.push(mutant.name.as_str());
        }
    }
    println!("{} of {} planted faults caught", mutants.len() - missed.len(), mutants.len());
    if missed.is_empty() {
        Ok(())
    } else {
        let logs = bench.log("NAME");
        Err(format!("not caught: {}; logs: {}", missed.join(", "), logs.display()).into())
    }
}
