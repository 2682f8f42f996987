use std::sync::Arc;

use crate::{Result, text};

/// A label over many leases, for people and for listing.
///
/// Never an identity: the holder is the lease, and two leases of one owner exclude each other like any
/// others. 1 to 255 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The longest owner, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks `owner` and takes it.
    ///
    /// # Errors
    /// `InvalidInput` if it is empty, longer than [`Owner::MAX_BYTES`] or has a control character.
    pub fn new(owner: &str) -> Result<Self> {
        text::checked("owner", owner, Self::MAX_BYTES).map(|owner| Self(owner.into()))
    }
}

text::text_type!(Owner);
