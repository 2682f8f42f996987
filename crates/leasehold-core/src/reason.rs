use std::sync::Arc;

use crate::{InvalidValue, text};

/// Why a lease was ended by force, for its holder to read.
///
/// 1 to 255 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reason(Arc<str>);

impl Reason {
    /// The longest reason, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks `reason` and takes it.
    ///
    /// # Errors
    /// Fails if it is empty, longer than [`Reason::MAX_BYTES`] or has a control character.
    pub fn new(reason: &str) -> Result<Self, InvalidValue> {
        text::checked("reason", reason, Self::MAX_BYTES).map(|reason| Self(reason.into()))
    }
}

text::text_type!(Reason);
