use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Error, Key, Result, Ttl};

/// What a store can do. Fixed when the store is opened, and known without I/O from then on.
///
/// Every store, and [`AnyStore`](crate::AnyStore), calls [`admit`](Capabilities::admit) before any I/O: it refuses
/// what it cannot do and never silently weakens it ([C11](crate::contract)).
///
/// ```
/// use leasehold_core::{AcquireRequest, Capabilities, Claims, ErrorKind, Key, LeaseId, Mode, Ttl};
/// use std::time::Duration;
///
/// let can = Capabilities::none("toy");
/// let claims = Claims::one(Key::new("k")?, Mode::SHARED);
/// let request = AcquireRequest::new(LeaseId::mint()?, claims, Ttl::new(Duration::from_secs(1))?);
/// assert_eq!(can.admit(&request).unwrap_err().kind(), ErrorKind::Unsupported);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The store's name, as in its URL.
    pub name: &'static str,
    /// Shared mode.
    pub shared: bool,
    /// A limit on shared holders.
    pub shared_limit: bool,
    /// Several keys in one lease: all or none.
    pub many_keys: bool,
    /// Leases without end.
    pub never: bool,
    /// Keys that stay taken after a release.
    pub keep: bool,
    /// Fencing tokens.
    pub tokens: bool,
    /// Tokens can be raised to a larger value, as a quorum with tokens needs of its nodes. A store whose tokens are
    /// the server's own numbers cannot.
    pub raise: bool,
    /// Wake-ups.
    pub notifications: bool,
    /// Grants in the order of arrival: a refused request keeps a place, which its claims find again, as long as somebody is
    /// subscribed to its keys ([C9, C10](crate::contract)).
    pub fair: bool,
    /// Requests of one store for one key take effect in the order in which they are first polled, unless one
    /// fails: a try sent right behind a release finds the key free.
    pub in_order: bool,
    /// A release distinguishes `Expired` from `NotHeld`.
    pub reports_expired: bool,
    /// A renewal or release that names a token acts only on the lease with that token, so that a late one does not
    /// reach a later lease of the same id ([C3](crate::contract)).
    pub compares_tokens: bool,
    /// The store refuses an unfit server when it first uses it. So only a caller who requires a level has to check
    /// first, which may query servers that the caller does not use.
    pub checks_on_use: bool,
    /// The shortest term.
    pub min_term: Duration,
    /// The longest finite term.
    pub max_term: Duration,
    /// The longest time by which a lease ends for its holder before it ends for others. In a format shared with
    /// clients that use their own clocks, a record excludes others for longer than the reply to its holder states
    /// ([C5](crate::contract)).
    pub margin: Duration,
    /// The longest key, in bytes.
    pub max_key_bytes: usize,
    /// Lease ids must be text: UTF-8 without zero bytes.
    pub text_ids: bool,
    /// The most keys of one lease; `None` is no limit.
    pub max_claims: Option<usize>,
    /// The most shared holders of one key; `None` is no limit. With so many live holders a shared acquire is refused,
    /// as by a limit of its own ([C9](crate::contract)). Each node of a quorum counts for itself, so contenders there may
    /// exceed it.
    pub max_holders: Option<NonZeroU32>,
    /// Why the store lacks something, and what to do about it.
    pub reasons: &'static [(Feature, &'static str)],
}

/// A feature that a request may need and a store may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Shared mode.
    Shared,
    /// A limit on shared holders.
    SharedLimit,
    /// Several keys in one lease.
    ManyKeys,
    /// Leases without end.
    Never,
    /// Keys that stay taken after a release.
    Keep,
    /// Fencing tokens.
    Tokens,
    /// Fencing tokens that can be raised.
    Raise,
    /// Terms of any length.
    Terms,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared locks",
            Self::SharedLimit => "limit on shared holders",
            Self::ManyKeys => "locks of several keys at once",
            Self::Never => "leases without end",
            Self::Keep => "keeping a key taken after a release, which min_hold needs",
            Self::Tokens => "fencing tokens",
            Self::Raise => {
                "fencing tokens that can be raised, which a quorum with the option fenced needs"
            }
            Self::Terms => "terms of any length",
        })
    }
}

impl Capabilities {
    /// A store that grants only exclusive locks of one key with a term.
    pub fn none(name: &'static str) -> Self {
        Self {
            name,
            shared: false,
            shared_limit: false,
            many_keys: false,
            never: false,
            keep: false,
            tokens: false,
            raise: false,
            notifications: false,
            fair: false,
            in_order: false,
            reports_expired: false,
            compares_tokens: false,
            checks_on_use: false,
            min_term: Ttl::MIN,
            max_term: Ttl::MAX,
            margin: Duration::ZERO,
            max_key_bytes: Key::MAX_BYTES,
            text_ids: false,
            max_claims: None,
            max_holders: None,
            reasons: &[],
        }
    }

    /// The most keys of one lease in most stores. One lease of more keeps the server or the file from others for long.
    pub const MAX_CLAIMS: usize = 1_000;

    /// Everything that a request can use, with up to [`MAX_CLAIMS`](Self::MAX_CLAIMS) keys, and wake-ups. The store itself
    /// sets what it guarantees beyond that: fairness, ordered tokens, a check on use.
    pub fn all(name: &'static str) -> Self {
        Self {
            shared: true,
            shared_limit: true,
            many_keys: true,
            never: true,
            keep: true,
            tokens: true,
            raise: true,
            notifications: true,
            reports_expired: true,
            compares_tokens: true,
            max_claims: Some(Self::MAX_CLAIMS),
            ..Self::none(name)
        }
    }

    /// The error for a feature that the store lacks, with the reason where it is known.
    pub fn lacks(&self, feature: Feature) -> Error {
        let refusal = format!("the store {} has no {feature}", self.name);
        Error::unsupported(self.explained(feature, refusal))
    }

    fn explained(&self, lacking: Feature, refusal: String) -> String {
        match self.reasons.iter().find(|(feature, _)| *feature == lacking) {
            Some((_, reason)) => format!("{refusal}: {reason}"),
            None => refusal,
        }
    }

    pub(crate) fn check_keys<'a>(
        &self,
        keys: impl Iterator<Item = &'a Key>,
        count: usize,
    ) -> Result<()> {
        if count > 1 && !self.many_keys {
            return Err(self.lacks(Feature::ManyKeys));
        }
        match self.max_claims {
            Some(max) if count > max => Err(Error::unsupported(format!(
                "{count} keys are requested at once; the store {} accepts at most {max}; lock fewer, or one key that stands \
                 for them all",
                self.name
            ))),
            _ => self.check_key_bytes(keys),
        }
    }

    pub(crate) fn check_key_bytes<'a>(
        &self,
        mut keys: impl Iterator<Item = &'a Key>,
    ) -> Result<()> {
        match keys.find(|key| key.as_str().len() > self.max_key_bytes) {
            None => Ok(()),
            Some(key) => Err(Error::unsupported(format!(
                "the key has {} bytes; the store {} accepts at most {}",
                key.as_str().len(),
                self.name,
                self.max_key_bytes
            ))),
        }
    }

    pub(crate) fn check_term(&self, term: Duration) -> Result<()> {
        if (self.min_term..=self.max_term).contains(&term) {
            return Ok(());
        }
        let refusal = format!(
            "the requested term is {term:?}; the store {} accepts terms of {:?} to {:?}",
            self.name, self.min_term, self.max_term
        );
        Err(Error::unsupported(self.explained(Feature::Terms, refusal)))
    }
}
