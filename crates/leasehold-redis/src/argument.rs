//! What a script is given.

use std::borrow::Cow;

use leasehold_core::LeaseId;

/// What a script is given.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    Bytes(Cow<'a, [u8]>),
    Number(u64),
    /// That of the connection which the script goes through.
    Quarantine,
}

impl Argument<'_> {
    /// How many bytes it has at most.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Number(_) | Self::Quarantine => 20,
        }
    }
}

impl<'a> From<&'a str> for Argument<'a> {
    fn from(text: &'a str) -> Self {
        Self::Bytes(text.as_bytes().into())
    }
}

impl From<String> for Argument<'_> {
    fn from(text: String) -> Self {
        Self::Bytes(text.into_bytes().into())
    }
}

impl From<u64> for Argument<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a LeaseId> for Argument<'a> {
    fn from(id: &'a LeaseId) -> Self {
        Self::Bytes(id.to_bytes())
    }
}
