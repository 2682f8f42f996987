//! Checks the documents: links lead somewhere, named tests exist, no document is a copy of another, and no file
//! contains a path of one machine.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use crate::shell::{Outcome, capture, command, root, run};
use crate::tools;

/// Where the files of this repository are on the web. Pages that are shown elsewhere too link to them there.
const OURS: &str = "https://github.com/leasehold/leasehold/blob/main/";

/// Folders whose content exists on one machine only.
const OF_ONE_MACHINE: [&str; 5] = ["/home/", "/root/", "/tmp/", "/work/", "/Users/"];

/// Checks every file that git tracks, or would track.
pub(crate) fn check() -> Outcome {
    let mut list = command(Path::new("git"), &["ls-files", "--cached", "--others"]);
    list.arg("--exclude-standard");
    let listed = capture(list)?;
    // A file that is not text, or was deleted, is skipped.
    let read = |name| Some((name, fs::read_to_string(root().join(name)).ok()?));
    let files: Vec<(&str, String)> = listed.lines().filter_map(read).collect();
    let of_kind = |kind: &'static str| files.iter().filter(move |(name, _)| name.ends_with(kind));
    let functions = of_kind(".rs").flat_map(|(_, text)| names(text, "fn ")).collect::<HashSet<_>>();

    let mut faults = Vec::new();
    for (name, text) in &files {
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| has_machine_path(line)) {
            faults.push(format!("{name}:{number}: the path of one machine: {}", line.trim()));
        }
    }
    for (name, text) in of_kind(".md") {
        let unknown = test_names(text).filter(|test| !functions.contains(test));
        faults.extend(unknown.map(|test| format!("{name}: there is no test {test}")));
    }
    let documents = of_kind(".md").filter(|(name, _)| !root().join(name).is_symlink());
    let copies = copies(documents.map(|(name, text)| (*name, text.as_str())));
    faults.extend(copies.map(|(copy, first)| format!("{copy}: a copy of {first}; make it a link")));
    if !faults.is_empty() {
        return Err(faults.join("\n").into());
    }
    println!("names of tests are correct in {} documents", of_kind(".md").count());
    let here = format!("{OURS} file://{}/", root().display());
    let mut links = command(&tools::prebuilt(&tools::LYCHEE)?, &["--offline", "--no-progress"]);
    links.args(["--include-fragments", "--remap", &here]);
    links.args(of_kind(".md").map(|(name, _)| name));
    run(links)
}

/// The names after a word in a source file, as of all functions after "fn ".
pub(crate) fn names<'t>(text: &'t str, word: &str) -> impl Iterator<Item = &'t str> {
    text.split(word).skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// Code in a document that can only be the name of a test: a sentence joined by underscores, and not a metric.
fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("```").step_by(2).flat_map(|block| block.split('`').skip(1).step_by(2));
    code.filter(|code| {
        code.matches('_').count() >= 3
            && !code.ends_with("_total")
            && code.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
    })
}

/// The documents with the text of an earlier one, and that one.
fn copies<'a>(
    documents: impl Iterator<Item = (&'a str, &'a str)>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let mut first = HashMap::new();
    documents.filter_map(move |(name, text)| match *first.entry(text).or_insert(name) {
        original if original == name => None,
        original => Some((name, original)),
    })
}

fn has_machine_path(line: &str) -> bool {
    OF_ONE_MACHINE.iter().flat_map(|folder| line.match_indices(folder)).any(|(at, folder)| {
        let before = line[..at].chars().next_back();
        let after = line[at + folder.len()..].chars().next();
        let is_whole = before.is_none_or(|c| !(c.is_alphanumeric() || "._-})>".contains(c)));
        is_whole && after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_recognised_by_name() {
        let text = "`a_b_c_d`, `term.rs`, `a_b`, `leasehold_x`\n```\n`e_f_g_h`\n```\n`i_j_k_l`";
        assert_eq!(test_names(text).collect::<Vec<_>>(), ["a_b_c_d", "i_j_k_l"]);
        let code = "async fn a_b_c_d() {}\nfn x<T>(t: T) {}";
        assert_eq!(names(code, "fn ").collect::<Vec<_>>(), ["a_b_c_d", "x"]);
    }

    #[test]
    fn copies_are_found() {
        let documents = [("a/MANUAL.md", "x"), ("b.md", "y"), ("docs/a.md", "x")];
        let found: Vec<_> = copies(documents.into_iter()).collect();
        assert_eq!(found, [("docs/a.md", "a/MANUAL.md")]);
    }

    #[test]
    fn paths_of_one_machine_are_noticed() {
        let path = |folder: &str| format!("see `/{folder}/x`");
        for folder in ["home", "root", "tmp", "work", "Users"] {
            assert!(has_machine_path(&path(folder)), "{folder}");
        }
        for good in ["/usr/lib/x", "crates/work/x", "/home/ is a folder", "{root}/tmp/x"] {
            assert!(!has_machine_path(good), "{good}");
        }
    }
}
