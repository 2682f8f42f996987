//! The front end on real emulators of Cloud Spanner, in both formats.
//!
//! Without an emulator each test is ignored.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

#[allow(dead_code, reason = "its other stores are those of another test program")]
#[path = "../front_end"]
mod front_end {
    pub(crate) mod capability_table;
    pub(crate) mod election_chaos;
}
mod election_chaos;
mod spindle;

use std::process::ExitCode;

use front_end::capability_table;
use leasehold::Locker;
use leasehold_testkit::spanner::{Emulator, Runtime};
use leasehold_testkit::spanner_tests;

fn main() -> ExitCode {
    spanner_tests!(
        async [
            the_page_of_the_stores_has_their_capabilities,
            spindle::spindle_test_lock,
            spindle::spindle_no_run,
            spindle::spindle_only_one_of_many_first_candidates_leads,
            spindle::spindle_an_expired_lease_is_taken_over_exactly_once,
            spindle::spindle_a_paused_old_leader_sees_that_its_token_is_invalid,
            spindle::spindle_when_the_leader_stops_a_successor_follows,
            spindle::spindle_lock_package,
            spindle::spindle_01_a_crash_between_claim_and_update_does_not_wedge,
            spindle::spindle_02_a_late_claim_does_not_overwrite_a_living_leader,
            spindle::spindle_03_a_deposed_leader_keeps_nobody_elses_lease_alive,
            spindle::spindle_04_a_campaign_that_is_cancelled_by_a_deadline_renews_nothing,
            spindle::spindle_05_a_try_in_the_instant_of_a_renewal_is_refused,
            spindle::spindle_06_names_that_begin_alike_do_not_affect_each_other,
            spindle::spindle_07_a_deleted_record_stops_no_running_candidate,
            spindle::spindle_08_tokens_are_ordered,
            spindle::spindle_09_a_leader_without_its_store_notices_and_steps_down,
            spindle::spindle_10_a_graceful_stop_frees_the_name_at_once_and_nothing_leads_after_it,
            spindle::spindle_11_a_slow_round_within_the_term_costs_no_leadership,
            spindle::spindle_12_a_candidate_with_a_shorter_ttl_steals_nothing,
            spindle::spindle_13_names_and_ids_are_data,
            spindle::spindle_14_is_leader_sends_no_request,
            spindle::spindle_15_an_uncontended_campaign_waits_for_nothing_and_two_are_refused,
            spindle::spindle_16_a_renewal_names_one_lease_and_removes_nothing,
        ],
        [
            election_chaos::five_candidates_on_spanner,
            election_chaos::five_candidates_on_spindle,
            a_caller_without_async_holds_and_releases,
        ]
    )
}

async fn the_page_of_the_stores_has_their_capabilities() {
    let emulator = Emulator::start().await.unwrap();
    let mut columns = Vec::new();
    for (name, url) in
        [("Cloud Spanner", emulator.url()), ("table of spindle", emulator.spindle_url())]
    {
        let locks = Locker::connect_unchecked(&url).await.unwrap();
        columns.push((name, locks.capabilities()));
    }
    capability_table::compare(&columns);
}

/// The driver's futures are large: the thread of the blocking API has the stack for them.
fn a_caller_without_async_holds_and_releases() {
    let emulator = Runtime::new().unwrap().block_on(Emulator::start()).unwrap();
    for url in [emulator.url(), emulator.spindle_url()] {
        let locks = leasehold::blocking::Locker::connect_unchecked(&url).unwrap();
        locks.prepare().unwrap();
        let guard = locks.lock("job").take().unwrap();
        guard.renew().unwrap();
        guard.release().unwrap();
    }
}
