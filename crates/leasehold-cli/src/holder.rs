//! Who holds a key, in one line for people.

use std::fmt;
use std::time::SystemTime;

use leasehold::inspect::{Record, RecordTerm};
use leasehold::{Key, Remaining};

use crate::record::duration;

/// A record as the end of a sentence: "held by …", or "kept after the lease of …". The times are this machine's, computed from what the
/// store's clock states of the lease.
#[derive(Debug)]
pub(crate) struct Holding<'a> {
    record: &'a Record,
    now: SystemTime,
}

impl<'a> Holding<'a> {
    pub(crate) fn of(record: &'a Record) -> Self {
        #[expect(clippy::disallowed_methods, reason = "it is shown to people, and decides nothing")]
        let now = SystemTime::now();
        Self { record, now }
    }
}

impl fmt::Display for Holding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, now } = *self;
        if record.kept {
            write!(f, "kept after the lease of {} ({KEEPERS})", Holder(record))?;
        } else {
            write!(f, "held by {}", Holder(record))?;
        }
        if let Some((age, since)) = record.age.and_then(|age| Some((age, now.checked_sub(age)?))) {
            write!(f, ", since {} ({})", Time(since), duration(age))?;
        }
        match record.term {
            RecordTerm::Live(Remaining::For(left)) => {
                if let Some(end) = now.checked_add(left) {
                    let unless = if record.kept { "" } else { " unless renewed" };
                    write!(f, ", until {}{unless} ({})", Time(end), duration(left))?;
                }
            }
            RecordTerm::Live(Remaining::Never) => f.write_str(", without an end")?,
            RecordTerm::Expired(_) => f.write_str(", whose term is over")?,
        }
        match record.note.comment() {
            Some(comment) => write!(f, ": {comment}"),
            None => Ok(()),
        }
    }
}

/// The options of `run` that keep a key after a lease.
const KEEPERS: &str = "--min-hold, --once-per, --lock-delay or --supersede";

/// Program, process and host, or what else identifies the holder.
#[derive(Debug)]
pub(crate) struct Holder<'a>(pub(crate) &'a Record);

impl fmt::Display for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { id, group, note, .. } = self.0;
        let parts = [
            group.as_ref().map(ToString::to_string),
            note.program().map(str::to_owned),
            note.pid().map(|pid| format!("pid {pid}")),
        ];
        let mut named = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        if named.is_empty() {
            named = match id {
                Some(id) => format!("lease {id}"),
                None => "a client without an id".to_owned(),
            };
        }
        f.write_str(&named)?;
        match note.host() {
            Some(host) => write!(f, " on {host}"),
            None => Ok(()),
        }
    }
}

/// Why a key was not granted.
#[derive(Debug)]
pub(crate) struct NotFree<'a> {
    pub(crate) key: &'a Key,
    pub(crate) holder: Option<&'a Record>,
}

impl fmt::Display for NotFree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.holder {
            Some(holder) => write!(f, "{:?} is {}", self.key, Holding::of(holder)),
            None => write!(f, "{:?} is held", self.key),
        }
    }
}

/// To the second, in UTC.
struct Time(SystemTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::inspect::Note;
    use leasehold::{LeaseId, Mode};

    use super::*;

    fn record(term: RecordTerm) -> Record {
        let mut record = Record::new(Key::new("job").unwrap(), Mode::Exclusive, term);
        record.id = Some(LeaseId::foreign(b"w").unwrap());
        record
    }

    fn text(record: &Record) -> String {
        // 2026-01-02T03:04:05Z
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045);
        Holding { record, now }.to_string()
    }

    #[test]
    fn it_states_who_since_when_and_until_when() {
        let mut record = record(RecordTerm::Live(Remaining::For(Duration::from_millis(26_400))));
        assert_eq!(
            text(&record),
            "held by lease w, until 2026-01-02T03:04:31Z unless renewed (26s)"
        );
        record.age = Some(Duration::from_secs(243));
        record.note = Note::default().with_pid(812).with_host("db-3").unwrap();
        record.note = record.note.with_program("./backup.sh").unwrap();
        record.note = record.note.with_comment("nightly").unwrap();
        assert_eq!(
            text(&record),
            "held by ./backup.sh, pid 812 on db-3, since 2026-01-02T03:00:02Z (4m 3s), \
             until 2026-01-02T03:04:31Z unless renewed (26s): nightly"
        );
        record.kept = true;
        assert_eq!(
            text(&record),
            "kept after the lease of ./backup.sh, pid 812 on db-3 (--min-hold, --once-per, --lock-delay or --supersede), \
             since 2026-01-02T03:00:02Z (4m 3s), until 2026-01-02T03:04:31Z (26s): nightly"
        );
    }

    #[test]
    fn what_the_store_does_not_know_is_left_out() {
        let mut endless = record(RecordTerm::Live(Remaining::Never));
        assert_eq!(text(&endless), "held by lease w, without an end");
        endless.id = None;
        endless.age = Some(Duration::MAX);
        assert_eq!(text(&endless), "held by a client without an id, without an end");
        assert_eq!(text(&record(RecordTerm::Expired(None))), "held by lease w, whose term is over");
    }
}
