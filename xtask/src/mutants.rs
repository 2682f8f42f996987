//! `cargo xtask mutants`: faults planted in a copy of the tree, each of which its tests must catch.

mod bench;
mod core;
mod list;
mod sample;
mod tree;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::prose;
use crate::shell::{Outcome, capture, command, root, section, target};
use crate::table;
use crate::times::Stopwatch;
use bench::{Bench, Judgement};
use list::{Mutant, Tests};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tree::Tree;

/// How many faults are tested at a time.
const PLACES: usize = 2;

/// The tests of so many faults are run without a fault before the first of these is planted: with each change of the tree, crates are
/// built again.
const GROUP: usize = 5;

/// The address space of each program, in bytes: a fault may fill any memory.
const MEMORY: u64 = 8 << 30;

/// Which faults to plant.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only faults whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Only faults in files that recent commits changed, and some chosen by the newest commit's id; for a few
    /// minutes
    #[arg(long)]
    sample: bool,
    /// Only list the faults
    #[arg(long)]
    list: bool,
    /// Instead of the list's faults, those that cargo-mutants makes in each function of leasehold-core; for an hour
    #[arg(long, conflicts_with_all = ["sample", "list"])]
    core: bool,
}

/// Checks that each fault can be planted, and that there are tests of the names that it gives.
pub(crate) fn check() -> Outcome {
    let mut list = command(Path::new("git"), &["ls-files", "--cached", "--others"]);
    list.args(["--exclude-standard", "*.rs"]);
    let mut names = HashSet::new();
    for file in capture(list)?.lines().filter_map(|file| fs::read_to_string(root().join(file)).ok())
    {
        names.extend(
            ["fn ", "mod "].iter().flat_map(|word| prose::names(&file, word)).map(str::to_owned),
        );
    }
    let mutants = list::read(&root().join("xtask/mutants.toml"), "")?;
    for mutant in &mutants {
        mutant.apply(&fs::read_to_string(root().join(&mutant.file))?)?;
        if let Some(unknown) = mutant.tests.unknown(&names) {
            return Err(format!("{}: there is no test {unknown}", mutant.name).into());
        }
    }
    println!("{} faults can be planted, and their tests are there", mutants.len());
    Ok(())
}

/// Plants each fault and checks that its tests fail.
pub(crate) fn mutants(arguments: &Arguments) -> Outcome {
    if arguments.core {
        return core::check(arguments.only.as_deref());
    }
    let only = arguments.only.as_deref().unwrap_or_default();
    let mut mutants = list::read(&root().join("xtask/mutants.toml"), only)?;
    let all = mutants.len();
    // A text that does not occur exactly once means that the list is out of date: reported before anything is
    // built.
    for mutant in &mutants {
        mutant.apply(&fs::read_to_string(root().join(&mutant.file))?)?;
    }
    let mut limit = Duration::MAX;
    if arguments.sample {
        mutants = sample::choose(mutants)?;
        limit = sample::LIMIT;
    }
    if arguments.list {
        let rows: Vec<_> =
            mutants.iter().map(|mutant| [mutant.name.clone(), mutant.file.clone()]).collect();
        table::print(["fault", "file"], &rows);
        return Ok(());
    }
    section(&format!("planted faults: {} of {all}", mutants.len()));
    let (memory, most) = getrlimit(Resource::RLIMIT_AS)?;
    setrlimit(Resource::RLIMIT_AS, memory.min(MEMORY), most)?;
    let (folder, watch) = (target().join("mutants"), Stopwatch::start());
    let tried = thread::scope(|scope| {
        let running: Vec<_> = share(&mutants, PLACES)
            .into_iter()
            .enumerate()
            .map(|(place, mutants)| {
                let (folder, watch) = (folder.join(format!("place-{}", place + 1)), &watch);
                scope.spawn(move || {
                    try_all(mutants, &folder, watch, limit).map_err(|error| error.to_string())
                })
            })
            .collect();
        let tried = running.into_iter().map(|place| place.join().expect("no place panics"));
        tried.collect::<Result<Vec<_>, _>>()
    })?;
    conclude(&tried.concat(), &mutants)
}

/// A planted fault, and the verdict of its tests.
type Tried<'a> = (&'a Mutant, Judgement, Duration);

/// Plants each of these faults in turn in a copy of the tree, until the time is up.
fn try_all<'a>(
    mutants: &'a [Mutant],
    folder: &Path,
    watch: &Stopwatch,
    limit: Duration,
) -> Outcome<Vec<Tried<'a>>> {
    let tree = Tree::copy(&root(), &folder.join("tree"))?;
    let bench = Bench::new(folder)?;
    let (mut tried, mut passed) = (Vec::new(), BTreeSet::new());
    // A place that plants none would show nothing.
    let is_over = |tried: &[Tried<'_>]| !tried.is_empty() && watch.elapsed() >= limit;
    for group in mutants.chunks(GROUP) {
        for mutant in group {
            if !is_over(&tried) && passed.insert(&mutant.tests) {
                must_pass(&bench, &mutant.tests)?;
            }
        }
        for mutant in group {
            if is_over(&tried) {
                return Ok(tried);
            }
            let started = watch.elapsed();
            let sound = tree.read(&mutant.file)?;
            tree.write(&mutant.file, &mutant.apply(&sound)?)?;
            let verdict = bench.judge(&mutant.tests, &mutant.name);
            tree.write(&mutant.file, &sound)?;
            let (verdict, took) = (verdict?, watch.elapsed() - started);
            println!("{}: its tests {verdict} ({:.0} s)", mutant.name, took.as_secs_f64());
            if !verdict.is_caught() {
                println!("{}: its log: {}", mutant.name, bench.log(&mutant.name).display());
            }
            tried.push((mutant, verdict, took));
        }
    }
    Ok(tried)
}

/// What fails without a fault shows nothing.
fn must_pass(bench: &Bench, tests: &Tests) -> Outcome {
    match bench.judge(tests, "sound")? {
        Judgement::Missed => println!("without a fault: {tests}: passes"),
        verdict => {
            let log = bench.log("sound");
            return Err(format!("without a fault: {tests}: {verdict}: {}", log.display()).into());
        }
    }
    Ok(())
}

/// Reports the verdicts.
fn conclude(tried: &[Tried<'_>], mutants: &[Mutant]) -> Outcome {
    let caught = tried.iter().filter(|(_, verdict, _)| verdict.is_caught()).count();
    println!("{caught} of {} planted faults caught", tried.len());
    let seconds: f64 = tried.iter().map(|(_, _, took)| took.as_secs_f64()).sum();
    let each = tried.iter().fold(0.0, |count, _| count + 1.0);
    println!("{:.1} seconds for each, {PLACES} at a time", seconds / f64::max(each, 1.0));
    let is_tried = |mutant: &Mutant| tried.iter().any(|(other, ..)| other.name == mutant.name);
    for mutant in mutants.iter().filter(|mutant| !is_tried(mutant)) {
        println!("not planted, because the time was up: {}", mutant.name);
    }
    let missed: Vec<_> = tried
        .iter()
        .filter(|(_, verdict, _)| !verdict.is_caught())
        .map(|(mutant, ..)| mutant.name.as_str())
        .collect();
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("not caught: {}", missed.join(", ")).into())
    }
}

/// Divides the faults among at most `places`. Neighbours stay together, because they rebuild the same crates.
fn share(mutants: &[Mutant], places: usize) -> Vec<&[Mutant]> {
    mutants.chunks(mutants.len().div_ceil(places).max(1)).collect()
}
