//! Shows a record, for people and as JSON.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use comfy_table::{Table, presets};
use leasehold::inspect::{Record, RecordTerm};
use leasehold::{FencingToken, Remaining};
use serde::Serialize;

/// One record as JSON; `docs/cli.md` explains its fields. Durations are in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct RecordJson<'a> {
    key: &'a str,
    mode: &'static str,
    lease: Option<String>,
    token: Option<u64>,
    group: Option<&'a str>,
    host: Option<&'a str>,
    pid: Option<u32>,
    program: Option<&'a str>,
    comment: Option<&'a str>,
    live: bool,
    remaining_us: Option<u64>,
    expired_for_us: Option<u64>,
    age_us: Option<u64>,
    renewed_us: Option<u64>,
    kept: bool,
    node: Option<&'a str>,
}

impl<'a> From<&'a Record> for RecordJson<'a> {
    fn from(record: &'a Record) -> Self {
        let expired_for = match record.term {
            RecordTerm::Live(_) => None,
            RecordTerm::Expired(ago) => ago,
        };
        Self {
            key: record.key.as_str(),
            mode: mode(record),
            lease: record.id.as_ref().map(ToString::to_string),
            token: record.token.map(FencingToken::get),
            group: record.group.as_ref().map(AsRef::as_ref),
            host: record.note.host(),
            pid: record.note.pid(),
            program: record.note.program(),
            comment: record.note.comment(),
            live: record.is_live(),
            remaining_us: record.remaining().duration().map(micros),
            expired_for_us: expired_for.map(micros),
            age_us: record.age.map(micros),
            renewed_us: record.renewed.map(micros),
            kept: record.kept,
            node: record.node.as_deref(),
        }
    }
}

/// How wide a table may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// As wide as its content, with every column.
    Any,
    /// So many characters, with short lease ids and without what people seldom need.
    Terminal(usize),
}

impl Width {
    /// That of the terminal, if stdout is one and `wide` is not requested.
    pub(crate) fn of_stdout(wide: bool) -> Self {
        match terminal_size::terminal_size_of(std::io::stdout()) {
            Some((terminal_size::Width(columns), _)) if !wide => Self::Terminal(columns.into()),
            _ => Self::Any,
        }
    }
}

