use crate::{Error, LeaseId, Result};

impl LeaseId {
    /// Creates an id from the operating system's random generator.
    ///
    /// # Errors
    /// `Unexpected`, effect `NotApplied`, if the generator fails.
    pub fn mint() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|e| {
            Error::unexpected("the operating system returned no random bytes for a lease id")
                .with_source(e)
        })?;
        Ok(Self::of_uuid(bytes))
    }
}
