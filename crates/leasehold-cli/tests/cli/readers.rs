//! The shells read their completions, and `man` its pages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Store, code, text};

/// True if the program is there. Where every store is tested it must be.
fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    let required = std::env::var("LEASEHOLD_REQUIRE").unwrap_or_default();
    assert!(is_there || !required.contains("postgres"), "there is no {program}");
    if !is_there {
        println!("not tested: there is no {program}");
    }
    is_there
}

/// Writes what the command prints to a file.
fn printed(store: &Store, line: &str, file: &str) -> PathBuf {
    let output = store.output(line);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let file = store.file(file);
    std::fs::write(&file, output.stdout).unwrap();
    file
}

fn run(program: &str, arguments: &[&str], file: &Path) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .env("FILE", file)
        .env("FOLDER", file.parent().unwrap())
        .env("MANPAGER", "cat")
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "{program}");
    output
}

#[test]
fn each_shell_completes_commands() {
    let store = Store::new();
    let shells = [
        (
            "bash",
            "leasehold.bash",
            "source \"$FILE\"; COMP_WORDS=(leasehold re); COMP_CWORD=1; \
             _leasehold leasehold re leasehold; printf '%s\\n' \"${COMPREPLY[@]}\"",
        ),
        (
            "zsh",
            "_leasehold",
            "fpath=(\"$FOLDER\" $fpath); autoload -Uz compinit; compinit -u -d \"$FOLDER/dump\"; \
             autoload +X _leasehold && (( $+_comps[leasehold] )) && print -r -- $functions[_leasehold]",
        ),
        ("fish", "leasehold.fish", "source \"$FILE\"; complete -C 'leasehold re'"),
    ];
    for (shell, file, script) in shells.into_iter().filter(|(shell, ..)| is_there(shell)) {
        let file = printed(&store, &format!("completions {shell}"), file);
        run(shell, &["-n"], &file);
        let found = text(&run(shell, &["-c", script], &file).stdout);
        assert!(found.contains("renew") && found.contains("release"), "{shell}: {found}");
    }
}

/// The words of a page, as `man` shows it.
fn shown(page: &Path) -> String {
    let shown = run("man", &["--warnings", "-l", page.to_str().unwrap()], page).stdout;
    text(&shown).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn man_shows_the_page_of_each_command() {
    if !is_there("man") {
        return;
    }
    let store = Store::new();
    let folder = store.file("man1");
    std::fs::create_dir(&folder).unwrap();
    let mut command = store.command("man --dir");
    assert_eq!(code(&command.arg(&folder).output().unwrap()), 0);
    let mut pages = 0;
    for page in std::fs::read_dir(&folder).unwrap() {
        let page = page.unwrap().path();
        let shown = shown(&page);
        let name = page.file_stem().unwrap().to_str().unwrap();
        assert!(shown.contains(&format!("{name} - ")) && shown.contains("SYNOPSIS"), "{shown}");
        pages += 1;
    }
    assert!(pages > 15, "{pages}");
    let page = printed(&store, "man", "leasehold.1");
    let shown = shown(&page);
    assert!(shown.contains("leasehold-run(1)"), "{shown}");
}
