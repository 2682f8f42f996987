use std::sync::Arc;

use crate::{InvalidValue, text};

/// A label on leases, for people and for listing.
///
/// Never an identity: the holder is the lease, and two leases of one group exclude each other like any others. 1
/// to 255 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

impl GroupName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks `group` and takes it.
    ///
    /// # Errors
    /// Fails if it is empty, longer than [`GroupName::MAX_BYTES`] or has a control character.
    pub fn new(group: &str) -> Result<Self, InvalidValue> {
        text::checked("group name", group, Self::MAX_BYTES).map(|group| Self(group.into()))
    }
}

text::text_type!(GroupName);