/// The records as a table for people.
pub(crate) fn table(records: &[Record], width: Width) -> String {
    let is_wide = width == Width::Any;
    let by_node = records.iter().any(|record| record.node.is_some());
    let mut table = Table::new();
    let columns: Vec<_> = columns().filter(|column| is_wide || column.is_usual).collect();
    let mut header: Vec<_> = columns.iter().map(|column| column.name).collect();
    header.extend(by_node.then_some("NODE"));
    table.load_preset(presets::NOTHING).set_header(header);
    for record in records {
        let mut row: Vec<_> = columns.iter().map(|column| (column.cell)(record)).collect();
        if !is_wide && let Some(at) = columns.iter().position(|column| column.name == "LEASE") {
            row[at] = cut(&row[at], SHORT_ID);
        }
        row.extend(by_node.then(|| or_dash(record.node.as_ref())));
        table.add_row(row);
    }
    // The last column is padded too.
    let line = |line: String| match width {
        Width::Any => line.trim_end().to_owned(),
        Width::Terminal(columns) => cut(line.trim_end(), columns),
    };
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The characters of a lease id where there is little room.
const SHORT_ID: usize = 9;

type Cell = fn(&Record) -> String;

struct Column {
    name: &'static str,
    /// It is shown where there is little room too.
    is_usual: bool,
    cell: Cell,
}

fn columns() -> impl Iterator<Item = Column> {
    let columns: [(_, _, Cell); 11] = [
        ("KEY", true, |record| record.key.to_string()),
        ("MODE", true, |record| mode(record).to_owned()),
        ("LEFT", true, left),
        ("AGE", true, |record| or_dash(record.age.map(duration))),
        ("GROUP", false, |record| or_dash(record.group.as_ref())),
        ("HOST", true, |record| or_dash(record.note.host())),
        ("PID", true, |record| or_dash(record.note.pid())),
        ("PROGRAM", true, |record| or_dash(record.note.program())),
        ("TOKEN", false, |record| or_dash(record.token)),
        ("LEASE", true, |record| or_dash(record.id.as_ref())),
        ("COMMENT", true, |record| or_dash(record.note.comment())),
    ];
    columns.into_iter().map(|(name, is_usual, cell)| Column { name, is_usual, cell })
}

/// The first characters, of which the last states that there are more.
fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A duration in microseconds, the largest number if it does not fit.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A duration for people: whole seconds, or milliseconds below one second.
pub(crate) fn duration(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(1) {
        Duration::from_millis(u64::from(duration.subsec_millis()))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    humantime::format_duration(rounded).to_string()
}

pub(crate) fn mode(record: &Record) -> &'static str {
    if record.mode.is_shared() { "shared" } else { "exclusive" }
}

/// What is left of the record's term, for people.
pub(crate) fn left(record: &Record) -> String {
    match record.term {
        RecordTerm::Live(Remaining::Never) => "never ends".to_owned(),
        RecordTerm::Live(Remaining::For(left)) if record.kept => {
            format!("{} (kept)", duration(left))
        }
        RecordTerm::Live(Remaining::For(left)) => duration(left),
        RecordTerm::Expired(Some(ago)) => format!("ended {} ago", duration(ago)),
        RecordTerm::Expired(None) => "ended".to_owned(),
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// One record for each lease: on a quorum every node lists one. If the nodes disagree on its token, only the id
/// identifies it.
pub(crate) fn leases(records: Vec<Record>) -> Vec<Record> {
    let mut leases: Vec<Record> = Vec::new();
    let mut seen = BTreeMap::new();
    for mut record in records {
        record.node = None;
        match seen.entry((record.key.clone(), record.id.clone())) {
            Entry::Vacant(entry) => {
                entry.insert(leases.len());
                leases.push(record);
            }
            Entry::Occupied(entry) => {
                let known = &mut leases[*entry.get()];
                known.token = known.token.filter(|token| Some(*token) == record.token);
            }
        }
    }
    leases
}

/// How long the holder of a lease may go on after a break: a renewal may just have begun its whole term. `None` for a lease without
/// an end, and for one of which the store does not know since when it is held.
pub(crate) fn longest_term(record: &Record) -> Option<Duration> {
    let left = record.remaining().duration()?;
    Some(left.saturating_add(record.renewed.or(record.age)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::inspect::Note;
    use leasehold::{FencingToken, Key, LeaseId, Mode};

    fn record() -> Record {
        let term = RecordTerm::Live(Remaining::For(Duration::from_millis(12_345)));
        let mut record = Record::new(Key::new("job").unwrap(), Mode::Exclusive, term);
        record.id = Some(LeaseId::foreign(b"w\n").unwrap());
        record.note = Note::default().with_host("db-3").unwrap().with_pid(7);
        record.age = Some(Duration::from_millis(250));
        record
    }

    #[test]
    fn json_has_a_fixed_form() {
        let json = serde_json::to_string(&RecordJson::from(&record())).unwrap();
        assert_eq!(
            json,
            r#"{"key":"job","mode":"exclusive","lease":"hex:770a","token":null,"group":null,"host":"db-3","pid":7,"program":null,"comment":null,"live":true,"remaining_us":12345000,"expired_for_us":null,"age_us":250000,"renewed_us":null,"kept":false,"node":null}"#
        );
    }

    #[test]
    fn the_table_is_plain_text() {
        let text = table(&[record()], Width::Any);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        let row = text.lines().nth(1).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            ["job", "exclusive", "12s", "250ms", "-", "db-3", "7", "-", "-", "hex:770a", "-"]
        );
    }

    #[test]
    fn the_node_of_a_quorum_is_shown() {
        let mut one = record();
        one.node = Some("a".into());
        let text = table(&[one, record()], Width::Any);
        let last: Vec<_> = text.lines().map(|line| line.split_whitespace().last()).collect();
        assert_eq!(last, [Some("NODE"), Some("a"), Some("-")]);
        assert!(!table(&[record()], Width::Any).contains("NODE"));
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let mut long = record();
        long.id = Some(LeaseId::mint().unwrap());
        long.note = long.note.with_comment(&"ä".repeat(100)).unwrap();
        let text = table(&[long.clone()], Width::Terminal(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let id: String = long.id.unwrap().to_string().chars().take(8).collect();
        assert!(text.contains(&format!(" {id}… ")) && text.ends_with("ä…"), "{text}");
        assert!(text.contains("PROGRAM") && !text.contains("TOKEN"), "{text}");
    }

    #[test]
    fn every_term_is_shown() {
        let mut record = record();
        for (term, expected) in [
            (RecordTerm::Live(Remaining::Never), "never ends"),
            (RecordTerm::Expired(Some(Duration::from_secs(61))), "ended 1m 1s ago"),
            (RecordTerm::Expired(None), "ended"),
        ] {
            record.term = term;
            assert_eq!(left(&record), expected);
        }
    }

    fn of_node(node: &str, id: &str, token: u64) -> Record {
        let term = RecordTerm::Expired(None);
        let mut record = Record::new(Key::new("job").unwrap(), Mode::Exclusive, term);
        record.id = Some(LeaseId::foreign(id.as_bytes()).unwrap());
        record.token = FencingToken::new(token).ok();
        record.node = Some(node.into());
        record
    }

    #[test]
    fn a_lease_is_named_once_and_with_its_token_if_the_nodes_agree() {
        let found = leases(vec![
            of_node("a", "one", 5),
            of_node("a", "other", 1),
            of_node("b", "one", 5),
            of_node("c", "one", 5),
            of_node("b", "other", 2),
            of_node("c", "other", 1),
        ]);
        let named: Vec<_> = found
            .iter()
            .map(|record| (record.id.as_ref().unwrap().to_string(), record.token))
            .collect();
        let agreed = FencingToken::new(5).ok();
        assert_eq!(named, [("one".to_owned(), agreed), ("other".to_owned(), None)]);
        assert!(found.iter().all(|record| record.node.is_none()));
    }
}
