//! Group and note in a holder's record, and the reason in an evicted one's: one JSON object.

use leasehold_core::{GroupName, Note, Reason};
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Text<'a> {
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    group: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    host: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    program: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    comment: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    reason: Option<std::borrow::Cow<'a, str>>,
}

fn written(text: &Text<'_>) -> String {
    serde_json::to_string(text).expect("strings and a number can be written")
}

/// The written form.
pub(crate) fn of_holder(group: Option<&GroupName>, note: &Note) -> String {
    written(&Text {
        group: group.map(|group| group.as_str().into()),
        host: note.host().map(Into::into),
        pid: note.pid(),
        program: note.program().map(Into::into),
        comment: note.comment().map(Into::into),
        reason: None,
    })
}

/// The written form.
pub(crate) fn of_evicted(reason: Option<&Reason>) -> String {
    written(&Text { reason: reason.map(|reason| reason.as_str().into()), ..Text::default() })
}

/// Reads what another client may have written. It is for people only, so what is not understood is left out.
pub(crate) fn read_holder(json: &[u8]) -> (Option<GroupName>, Note) {
    let text: Text<'_> = serde_json::from_slice(json).unwrap_or_default();
    let group = text.group.and_then(|group| GroupName::new(&group).ok());
    let mut note = Note::default();
    if let Some(Ok(with)) = text.host.map(|host| note.clone().with_host(&host)) {
        note = with;
    }
    if let Some(pid) = text.pid {
        note = note.with_pid(pid);
    }
    if let Some(Ok(with)) = text.program.map(|program| note.clone().with_program(&program)) {
        note = with;
    }
    if let Some(Ok(with)) = text.comment.map(|comment| note.clone().with_comment(&comment)) {
        note = with;
    }
    (group, note)
}

/// Why a lease was evicted.
pub(crate) fn read_reason(json: &[u8]) -> Option<Reason> {
    let text: Text<'_> = serde_json::from_slice(json).unwrap_or_default();
    text.reason.and_then(|reason| Reason::new(&reason).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_text_is_read_back() {
        let group = GroupName::new("o \"q\" é").unwrap();
        let note = Note::default().with_host("h").unwrap().with_pid(7).with_comment("c\\").unwrap();
        let json = of_holder(Some(&group), &note);
        assert_eq!(read_holder(json.as_bytes()), (Some(group), note));
        assert_eq!(of_holder(None, &Note::default()), "{}");
        let reason = Reason::new("why").unwrap();
        assert_eq!(read_reason(of_evicted(Some(&reason)).as_bytes()), Some(reason));
        assert_eq!(of_evicted(None), "{}");
    }

    #[test]
    fn unknown_text_is_left_out() {
        for unexpected in ["", "x", "[]", "{\"group\":1}", "{\"host\":\"\"}"] {
            assert_eq!(read_holder(unexpected.as_bytes()), (None, Note::default()), "{unexpected}");
        }
        assert_eq!(read_holder(b"{\"pid\":1,\"new\":2}").1.pid(), Some(1));
    }
}
