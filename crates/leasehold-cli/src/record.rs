//! Shows a record, for people and as JSON.

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

/// The records as a table for people.
pub(crate) fn table(records: &[Record]) -> String {
    let mut table = Table::new();
    let mut header =
        vec!["KEY", "MODE", "LEFT", "AGE", "GROUP", "HOST", "PID", "TOKEN", "LEASE", "COMMENT"];
    let by_node = records.iter().any(|record| record.node.is_some());
    if by_node {
        header.push("NODE");
    }
    table.load_preset(presets::NOTHING).set_header(header);
    for record in records {
        let note = &record.note;
        let mut row = vec![
            record.key.to_string(),
            mode(record).to_owned(),
            left(record),
            or_dash(record.age.map(duration)),
            or_dash(record.group.as_ref()),
            or_dash(note.host()),
            or_dash(note.pid()),
            or_dash(record.token),
            or_dash(record.id.as_ref()),
            or_dash(note.comment()),
        ];
        if by_node {
            row.push(or_dash(record.node.as_ref()));
        }
        table.add_row(row);
    }
    // The last column is padded too.
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
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

fn mode(record: &Record) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::inspect::Note;
    use leasehold::{Key, LeaseId, Mode};

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
        let text = table(&[record()]);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        let row = text.lines().nth(1).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            ["job", "exclusive", "12s", "250ms", "-", "db-3", "7", "-", "hex:770a", "-"]
        );
    }

    #[test]
    fn the_node_of_a_quorum_is_shown() {
        let mut one = record();
        one.node = Some("a".into());
        let text = table(&[one, record()]);
        let last: Vec<_> = text.lines().map(|line| line.split_whitespace().last()).collect();
        assert_eq!(last, [Some("NODE"), Some("a"), Some("-")]);
        assert!(!table(&[record()]).contains("NODE"));
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
}
