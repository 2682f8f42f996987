//! What a run leaves in the log of its server.

use std::collections::BTreeMap;

use leasehold_testkit::mongodb::Server;

/// How many kinds of messages are named.
const KINDS: usize = 5;

/// Prints its size and its most frequent messages.
pub(crate) fn print(server: &Server) {
    let log = server.log();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for line in log.lines() {
        let kind = line.split_once("\"msg\":\"").and_then(|(_, rest)| rest.split_once('"'));
        *kinds.entry(kind.map_or("other", |(kind, _)| kind)).or_default() += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    println!("## The server's log\n");
    println!(
        "{} lines, {} KiB in this run; the most frequent messages:\n",
        log.lines().count(),
        log.len() / 1024
    );
    println!("| message | lines |");
    println!("|---|---|");
    for (kind, count) in kinds.iter().take(KINDS) {
        println!("| {kind} | {count} |");
    }
    println!();
}
