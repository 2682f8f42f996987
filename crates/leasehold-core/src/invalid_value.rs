use std::borrow::Cow;
use std::fmt;

/// Why a value was refused: what was given, and what is allowed.
///
/// It becomes an [`Error`](crate::Error) of kind `InvalidInput`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue(Cow<'static, str>);

impl InvalidValue {
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }

    pub(crate) fn into_message(self) -> Cow<'static, str> {
        self.0
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidValue {}
