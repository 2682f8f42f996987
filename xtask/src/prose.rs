//! Checks the documents: links lead somewhere, named tests exist, no document is a copy of another, and no file
//! contains a path of one machine.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use crate::shell::{Outcome, capture, command, root};

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
    let functions = of_kind(".rs").flat_map(|(_, text)| functions(text)).collect::<HashSet<_>>();

    let mut faults = Vec::new();
    for (name, text) in &files {
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| has_machine_path(line)) {
            faults.push(format!("{name}:{number}: the path of one machine: {}", line.trim()));
        }
    }
    for (name, text) in of_kind(".md") {
        let broken = links(text).filter(|link| !leads_somewhere(&root().join(name), link));
        faults.extend(broken.map(|link| format!("{name}: the link {link} leads nowhere")));
        let unknown = test_names(text).filter(|test| !functions.contains(test));
        faults.extend(unknown.map(|test| format!("{name}: there is no test {test}")));
    }
    let documents = of_kind(".md").filter(|(name, _)| !root().join(name).is_symlink());
    let copies = copies(documents.map(|(name, text)| (*name, text.as_str())));
    faults.extend(copies.map(|(copy, first)| format!("{copy}: a copy of {first}; make it a link")));
    if faults.is_empty() {
        println!("links and names of tests are correct in {} documents", of_kind(".md").count());
        Ok(())
    } else {
        Err(faults.join("\n").into())
    }
}

/// The names of all functions in a source file.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// The targets of a document's links, inline and by reference, outside its code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = || text.split("```").step_by(2).flat_map(|block| block.split('`').step_by(2));
    let inline = prose().flat_map(|prose| prose.split("](").skip(1));
    let inline = inline.filter_map(|rest| rest.split(')').next());
    let definitions = prose().flat_map(str::lines).filter(|line| line.starts_with('['));
    inline.chain(definitions.filter_map(|line| Some(line.split_once("]: ")?.1)))
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

/// Whether a link leads to another site, a heading, or a file that exists.
fn leads_somewhere(document: &Path, link: &str) -> bool {
    let file = link.split('#').next().unwrap_or_default();
    if let Some(ours) = file.strip_prefix(OURS) {
        return root().join(ours).exists();
    }
    let folder = document.parent().unwrap_or(Path::new(""));
    file.is_empty() || link.contains("://") || folder.join(file).exists()
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
    fn links_are_found_outside_code() {
        let text = "See [a](docs/a.md), `[no](code)` and [b](b.md#part).\n                    ```rust\nlet x = f[0](y);\n```\n[c]( x ) [d](https://example.org/)\n[e]: e.md#part\n";
        let found: Vec<_> = links(text).collect();
        assert_eq!(found, ["docs/a.md", "b.md#part", " x ", "https://example.org/", "e.md#part"]);
    }

    #[test]
    fn tests_are_recognised_by_name() {
        let text = "`a_b_c_d`, `term.rs`, `a_b`, `leasehold_x`\n```\n`e_f_g_h`\n```\n`i_j_k_l`";
        assert_eq!(test_names(text).collect::<Vec<_>>(), ["a_b_c_d", "i_j_k_l"]);
        let code = "async fn a_b_c_d() {}\nfn x<T>(t: T) {}";
        assert_eq!(functions(code).collect::<Vec<_>>(), ["a_b_c_d", "x"]);
    }

    #[test]
    fn copies_are_found() {
        let documents = [("a/MANUAL.md", "x"), ("b.md", "y"), ("docs/a.md", "x")];
        let found: Vec<_> = copies(documents.into_iter()).collect();
        assert_eq!(found, [("docs/a.md", "a/MANUAL.md")]);
    }

    #[test]
    fn links_lead_to_files() {
        let folder = tempfile::tempdir().unwrap();
        let document = folder.path().join("README.md");
        fs::write(&document, "").unwrap();
        for good in ["README.md", "./README.md#use", "#use", "https://example.org/x"] {
            assert!(leads_somewhere(&document, good), "{good}");
        }
        let ours = |file| format!("{OURS}{file}");
        assert!(leads_somewhere(&document, &ours("docs/cli.md#what-escapes")));
        for bad in ["readme.txt", "docs/README.md#use", &ours("docs/none.md")] {
            assert!(!leads_somewhere(&document, bad), "{bad}");
        }
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
