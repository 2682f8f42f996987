//! The store answers like the core's `Table`, for any requests in any order.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::{Workplace, id, key};
use leasehold_core::{
    AcquireRequest, Claim, Claims, EvictRequest, EvictTarget, Expired, FencingToken, Filter,
    GroupName, ListRequest, Mode, Now, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest,
    Store, Table, Ttl,
};

/// Numbers that look random and are the same in every run.
struct Dice(fastrand::Rng);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    fn keys(&mut self) -> BTreeSet<String> {
        (0..=self.below(3)).map(|_| format!("k{}", self.below(4))).collect()
    }

    fn claims(&mut self) -> Claims {
        let modes = [Mode::Exclusive, Mode::SHARED, Mode::Shared { max: NonZeroU32::new(2) }];
        let keys = self.keys();
        Claims::new(keys.iter().map(|name| {
            let mode = modes[usize::try_from(self.below(3)).unwrap()];
            Claim { key: key(name), mode }
        }))
        .unwrap()
    }

    fn lease(&mut self) -> leasehold_core::LeaseId {
        id(&format!("l{}", self.below(5)))
    }

    fn filter(&mut self) -> Filter {
        let filter = Filter::default().with_expired(
            [Expired::Out, Expired::In, Expired::Only][usize::try_from(self.below(3)).unwrap()],
        );
        match self.below(5) {
            0 => filter.with_key(key("k1")).with_key(key("k2")),
            1 => filter.with_prefix("k"),
            2 => filter.with_glob("k[12]").unwrap(),
            3 => filter.with_group(GroupName::new("o").unwrap()),
            _ => filter,
        }
    }
}

#[tokio::test]
async fn every_reply_and_row_equals_the_tables() {
    for seed in 0..25 {
        let place = Workplace::new();
        let mut store = place.open().await;
        let mut table = Table::default();
        let mut dice = Dice(fastrand::Rng::with_seed(seed));
        for step in 0..150 {
            let now = Now::read(&place.clock);
            let ttl = Ttl::new(Duration::from_millis(10 + dice.below(5_000))).unwrap();
            let (ours, theirs) = match dice.below(9) {
                0..=2 => {
                    let request = AcquireRequest::new(dice.lease(), dice.claims(), ttl)
                        .with_group(GroupName::new("o").unwrap());
                    let ours = store.acquire(&request).await.map_err(|e| e.kind());
                    let theirs = table.acquire(&request, now).map_err(|e| e.kind());
                    (format!("{ours:?}"), format!("{theirs:?}"))
                }
                3 => {
                    let to = if dice.below(8) == 0 { Ttl::NEVER } else { ttl };
                    let mut renewal = RenewEntry::extend(dice.lease(), dice.claims(), to);
                    if dice.below(4) == 0 {
                        let token =
                            FencingToken::new(now.wall_micros + dice.below(1_000_000)).unwrap();
                        renewal = renewal.with_token_raised_to(token);
                    }
                    let request = RenewRequest::new(vec![renewal]);
                    let ours = store.renew(&request).await.unwrap();
                    (format!("{ours:?}"), format!("{:?}", table.renew(&request, now)))
                }
                4 | 5 => {
                    let mut ending =
                        ReleaseEntry::new(dice.lease(), dice.keys().iter().map(|k| key(k)));
                    if dice.below(4) == 0 {
                        ending = ending.with_keep(Duration::from_millis(dice.below(3_000)));
                    }
                    let request = ReleaseRequest::new(vec![ending]);
                    let ours = store.release(&request).await.unwrap();
                    (format!("{ours:?}"), format!("{:?}", table.release(&request, now)))
                }
                6 => {
                    let request = EvictRequest::expired(dice.filter());
                    let ours = store.evict(&request).await.unwrap();
                    (format!("{ours:?}"), format!("{:?}", table.evict(&request, now)))
                }
                7 => {
                    let target = EvictTarget::new(key("k1"), Some(dice.lease()));
                    let request = EvictRequest::exactly(vec![target], None);
                    let ours = store.evict(&request).await.unwrap();
                    (format!("{ours:?}"), format!("{:?}", table.evict(&request, now)))
                }
                _ => {
                    let request = ListRequest::new(dice.filter()).with_limit(3);
                    let ours = store.list(&request).await.unwrap();
                    (format!("{ours:?}"), format!("{:?}", table.list(&request, now).unwrap()))
                }
            };
            assert_eq!(ours, theirs, "seed {seed}, step {step}");
            let all = ListRequest::new(Filter::default().with_expired(Expired::In));
            let ours = store.list(&all).await.unwrap();
            assert_eq!(format!("{ours:?}"), format!("{:?}", table.list(&all, now).unwrap()));
            place.clock.advance(Duration::from_millis(dice.below(400)));
            if dice.below(200) == 0 {
                // What ended long ago is gone at the next purge, if not before.
                place.clock.advance(Duration::from_secs(31 * 24 * 60 * 60));
                let purge = EvictRequest::expired(Filter::default());
                store.evict(&purge).await.unwrap();
                table.evict(&purge, Now::read(&place.clock));
            }
            if dice.below(40) == 0 {
                store = place.open().await;
            }
        }
    }
}
