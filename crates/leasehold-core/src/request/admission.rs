use crate::{Capabilities, Claims, Error, Feature, LeaseId, Mode, Result, Ttl};

/// A request, or a part of one, that can be checked before any I/O; see
/// [`Capabilities::admit`](crate::Capabilities::admit).
pub trait Request: Sealed {
    #[doc(hidden)]
    fn check(&self, can: &Capabilities) -> Result<()>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for crate::Claims {}
    impl Sealed for crate::Ttl {}
    impl Sealed for () {}
}
pub(super) use sealed::Sealed;

impl Capabilities {
    /// Refuses a request that this store, or any store, cannot serve.
    ///
    /// # Errors
    /// `Unsupported` or `InvalidInput`, effect `NotApplied`.
    pub fn admit(&self, request: &impl Request) -> Result<()> {
        request.check(self)
    }

    /// Does the `work` of a request that is [admitted](Self::admit). An error of it names the store and the operation. For
    /// stores; `&()` where an operation has no request.
    ///
    /// # Errors
    /// As [`admit`](Self::admit), and those of `work`.
    pub async fn carry_out<T, F: Future<Output = Result<T>>>(
        &self,
        operation: &'static str,
        request: &impl Request,
        work: impl FnOnce() -> F,
    ) -> Result<T> {
        self.admit(request)?;
        work().await.map_err(|error| error.with_context(self.name, operation))
    }

    pub(super) fn check_id(&self, id: &LeaseId) -> Result<()> {
        let is_text =
            |bytes: &[u8]| std::str::from_utf8(bytes).is_ok_and(|text| !text.contains('\0'));
        if !self.text_ids || is_text(&id.to_bytes()) {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "the store {} keeps only lease ids that are text, and {id} is not; give one in UTF-8 without zero bytes",
            self.name
        )))
    }
}

/// The most entries of one `RenewRequest` or `ReleaseRequest`, and the most records of one `ListReply` or `EvictReply`.
pub const MAX_ENTRIES: usize = 1_000;

pub(super) fn check_entries(what: &str, count: usize) -> Result<()> {
    if (1..=MAX_ENTRIES).contains(&count) {
        return Ok(());
    }
    Err(Error::invalid_input(format!(
        "a {what} names {count} leases; it must name 1 to {MAX_ENTRIES}"
    )))
}

pub(super) fn check_limit(limit: usize) -> Result<()> {
    if (1..=MAX_ENTRIES).contains(&limit) {
        return Ok(());
    }
    Err(Error::invalid_input(format!("the limit is {limit}; it must be 1 to {MAX_ENTRIES}")))
}

impl Request for () {
    fn check(&self, _: &Capabilities) -> Result<()> {
        Ok(())
    }
}

impl Request for Claims {
    fn check(&self, can: &Capabilities) -> Result<()> {
        can.check_keys(self.keys(), self.len())?;
        for claim in self {
            match claim.mode {
                Mode::Shared { .. } if !can.shared => {
                    return Err(can.lacks(Feature::Shared));
                }
                Mode::Shared { max: Some(_) } if !can.shared_limit => {
                    return Err(can.lacks(Feature::SharedLimit));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Request for Ttl {
    fn check(&self, can: &Capabilities) -> Result<()> {
        match self.duration() {
            Some(term) => can.check_term(term),
            None if can.never => Ok(()),
            None => Err(can.lacks(Feature::Never)),
        }
    }
}
