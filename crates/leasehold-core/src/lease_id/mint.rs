use std::cell::RefCell;
use std::time::Duration;

use crate::{Error, LeaseId, Result};

/// How many ids a busy thread draws at once: 256 bytes, which Linux returns whole.
const BLOCK: usize = 16;

/// How long the ids of one draw are used.
const FRESH: Duration = Duration::from_millis(1);

impl LeaseId {
    /// Creates an id from the operating system's random generator.
    ///
    /// # Errors
    /// `Unexpected`, effect `NotApplied`, if the generator fails.
    pub fn mint() -> Result<Self> {
        let mut uuid = [0; 16];
        draw(&mut uuid)?;
        Ok(Self::of_uuid(uuid))
    }

    /// Creates an id as [`mint`](Self::mint) does, at a fraction of the cost for a thread that mints often.
    ///
    /// If the thread has minted within the last millisecond by the caller's clock, whose reading `now` is, it draws
    /// random bytes for several ids at once. What is left of them after that millisecond is not used, nor by another
    /// process: neither a fork nor a copy of an idle machine, as a snapshot makes it, shares ids. So `process` must be
    /// [`std::process::id`], read since the last fork; reading it takes longer than minting.
    ///
    /// # Errors
    /// As [`mint`](Self::mint).
    pub fn mint_at(now: Duration, process: u32) -> Result<Self> {
        UNUSED.with_borrow_mut(|unused| unused.next(process, now, draw)).map(Self::of_uuid)
    }
}

thread_local! {
    static UNUSED: RefCell<Unused> = const { RefCell::new(Unused::NONE) };
}

fn draw(bytes: &mut [u8]) -> Result<()> {
    getrandom::fill(bytes).map_err(|e| {
        Error::unexpected("the operating system returned no random bytes for a lease id")
            .with_source(e)
    })
}

/// Ids that a thread has drawn and not used.
struct Unused {
    ids: [[u8; 16]; BLOCK],
    left: usize,
    process: u32,
    drawn: Duration,
}

impl Unused {
    const NONE: Self = Self { ids: [[0; 16]; BLOCK], left: 0, process: 0, drawn: Duration::ZERO };

    fn next(
        &mut self,
        process: u32,
        now: Duration,
        draw: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<[u8; 16]> {
        let age = now.checked_sub(self.drawn);
        let is_fresh = process == self.process && age.is_some_and(|age| age < FRESH);
        if !is_fresh || self.left == 0 {
            let count = if is_fresh { BLOCK } else { 1 };
            self.left = 0;
            draw(self.ids[..count].as_flattened_mut())?;
            *self = Self { ids: self.ids, left: count, process, drawn: now };
        }
        self.left -= 1;
        Ok(self.ids[self.left])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NOW: Duration = Duration::from_secs(1);

    /// Draws that number their bytes: each id begins with its number, from 1 on.
    #[derive(Default)]
    struct Draws {
        counts: Vec<usize>,
        ids: u8,
    }

    impl Draws {
        fn next(&mut self, unused: &mut Unused, process: u32, now: Duration) -> u8 {
            let draw = |bytes: &mut [u8]| {
                self.counts.push(bytes.len() / 16);
                for id in bytes.chunks_exact_mut(16) {
                    self.ids += 1;
                    id.fill(self.ids);
                }
                Ok(())
            };
            unused.next(process, now, draw).unwrap()[0]
        }
    }

    #[test]
    fn no_id_is_given_twice() {
        let (mut unused, mut draws) = (Unused::NONE, Draws::default());
        let ids: HashSet<_> = (0..100).map(|_| draws.next(&mut unused, 1, NOW)).collect();
        assert_eq!(ids.len(), 100);
        assert_eq!(draws.counts, [1, 16, 16, 16, 16, 16, 16, 16], "only the first is drawn alone");
    }

    #[test]
    fn what_is_left_is_not_used_after_a_millisecond_nor_before_it_was_drawn() {
        let (mut unused, mut draws) = (Unused::NONE, Draws::default());
        for (now, count) in
            [(NOW, 1), (NOW + MS - MS / 10, 16), (NOW + 2 * MS - MS / 10, 1), (NOW, 1)]
        {
            draws.next(&mut unused, 1, now);
            assert_eq!(draws.counts.pop(), Some(count), "{now:?}");
        }
        assert_eq!(draws.counts, [0_usize; 0]);
    }

    #[test]
    fn another_process_draws_its_own() {
        let (mut unused, mut draws) = (Unused::NONE, Draws::default());
        let of_parent = [(); 3].map(|()| draws.next(&mut unused, 1, NOW));
        let of_child = [(); 3].map(|()| draws.next(&mut unused, 2, NOW));
        // 2 to 17 are the block of the parent, which uses it from its end.
        assert_eq!((of_parent, of_child), ([1, 17, 16], [18, 34, 33]));
    }

    #[test]
    fn after_a_failed_draw_nothing_is_left() {
        let (mut unused, mut draws) = (Unused::NONE, Draws::default());
        draws.next(&mut unused, 1, NOW);
        draws.next(&mut unused, 1, NOW);
        let fails = |_: &mut [u8]| Err(Error::unexpected("no random bytes"));
        for _ in 0..3 {
            unused.next(2, NOW, fails).unwrap_err();
        }
        assert_eq!((unused.left, draws.next(&mut unused, 1, NOW)), (0, 33));
    }

    #[test]
    fn threads_that_mint_at_the_same_time_share_no_id() {
        let process = std::process::id();
        let mint = move || {
            (0..10_000).map(|_| LeaseId::mint_at(NOW, process).unwrap()).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..8).map(|_| thread::spawn(mint)).collect();
        let ids: HashSet<_> = threads.into_iter().flat_map(|ids| ids.join().unwrap()).collect();
        assert_eq!(ids.len(), 80_000);
    }

    /// Set for a process that a test runs in alone.
    #[cfg(target_os = "linux")]
    const ALONE: &str = "LEASEHOLD_TEST_ALONE";

    #[cfg(target_os = "linux")]
    #[test]
    #[cfg_attr(miri, ignore = "it forks")]
    fn a_forked_process_uses_no_id_that_its_parent_has_drawn() {
        if std::env::var_os(ALONE).is_none() {
            let name =
                "lease_id::mint::tests::a_forked_process_uses_no_id_that_its_parent_has_drawn";
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let printed =
                alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
            let printed = String::from_utf8(printed.stdout).unwrap();
            assert!(printed.contains("15 are left, and the child uses 0 of them"), "{printed}");
            return;
        }
        let mint = || LeaseId::mint_at(NOW, std::process::id()).unwrap();
        mint();
        mint();
        let left: Vec<_> = UNUSED.with_borrow(|unused| unused.ids[..unused.left].to_vec());
        // The parent ends with it; the child has a copy of what the parent had left.
        nix::unistd::daemon(true, true).unwrap();
        let minted = [(); 2 * BLOCK].map(|()| mint());
        let shared = left.iter().filter(|id| minted.contains(&LeaseId::of_uuid(**id))).count();
        println!("{} are left, and the child uses {shared} of them", left.len());
        std::process::exit(0);
    }
}
