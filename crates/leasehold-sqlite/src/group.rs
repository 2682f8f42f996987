//! Writes that arrive while another is on its way to the disk share the next commit.

use leasehold_core::{Effect, Result};

use crate::database::Database;
use crate::limit::Limit;
use crate::rows::Rows;

/// One request that writes.
pub(crate) trait Member: Send {
    /// When it must not begin any more.
    fn limit(&self) -> Limit;

    /// Acts inside a transaction, unless its limit has passed. If that is rolled back, it acts again.
    fn act(&mut self, rows: &Rows<'_>) -> Result<()>;

    /// Answers the caller: what it did is on the disk, or was rolled back.
    fn end(self: Box<Self>, outcome: Result<()>);
}

/// Carries out all members in their order: in one transaction, or each in its own if that fails.
pub(crate) fn commit(database: &Database, mut members: Vec<Box<dyn Member>>) {
    let earliest = members.iter().map(|member| member.limit()).min_by_key(|limit| limit.end());
    if let (Some(limit), true) = (earliest, members.len() > 1) {
        let all = |rows: &Rows<'_>| members.iter_mut().try_for_each(|member| member.act(rows));
        match database.write(limit, all) {
            Ok(()) => return members.into_iter().for_each(|member| member.end(Ok(()))),
            Err(error) if error.effect() == Effect::Unknown => {
                return members.into_iter().for_each(|member| member.end(Err(error.clone())));
            }
            // Rolled back because of one of them, or because the first limit has passed.
            Err(_) => {}
        }
    }
    for mut member in members {
        let outcome = database.write(member.limit(), |rows| member.act(rows));
        member.end(outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use leasehold_core::{Error, ManualClock};

    use super::*;
    use crate::SqliteConfig;

    /// Logs what happens to it, with its number.
    struct Logged {
        number: u32,
        limit: Limit,
        fails: Option<Effect>,
        log: Arc<Mutex<Vec<(u32, &'static str)>>>,
    }

    impl Member for Logged {
        fn limit(&self) -> Limit {
            self.limit
        }

        fn act(&mut self, _: &Rows<'_>) -> Result<()> {
            self.log.lock().unwrap().push((self.number, "acts"));
            let fails = |effect| Err(Error::unavailable(effect, "the disk failed"));
            self.fails.map_or(Ok(()), fails)
        }

        fn end(self: Box<Self>, outcome: Result<()>) {
            let state = match outcome.map_err(|error| error.effect()) {
                Ok(()) => "has acted",
                Err(Effect::NotApplied) => "has not",
                Err(Effect::Unknown) => "may have",
            };
            self.log.lock().unwrap().push((self.number, state));
        }
    }

    /// What happens to two members, of which the second fails with this effect.
    fn events(effect: Effect) -> Vec<(u32, &'static str)> {
        let clock = Arc::new(ManualClock::new());
        let limit = Limit::start(&*clock, Duration::from_secs(5));
        let database = Database::open(SqliteConfig::memory().clock(clock), limit).unwrap();
        let log = Arc::new(Mutex::default());
        let member = |number, fails| -> Box<dyn Member> {
            Box::new(Logged { number, limit, fails, log: Arc::clone(&log) })
        };
        commit(&database, vec![member(1, None), member(2, Some(effect))]);
        Arc::into_inner(log).expect("all members have ended").into_inner().unwrap()
    }

    #[test]
    fn members_whose_commit_may_have_happened_do_not_act_again() {
        let expected = [(1, "acts"), (2, "acts"), (1, "may have"), (2, "may have")];
        assert_eq!(events(Effect::Unknown), expected);
    }

    #[test]
    fn members_that_were_rolled_back_act_again_each_alone() {
        let together = [(1, "acts"), (2, "acts")];
        let alone = [(1, "acts"), (1, "has acted"), (2, "acts"), (2, "has not")];
        assert_eq!(events(Effect::NotApplied), [&together[..], &alone].concat());
    }
}
