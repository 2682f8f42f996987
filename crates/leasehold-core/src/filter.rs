#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use crate::{Error, GroupName, Key, LeaseId, Mode, Record, Remaining, Result};

/// Selects records. A record matches if it meets every condition.
///
/// Ranges are half open: a record at exactly the lower bound matches, one at exactly the upper bound does not, and
/// a `Never` term lies in no range that has an upper bound. Expired records match only on request.
/// [`Filter::matches`] decides; a store may only pre-filter.
///
/// ```
/// use leasehold_core::{Filter, Key};
///
/// let all = Filter::default();
/// let mine = Filter::default().with_key(Key::new("report:monthly")?);
/// let reports = Filter::default().with_glob("report:*")?;
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    keys: Option<Vec<Key>>,
    prefix: Option<String>,
    glob: Option<String>,
    id: Option<LeaseId>,
    group: Option<GroupName>,
    mode: Option<Mode>,
    host: Option<String>,
    age: Option<Bounds<Duration>>,
    remaining: Option<Bounds<Remaining>>,
    expired: Expired,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bounds<T> {
    from: T,
    to: Option<T>,
}

impl<T: PartialOrd> Bounds<T> {
    fn contains(&self, value: &T) -> bool {
        *value >= self.from && self.to.as_ref().is_none_or(|to| value < to)
    }
}

/// Whether expired records match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "out, in, or nothing else")]
pub enum Expired {
    /// Only live records.
    #[default]
    Out,
    /// Live and expired records.
    In,
    /// Only expired records.
    Only,
}

impl Filter {
    /// Records of this key; a second call adds a key.
    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.keys.get_or_insert_default().push(key);
        self
    }

    /// Records of exactly these keys.
    #[must_use]
    pub fn with_keys(mut self, keys: impl IntoIterator<Item = Key>) -> Self {
        self.keys.get_or_insert_default().extend(keys);
        self
    }

    /// Records whose key begins with `prefix`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Records whose whole key matches `pattern`: `*` matches any run of characters, `?` one character, anything
    /// else itself.
    ///
    /// # Errors
    /// `InvalidInput` if the pattern is empty or longer than a key can be.
    pub fn with_glob(mut self, pattern: &str) -> Result<Self> {
        if pattern.is_empty() || pattern.len() > Key::MAX_BYTES {
            return Err(Error::invalid_input(format!(
                "the pattern has {} bytes; it must have 1 to {}",
                pattern.len(),
                Key::MAX_BYTES
            )));
        }
        self.glob = Some(pattern.to_owned());
        Ok(self)
    }

    /// Records of this lease.
    #[must_use]
    pub fn with_lease(mut self, id: LeaseId) -> Self {
        self.id = Some(id);
        self
    }

    /// Records of this group.
    #[must_use]
    pub fn with_group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Records in this mode; a limit is not compared.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Records whose note names this host.
    #[must_use]
    pub fn with_host(mut self, host: impl Into<String>) -> Self {
        self.host = Some(host.into());
        self
    }

    /// Records granted at least `range.start` and less than `range.end` ago.
    #[must_use]
    pub fn with_age(mut self, range: Range<Duration>) -> Self {
        self.age = Some(Bounds { from: range.start, to: Some(range.end) });
        self
    }

    /// Records granted at least this long ago.
    #[must_use]
    pub fn with_age_from(mut self, from: Duration) -> Self {
        self.age = Some(Bounds { from, to: None });
        self
    }

    /// Live records with at least `range.start` and less than `range.end` left.
    #[must_use]
    pub fn with_remaining(mut self, range: Range<Remaining>) -> Self {
        self.remaining = Some(Bounds { from: range.start, to: Some(range.end) });
        self
    }

    /// Live records with at least this much left, `Never` included.
    #[must_use]
    pub fn with_remaining_from(mut self, from: Remaining) -> Self {
        self.remaining = Some(Bounds { from, to: None });
        self
    }

    /// Whether expired records match; by default they do not.
    #[must_use]
    pub fn with_expired(mut self, expired: Expired) -> Self {
        self.expired = expired;
        self
    }

    /// The keys that the filter names, if any: a store looks them up directly, in one exchange.
    pub fn keys(&self) -> Option<&[Key]> {
        self.keys.as_deref()
    }

    /// The start of every matching key: the requested prefix, or the literal start of the glob.
    pub fn key_prefix(&self) -> &str {
        let glob = self.glob.as_deref().unwrap_or("");
        let head = &glob[..glob.find(['*', '?']).unwrap_or(glob.len())];
        let prefix = self.prefix.as_deref().unwrap_or("");
        if prefix.len() >= head.len() { prefix } else { head }
    }

    /// Whether expired records match.
    pub fn expired(&self) -> Expired {
        self.expired
    }

    /// True if the filter consists of keys alone and `key` is one of them.
    pub fn matches_counter(&self, key: &Key) -> bool {
        let keys_alone = Self {
            keys: self.keys.clone(),
            prefix: self.prefix.clone(),
            glob: self.glob.clone(),
            expired: self.expired,
            ..Self::default()
        };
        *self == keys_alone && self.matches_key(key)
    }

    fn matches_key(&self, key: &Key) -> bool {
        self.matches_name(key.as_str())
    }

    /// Whether a record with this name may match, also if the name is no key.
    pub fn matches_name(&self, name: &str) -> bool {
        self.keys.as_ref().is_none_or(|keys| keys.iter().any(|key| key.as_str() == name))
            && self.prefix.as_ref().is_none_or(|prefix| name.starts_with(prefix.as_str()))
            && self.glob.as_ref().is_none_or(|pattern| glob(pattern, name))
    }

    /// Whether `record` matches.
    pub fn matches(&self, record: &Record) -> bool {
        let life = match self.expired {
            Expired::Out => record.is_live(),
            Expired::In => true,
            Expired::Only => !record.is_live(),
        };
        let left =
            |bounds: &Bounds<Remaining>| record.is_live() && bounds.contains(&record.remaining());
        life && self.matches_key(&record.key)
            && self.id.as_ref().is_none_or(|id| record.id.as_ref() == Some(id))
            && self.group.as_ref().is_none_or(|group| record.group.as_ref() == Some(group))
            && self.mode.is_none_or(|mode| record.mode.same_kind(mode))
            && self.host.as_ref().is_none_or(|host| record.note.host() == Some(host.as_str()))
            && self.age.as_ref().is_none_or(|b| record.age.is_some_and(|age| b.contains(&age)))
            && self.remaining.as_ref().is_none_or(left)
    }
}

/// Matches a whole text; linear in the product of both lengths at worst.
fn glob(pattern: &str, text: &str) -> bool {
    let (mut p, mut t) = (pattern, text);
    let mut retry: Option<(&str, &str)> = None;
    loop {
        let mut rest = p.chars();
        match rest.next() {
            Some('*') => {
                p = rest.as_str();
                retry = Some((p, t));
                continue;
            }
            Some(wanted) => {
                let mut text = t.chars();
                if text.next().is_some_and(|found| wanted == '?' || wanted == found) {
                    (p, t) = (rest.as_str(), text.as_str());
                    continue;
                }
            }
            None if t.is_empty() => return true,
            None => {}
        }
        // Let the last star match one more character.
        let Some((after, from)) = retry else {
            return false;
        };
        let mut shorter = from.chars();
        if shorter.next().is_none() {
            return false;
        }
        (p, t) = (after, shorter.as_str());
        retry = Some((after, t));
    }
}
