use std::fmt;
use std::sync::Arc;

use crate::{InvalidValue, text};

/// Who holds a lease and why, for people.
///
/// The store keeps what was first written and never compares it. Every field is optional; the default is an empty
/// note. Cheap to clone.
///
/// ```
/// use leasehold_core::Note;
///
/// let note = Note::default().with_host("db-3")?.with_pid(4711).with_comment("nightly rebuild")?;
/// assert_eq!(note.comment(), Some("nightly rebuild"));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Note(Option<Arc<Fields>>);

/// What a note has; an empty note has none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Fields {
    host: Option<Arc<str>>,
    pid: Option<u32>,
    program: Option<Arc<str>>,
    comment: Option<Arc<str>>,
}

impl Note {
    /// The longest host or program name, in bytes.
    pub const MAX_NAME_BYTES: usize = 255;
    /// The longest comment, in bytes.
    pub const MAX_COMMENT_BYTES: usize = 512;

    /// Sets the host name.
    ///
    /// # Errors
    /// Fails if it is empty, longer than 255 bytes or has a control character.
    pub fn with_host(mut self, host: &str) -> Result<Self, InvalidValue> {
        self.fields_mut().host =
            Some(text::checked("host name", host, Self::MAX_NAME_BYTES)?.into());
        Ok(self)
    }

    /// Sets the process id.
    #[must_use]
    pub fn with_pid(mut self, pid: u32) -> Self {
        self.fields_mut().pid = Some(pid);
        self
    }

    /// Sets the program name.
    ///
    /// # Errors
    /// Fails if it is empty, longer than 255 bytes or has a control character.
    pub fn with_program(mut self, program: &str) -> Result<Self, InvalidValue> {
        self.fields_mut().program =
            Some(text::checked("program name", program, Self::MAX_NAME_BYTES)?.into());
        Ok(self)
    }

    /// Sets the free comment.
    ///
    /// # Errors
    /// Fails if it is empty, longer than 512 bytes or has a control character.
    pub fn with_comment(mut self, comment: &str) -> Result<Self, InvalidValue> {
        self.fields_mut().comment =
            Some(text::checked("comment", comment, Self::MAX_COMMENT_BYTES)?.into());
        Ok(self)
    }

    /// The host name.
    pub fn host(&self) -> Option<&str> {
        self.fields()?.host.as_deref()
    }

    /// The process id.
    pub fn pid(&self) -> Option<u32> {
        self.fields()?.pid
    }

    /// The program name.
    pub fn program(&self) -> Option<&str> {
        self.fields()?.program.as_deref()
    }

    /// The free comment.
    pub fn comment(&self) -> Option<&str> {
        self.fields()?.comment.as_deref()
    }

    fn fields(&self) -> Option<&Fields> {
        self.0.as_deref()
    }

    fn fields_mut(&mut self) -> &mut Fields {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note")
            .field("host", &self.host())
            .field("pid", &self.pid())
            .field("program", &self.program())
            .field("comment", &self.comment())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_what_was_given_and_nothing_else() {
        let empty = Note::default();
        assert_eq!((empty.host(), empty.pid()), (None, None));
        assert_eq!((empty.program(), empty.comment()), (None, None));
        let note = empty.with_host("db-3").unwrap().with_pid(4711).with_program("cron").unwrap();
        let note = note.with_comment("nightly").unwrap();
        assert_eq!((note.host(), note.pid()), (Some("db-3"), Some(4711)));
        assert_eq!((note.program(), note.comment()), (Some("cron"), Some("nightly")));
    }

    #[test]
    fn limits_are_exact_and_named() {
        let note = Note::default;
        let (name, comment) = ("n".repeat(255), "c".repeat(512));
        note().with_host(&name).unwrap().with_program(&name).unwrap();
        note().with_comment(&comment).unwrap();
        for (result, fragment) in [
            (note().with_host(&(name.clone() + "n")), "the host name has 256 bytes; at most 255"),
            (note().with_program(&(name + "n")), "the program name has 256 bytes"),
            (note().with_comment(&(comment + "c")), "the comment has 513 bytes; at most 512"),
            (note().with_comment(""), "the comment is empty"),
        ] {
            let error = result.unwrap_err();
            assert!(error.to_string().contains(fragment), "{error}");
        }
    }
}
