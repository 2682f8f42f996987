use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{FencingToken, GroupName, Key, LeaseId, Mode, Note, Remaining};

/// One stored row, a lease on a key, as [`Store::list`](crate::Store::list) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The key.
    pub key: Key,
    /// The lease; absent where another client's holder has no usable id.
    pub id: Option<LeaseId>,
    /// How the key is held. A shared record carries no limit: the limit belongs to the request.
    pub mode: Mode,
    /// The token of the grant.
    pub token: Option<FencingToken>,
    /// The group it is listed under.
    pub group: Option<GroupName>,
    /// Who holds it and why.
    pub note: Note,
    /// What is left of the term, or how long ago it ended.
    pub term: RecordTerm,
    /// Time since the grant, by the store's wall clock; absent where the store does not know.
    pub age: Option<Duration>,
    /// Time since the last renewal, by the store's wall clock; absent if never renewed or not known.
    pub renewed: Option<Duration>,
    /// The holder released it, but the key stays taken until the term ends (`keep`).
    pub kept: bool,
    /// The node of a quorum that has it, without secrets; absent on any other store.
    pub node: Option<Arc<str>>,
}

/// The state of a record's term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "live or not")]
pub enum RecordTerm {
    /// It excludes others for this much longer.
    Live(Remaining),
    /// It ended; how long ago, if the store knows.
    Expired(Option<Duration>),
}

impl Record {
    /// A record with only the fields that every store has.
    pub fn new(key: Key, mode: Mode, term: RecordTerm) -> Self {
        Self {
            key,
            id: None,
            mode,
            token: None,
            group: None,
            note: Note::default(),
            term,
            age: None,
            renewed: None,
            kept: false,
            node: None,
        }
    }

    /// True unless its term has ended.
    pub fn is_live(&self) -> bool {
        matches!(self.term, RecordTerm::Live(_))
    }

    /// What is left of its term; zero when it has ended.
    pub fn remaining(&self) -> Remaining {
        match self.term {
            RecordTerm::Live(remaining) => remaining,
            RecordTerm::Expired(_) => Remaining::For(Duration::ZERO),
        }
    }

    /// Shows who holds it, in one line for people.
    pub fn who(&self) -> impl fmt::Display + '_ {
        Who(self)
    }
}

struct Who<'a>(&'a Record);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record { id, group, note, .. } = self.0;
        match (group, id) {
            (Some(group), _) => write!(f, "{group}")?,
            (None, Some(id)) => write!(f, "lease {id}")?,
            (None, None) => f.write_str("a client without an id")?,
        }
        if let Some(program) = note.program() {
            write!(f, ", {program}")?;
        }
        if let Some(pid) = note.pid() {
            write!(f, ", pid {pid}")?;
        }
        if let Some(host) = note.host() {
            write!(f, " on {host}")?;
        }
        match note.comment() {
            Some(comment) => write!(f, " ({comment})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(term: RecordTerm) -> Record {
        Record::new(Key::new("job").unwrap(), Mode::Exclusive, term)
    }

    #[test]
    fn nothing_remains_of_an_expired_record() {
        let (nothing, rest) = (Remaining::For(Duration::ZERO), Remaining::For(Duration::MAX));
        for (term, live, remaining) in [
            (RecordTerm::Live(rest), true, rest),
            (RecordTerm::Live(Remaining::Never), true, Remaining::Never),
            (RecordTerm::Expired(None), false, nothing),
            (RecordTerm::Expired(Some(Duration::MAX)), false, nothing),
        ] {
            let record = record(term);
            assert_eq!((record.is_live(), record.remaining()), (live, remaining));
        }
    }

    #[test]
    fn people_read_what_is_known_of_a_holder() {
        let mut record = record(RecordTerm::Live(Remaining::Never));
        assert_eq!(record.who().to_string(), "a client without an id");
        record.id = Some(LeaseId::foreign(b"w1").unwrap());
        assert_eq!(record.who().to_string(), "lease w1");
        record.note = Note::default().with_pid(7);
        assert_eq!(record.who().to_string(), "lease w1, pid 7");
        let note = record.note.with_host("db-3").unwrap().with_program("cron").unwrap();
        record.note = note.with_comment("nightly").unwrap();
        record.group = Some(GroupName::new("reports").unwrap());
        assert_eq!(record.who().to_string(), "reports, cron, pid 7 on db-3 (nightly)");
    }
}
