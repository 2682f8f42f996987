//! Who holds a lock row: its column `writer`.

use std::borrow::Cow;

use leasehold_core::{GroupName, LeaseId};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// Between the name and the id of a lease of ours.
const OURS: &str = " lh:";

/// Behind the id of a lease that was released, and whose key stays taken.
const KEPT: &str = " kept";

/// What an id shows of itself; each other byte is `%` and two digits.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Writer {
    Ours {
        /// Who is shown.
        name: Option<GroupName>,
        id: LeaseId,
        kept: bool,
    },
    /// A client of spindle, by its id.
    Foreign(String),
}

impl Writer {
    pub(super) fn parse(text: &str) -> Self {
        let (rest, kept) = text.strip_suffix(KEPT).map_or((text, false), |rest| (rest, true));
        let ours = rest.rsplit_once(OURS).and_then(|(name, id)| {
            let name = match name {
                "" => None,
                name => Some(GroupName::new(name).ok()?),
            };
            let id: Cow<'_, [u8]> = percent_decode_str(id).into();
            Some(Self::Ours { name, id: LeaseId::foreign(&id).ok()?, kept })
        });
        // What Leasehold would write in another way, it has not written.
        let ours = ours.filter(|ours| ours.text() == text);
        ours.unwrap_or_else(|| Self::Foreign(text.to_owned()))
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Ours { name, id, kept } => {
                let name = name.as_ref().map_or("", GroupName::as_str);
                let id = percent_encode(&id.to_bytes(), PLAIN).to_string();
                format!("{name}{OURS}{id}{}", if *kept { KEPT } else { "" })
            }
            Self::Foreign(text) => text.clone(),
        }
    }

    /// Who is shown: the name, or the id of a client of spindle.
    pub(super) fn name(&self) -> Option<GroupName> {
        match self {
            Self::Ours { name, .. } => name.clone(),
            Self::Foreign(text) => GroupName::new(text).ok(),
        }
    }

    /// What remains in the column when the lease has ended: it belongs to nobody.
    pub(super) fn left_behind(&self) -> String {
        match self {
            Self::Ours { name, .. } => name.as_ref().map_or("", GroupName::as_str).to_owned(),
            Self::Foreign(text) => text.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(name: &str, id: &[u8], kept: bool) -> Writer {
        Writer::Ours { name: GroupName::new(name).ok(), id: LeaseId::foreign(id).unwrap(), kept }
    }

    #[test]
    fn what_we_write_is_ours() {
        for (writer, text) in [
            (ours("node-3", b"a", false), "node-3 lh:a"),
            (ours("", b"\xff b", true), " lh:%FF%20b kept"),
            (ours("a lh:b kept", b" lh:", false), "a lh:b kept lh:%20lh%3A"),
        ] {
            assert_eq!(writer.text(), text);
            assert_eq!(Writer::parse(text), writer);
        }
    }

    #[test]
    fn every_other_form_is_of_a_client_of_spindle() {
        let long = format!("a lh:{}", "b".repeat(LeaseId::MAX_BYTES + 1));
        for text in [
            "",
            "web 1",
            "web 1 kept",
            "a lh:",
            "a lh: kept",
            "a lh:b ",
            "a lh:b kept kept",
            "a lh:b c",
            "a lh:%2D",
            "a lh:%2f",
            "a lh:%",
            "a LH:b",
            "a\n lh:b",
            &long,
        ] {
            assert_eq!(Writer::parse(text), Writer::Foreign(text.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn any_text_is_one_of_both_and_stays_as_it_is() {
        const PARTS: [&str; 12] =
            [" lh:", " kept", "lh:", " ", "%", "%2", "%20", "%ff", "a", "\u{fc}", "'", ":"];
        for _ in 0..20_000 {
            let text: String =
                (0..fastrand::usize(..7)).map(|_| PARTS[fastrand::usize(..PARTS.len())]).collect();
            let writer = Writer::parse(&text);
            assert_eq!(writer.text(), text);
            if let Writer::Ours { name, id, kept } = &writer {
                let name = name.as_ref().map_or("", GroupName::as_str);
                assert_eq!(ours(name, &id.to_bytes(), *kept), writer);
            }
        }
        for _ in 0..20_000 {
            let id: Vec<u8> = (0..fastrand::usize(1..20)).map(|_| fastrand::u8(..)).collect();
            let writer = ours("web 1", &id, fastrand::bool());
            assert_eq!(Writer::parse(&writer.text()), writer);
        }
    }
}
