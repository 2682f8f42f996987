//! Claim rows: whoever adds the one of a token may replace the token.

use std::collections::HashMap;
use std::time::Duration;

use google_cloud_wkt::Timestamp;
use leasehold_core::Key;
use twox_hash::XxHash64;

/// What a lock row without a token counts as, as in Go: the zero time.
const NO_TOKEN: &str = "0001-01-01T00:00:00Z";

/// The name of the claim row for a token of a lock: the lock's, `_`, and XXH64 of the token as spindle v2 prints it (RFC 3339 in
/// UTC, without zeros at the end of the fraction).
pub(super) fn name(lock: &str, token: Option<Timestamp>) -> String {
    of_text(lock, &token.map_or_else(|| NO_TOKEN.to_owned(), String::from))
}

/// The name of the claim row for a lock without a row: in Go the token is the empty text then.
pub(super) fn name_without_row(lock: &str) -> String {
    of_text(lock, "")
}

fn of_text(lock: &str, token: &str) -> String {
    format!("{lock}_{}", XxHash64::oneshot(0, token.as_bytes()))
}

/// Claims of others that this store has met.
#[derive(Debug, Default)]
pub(super) struct Met(HashMap<Key, Claim>);

#[derive(Debug)]
struct Claim {
    name: String,
    /// By this store's own clock.
    since: Duration,
}

impl Met {
    /// How long the claim row with this name is still respected, which was met again `now`.
    pub(super) fn respect(
        &mut self,
        lock: &Key,
        name: &str,
        term: Duration,
        now: Duration,
    ) -> Duration {
        // Nobody waits any more for what is twice as old.
        self.0.retain(|key, claim| key == lock || now < claim.since + 2 * term);
        let claim = match self.0.remove(lock) {
            Some(claim) if claim.name == name => claim,
            _ => Claim { name: name.to_owned(), since: now },
        };
        let until = claim.since + term;
        self.0.insert(lock.clone(), claim);
        until.saturating_sub(now)
    }

    /// The claim row of a lock, if its time is over `now`.
    pub(super) fn passed(&self, lock: &Key, term: Duration, now: Duration) -> Option<String> {
        let claim = self.0.get(lock)?;
        (claim.since + term <= now).then(|| claim.name.clone())
    }

    pub(super) fn forget(&mut self, lock: &Key) {
        self.0.remove(lock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_row_is_named_as_spindle_v2_names_it() {
        let names = [
            (Some((1_732_327_246, 0)), "11622155815424643669"),
            (Some((1_732_327_246, 120_000_000)), "1541007064810294348"),
            (Some((1_732_327_246, 123_456_000)), "10780075437354104338"),
            (None, "6935757474513069070"),
        ];
        for (token, suffix) in names {
            let token = token.map(|(seconds, nanos)| Timestamp::clamp(seconds, nanos));
            assert_eq!(name("jx", token), format!("jx_{suffix}"));
        }
        assert_eq!(name_without_row("jx"), "jx_17241709254077376921");
    }

    #[test]
    fn a_claim_is_respected_for_its_whole_term() {
        let (mut met, key) = (Met::default(), Key::new("k").unwrap());
        let at = Duration::from_millis;
        let term = at(2_000);
        assert_eq!(met.respect(&key, "k_1", term, at(10)), term);
        assert_eq!(met.respect(&key, "k_1", term, at(1_510)), at(500));
        assert_eq!(met.passed(&key, term, at(2_009)), None);
        assert_eq!(met.passed(&key, term, at(2_010)).as_deref(), Some("k_1"));
        // Another token began another term.
        assert_eq!(met.respect(&key, "k_2", term, at(2_010)), term);
        assert_eq!(met.passed(&key, term, at(4_009)), None);
        met.forget(&key);
        assert_eq!(met.passed(&key, term, at(4_010)), None);
    }

    #[test]
    fn the_claim_of_a_lock_that_nobody_waits_for_is_forgotten() {
        let (mut met, term) = (Met::default(), Duration::from_secs(2));
        for n in 0..100 {
            let key = Key::new(&format!("k{n}")).unwrap();
            met.respect(&key, "_", term, Duration::from_secs(n));
        }
        assert_eq!(met.0.len(), 4);
    }
}
