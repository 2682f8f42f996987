//! The tables of capabilities in `docs/STORES.md`, from the capabilities themselves.

use std::time::Duration;

use leasehold::inspect::Capabilities;

/// Set to write the table instead of comparing it.
const WRITE: &str = "LEASEHOLD_TEST_WRITE_STORES";

type Cell = fn(&Capabilities) -> String;

const ROWS: [(&str, Cell); 14] = [
    ("Shared mode", |can| yes(can.shared)),
    ("Limit on shared holders", |can| yes(can.shared_limit)),
    ("Most shared holders of a key", |can| match can.max_holders {
        _ if !can.shared => "–".to_owned(),
        Some(most) => most.to_string(),
        None => "no limit".to_owned(),
    }),
    ("Most keys of a lease", |can| match can.max_claims {
        _ if !can.many_keys => "1".to_owned(),
        Some(most) => most.to_string(),
        None => "no limit".to_owned(),
    }),
    ("Leases without end (`Ttl::NEVER`)", |can| yes(can.never)),
    ("`min_hold`", |can| yes(can.keep)),
    ("Fencing tokens", |can| yes(can.tokens)),
    ("Wakes waiters", |can| yes(can.notifications)),
    ("Grants in the order of arrival", |can| yes(can.fair)),
    ("A release reports `Expired`", |can| yes(can.reports_expired)),
    ("Shortest term", |can| time(can.min_term)),
    ("Longest term", |can| time(can.max_term)),
    ("A lease ends for others later than for its holder, by", |can| time(can.margin)),
    ("Longest key", |can| format!("{} bytes", can.max_key_bytes)),
];

fn yes(can: bool) -> String {
    if can { "yes" } else { "no" }.to_owned()
}

fn time(time: Duration) -> String {
    const YEAR: u64 = 365 * 24 * 3_600;
    match (time.as_secs(), time.as_millis()) {
        (_, 0) => "0".to_owned(),
        (0, millis) => format!("{millis} ms"),
        (secs, _) if secs % YEAR == 0 => format!("{} years", secs / YEAR),
        (secs, _) => format!("{secs} s"),
    }
}

/// Compares the table of these stores with the page.
pub(crate) fn compare(columns: &[(&str, Capabilities)]) {
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let heading = format!("| | {} |\n", names.join(" | "));
    let mut table = format!("{heading}|{}\n", "---|".repeat(names.len() + 1));
    for (name, cell) in ROWS {
        let cells: Vec<_> = columns.iter().map(|(_, can)| cell(can)).collect();
        table += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/STORES.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(&format!("\n{heading}")).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let written = format!("{before}\n{table}\n{after}");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(path, &written).unwrap();
    } else {
        assert!(
            page == written,
            "docs/STORES.md shows other capabilities; {WRITE}=1 writes:\n\n{table}"
        );
    }
}
