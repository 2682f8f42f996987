//! No message shows a part of a password that is not percent-encoded.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::process::{Output, Stdio};

use crate::support::{Store, code, leasehold};

/// How a command finds its store.
const WAYS: [&str; 3] = ["--store", "LEASEHOLD_STORE", "--store-file"];

/// What the command does with this store.
fn output(line: &str, way: &str, url: impl Into<Vec<u8>>) -> Output {
    let place = Store::new();
    let url = OsString::from_vec(url.into());
    let mut command = leasehold(line);
    match way {
        "--store-file" => {
            std::fs::write(place.file("store"), url.into_vec()).unwrap();
            command.arg(way).arg(place.file("store"));
        }
        "--store" => drop(command.arg(way).arg(url)),
        variable => drop(command.env(variable, url)),
    }
    if line.contains("run") {
        command.args(["--", "true"]);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

fn printed(output: &Output) -> String {
    let printed = [&output.stdout[..], &output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert!(!printed.contains("hunter2") && !printed.contains("secret"), "{printed}");
    printed
}

#[test]
fn a_password_that_makes_the_url_ambiguous_ends_every_command_at_once() {
    let urls = ["mysql", "postgres", "redis", "quorum"].iter().flat_map(|scheme| {
        ['@', '/', '?', '#'].map(|byte| match *scheme {
            "quorum" => {
                let node = format!("redis://app:hunter2{byte}secret@127.0.0.1:1/0");
                let node: String = node.bytes().map(|byte| format!("%{byte:02X}")).collect();
                format!("quorum:?node={node}")
            }
            scheme => format!("{scheme}://app:12{byte}hunter2secret@127.0.0.1:1/0"),
        })
    });
    let lines = ["run k", "run -n k -vv", "--json run k", "list", "--json init"];
    for (at, url) in urls.enumerate() {
        let (line, way) = (lines[at % lines.len()], WAYS[at % WAYS.len()]);
        let output = output(line, way, &*url);
        assert!(printed(&output).contains("percent-encode the password"), "{line} {url:?}");
        assert_eq!(code(&output), 64, "{line} {url:?}");
    }
}

#[test]
fn a_password_that_leaves_the_url_clear_is_not_shown_when_the_store_cannot_be_reached() {
    let urls = ["mysql", "postgres", "redis"].iter().flat_map(|scheme| {
        [' ', '&', ':', '%'].map(|byte| format!("{scheme}://app:hunter2{byte}secret@127.0.0.1:1/0"))
    });
    let lines = ["run -n k -vv", "--json run -n k", "--json list"];
    for (at, url) in urls.enumerate() {
        let (line, way) = (lines[at % lines.len()], WAYS[(at + at / 3) % WAYS.len()]);
        let output = output(line, way, &*url);
        assert!(printed(&output).contains("127.0.0.1:1"), "{line} {url:?}");
        assert_eq!(code(&output), 69, "{line} {url:?}");
    }
}

#[test]
fn a_password_that_is_not_utf_8_is_not_shown() {
    for way in WAYS {
        let output = output("run k", way, *b"redis://app:hunter2\xFFsecret@127.0.0.1:1");
        printed(&output);
        assert_eq!(code(&output), 64, "{way}");
    }
}
