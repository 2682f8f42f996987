//! The suite must find bugs: a store with one bug at a time, and the case that must fail for it.
//!
//! The store of this test has its own code for the rules, so that without a bug two implementations agree on every
//! reply.

mod bug;
mod mark;
mod rows;
mod shown;
pub(crate) mod store;

use leasehold_conformance::{Report, Suite};

use self::bug::Bug;
use self::store::{Abilities, Planted};

/// Runs the named part of the suite.
fn run(planted: Planted, admits: impl Fn(&str) -> bool) -> Report {
    Suite::new().on(planted).run(admits).remove(0)
}

fn reasons(report: &Report) -> Vec<(&str, &str)> {
    report.failed().collect()
}

#[test]
fn without_a_bug_everything_passes() {
    let report = run(Planted { bug: None, abilities: Abilities::All }, |_| true);
    assert_eq!(reasons(&report), []);
    assert_eq!(report.ignored().collect::<Vec<_>>(), []);
    let oracle = report.oracle.as_ref().expect("the oracle ran");
    assert!(oracle.operations >= 20_000, "{oracle}");
    let history = report.history.as_ref().expect("the history was recorded");
    assert!(history.beliefs > 100, "{history}");
}

#[test]
fn a_store_whose_records_outlive_their_leases_passes() {
    let report = run(Planted { bug: None, abilities: Abilities::Margin }, |_| true);
    assert_eq!(reasons(&report), []);
    let passed: Vec<_> = report.passed().collect();
    assert!(passed.contains(&"c05_within_the_margin_a_key_stays_taken"));
}

#[test]
fn a_store_with_few_features_passes_and_its_refusals_are_checked() {
    let report = run(Planted { bug: None, abilities: Abilities::Few }, |_| true);
    assert_eq!(reasons(&report), []);
    let refused = report.not_applicable().map(|(name, _)| name).collect::<Vec<_>>();
    for (ability, case) in [
        ("shared", "c11_shared_is_done_or_refused"),
        ("shared_limit", "c11_a_limit_is_kept_or_refused"),
        ("many_keys", "c11_many_keys_are_taken_or_refused"),
        ("never", "c11_never_is_done_or_refused"),
        ("keep", "c11_keep_is_done_or_refused"),
        ("tokens", "c11_a_raise_is_done_or_refused"),
        ("notifications", "c12_a_release_wakes"),
        ("reports_expired", "c13_an_expired_lease_is_reported"),
    ] {
        assert!(refused.contains(&case), "{ability}: {case} should not apply");
    }
    let passed = report.passed().collect::<Vec<_>>();
    for case in ["c11_a_longer_key_is_refused", "c11_terms_beyond_the_limits_are_refused"] {
        assert!(passed.contains(&case), "{case}");
    }
}

#[test]
fn a_store_whose_tokens_cannot_be_raised_passes_and_refuses_to_raise_them() {
    let planted = Planted { bug: None, abilities: Abilities::Counting };
    let report = run(planted, |name| name.starts_with("c07_") || name.contains("raise"));
    assert_eq!(reasons(&report), []);
    let refused: Vec<_> = report.not_applicable().map(|(name, _)| name).collect();
    assert!(refused.contains(&"c11_a_raise_is_done_or_refused"), "{refused:?}");
    let passed: Vec<_> = report.passed().collect();
    assert!(passed.contains(&"c07_tokens_grow_through_expiry"), "{passed:?}");
}

#[test]
fn a_store_with_one_mark_for_all_keys_passes() {
    let planted = Planted { bug: None, abilities: Abilities::Marked };
    let report = run(planted, |name| name.starts_with("c07_") || name == "oracle");
    assert_eq!(reasons(&report), []);
    for (bug, case) in [
        (Bug::RaiseUsesUpAllTokens, "c07_a_raise_far_above_the_mark_is_refused"),
        (Bug::ReleasedKeyLeavesATrace, "c07_nothing_remains_of_a_key_that_nobody_holds"),
        (
            Bug::EndedLeaseIsRememberedForLong,
            "c07_an_ended_lease_is_remembered_for_an_hour_at_most",
        ),
        (Bug::RaiseLeavesTheCounter, "c07_a_raise_raises_every_later_token"),
        (Bug::RefusalDrawsAToken, "c02_refusal_mints_no_token"),
        (Bug::CounterGoesWithARestart, "c07_tokens_grow_through_restart"),
        (Bug::TokenIsTheClock, "oracle"),
    ] {
        let passed: Vec<_> = report.passed().collect();
        assert!(passed.contains(&case) || case.starts_with("c02_"), "{case}: {passed:?}");
        caught(bug, Abilities::Marked, &[case]);
    }
}

/// Each clause has at least three cases of its own, and all together are ninety or more.
#[test]
fn every_clause_has_its_cases() {
    let report =
        Suite::new().cases_on(Planted { bug: None, abilities: Abilities::All }).run(|_| true);
    let names: Vec<_> = report[0].cases.keys().collect();
    assert!(names.len() >= 90, "{} cases", names.len());
    let clauses = [
        "c02_", "c03_", "c03b_", "c04_", "c05_", "c06_", "c07_", "c08_", "c09_", "c10_", "c11_",
        "c12_", "c13_", "c14_", "c15_",
    ];
    for clause in clauses {
        let count = names.iter().filter(|name| name.starts_with(clause)).count();
        assert!(count >= 3, "{clause} has {count} cases");
    }
}

/// The named parts of the suite must fail for the bug, and pass without it.
fn caught(bug: Bug, abilities: Abilities, expected: &[&str]) {
    let planted = Planted { bug: Some(bug), abilities };
    let report = run(planted, |name| expected.contains(&name));
    let failed: Vec<_> = report.failed().map(|(name, _)| name).collect();
    for name in expected {
        assert!(failed.contains(name), "{bug:?}: {name} should fail: {:?}", report.cases);
    }
}

#[test]
fn a_limit_of_the_store_on_its_holders_is_kept() {
    let expected = [
        "c09_no_more_than_the_store_admits",
        "c09_contenders_never_exceed_what_the_store_admits",
        "oracle",
        "history",
    ];
    let planted = Planted { bug: None, abilities: Abilities::Narrow };
    let report = run(planted, |name| expected.contains(&name));
    assert_eq!(reasons(&report), []);
    assert_eq!(report.passed().count(), expected.len(), "{report}");
    caught(Bug::LimitOfTheStoreIsIgnored, Abilities::Narrow, &expected);
}

macro_rules! planted {
    ($($test:ident: $bug:ident => $($name:literal),+;)+) => {$(
        #[test]
        fn $test() {
            caught(Bug::$bug, Abilities::All, &[$($name),+]);
        }
    )+};
}

planted! {
    release_frees_any_holder: ReleaseFreesAnyHolder
        => "c08_release_by_another_id_leaves_the_holder", "c08_late_release_leaves_the_successor", "oracle";
    release_takes_what_begins_alike: ReleaseTakesWhatBeginsAlike
        => "c02_job_and_job_x_coexist", "oracle";
    renewal_extends_any_holder: RenewalExtendsAnyHolder
        => "c08_renewal_by_another_id_changes_nothing", "oracle";
    group_enters_again: GroupEntersAgain
        => "c03_second_id_of_the_same_group_is_refused", "oracle";
    other_mode_is_confirmed: OtherModeIsConfirmed
        => "c03_same_id_in_another_mode_is_invalid", "oracle";
    group_is_overwritten: GroupIsOverwritten
        => "c03_group_and_note_stay_as_first_written", "oracle";
    retry_gets_a_fresh_token: RetryGetsAFreshToken
        => "c03_same_id_returns_the_same_token", "oracle", "history";
    readers_join_a_writer: ReadersJoinAWriter
        => "c09_a_writer_keeps_readers_out", "oracle", "history";
    writer_joins_readers: WriterJoinsReaders
        => "c09_readers_keep_a_writer_out", "oracle", "history";
    limit_is_ignored: LimitIsIgnored
        => "c09_exactly_the_limit_is_admitted", "oracle", "history";
    limit_is_one_too_many: LimitIsOneTooMany
        => "c09_exactly_the_limit_is_admitted", "oracle", "history";
    keys_ignore_case: KeysIgnoreCase
        => "c14_keys_are_compared_byte_for_byte", "oracle";
    keys_are_trimmed: KeysAreTrimmed
        => "c14_keys_are_compared_byte_for_byte", "oracle";
    refusal_takes_the_free_keys: RefusalTakesTheFreeKeys
        => "c02_one_held_key_refuses_all", "oracle";
    refusal_draws_a_token: RefusalDrawsAToken
        => "c02_refusal_mints_no_token", "oracle";
    broken_lease_is_renewed: BrokenLeaseIsRenewed
        => "c03b_renewal_of_a_broken_lease_drops_the_rest", "oracle";
    broken_lease_is_confirmed: BrokenLeaseIsConfirmed
        => "c03b_acquire_of_a_broken_lease_is_a_new_grant", "oracle";
    broken_lease_is_released_in_part: BrokenLeaseIsReleasedInPart
        => "c03b_release_of_a_broken_lease_drops_the_rest", "oracle";
    renewal_revives_the_expired: RenewalRevivesTheExpired
        => "c06_an_expired_lease_is_not_revived_even_if_its_key_is_free", "oracle";
    renewal_shortens: RenewalShortens
        => "c06_renewal_never_shortens", "oracle";
    retry_shortens: RetryShortens
        => "c03_same_id_never_shortens", "oracle";
    never_is_shortened: NeverIsShortened
        => "c06_never_is_not_shortened", "oracle";
    live_at_exactly_its_term: LiveAtExactlyItsTerm
        => "c06_at_exactly_its_term_a_lease_has_ended", "oracle";
    term_is_rounded_down: TermIsRoundedDown
        => "c04_terms_are_rounded_up", "oracle";
    expired_readers_are_counted: ExpiredReadersAreCounted
        => "c05_expired_shared_is_not_counted", "c05_exclusive_over_expired_shared", "oracle";
    expired_writer_excludes_readers: ExpiredWriterExcludesReaders
        => "c05_shared_over_expired_exclusive", "oracle";
    counter_goes_with_the_release: CounterGoesWithTheRelease
        => "c07_tokens_grow_through_release", "oracle";
    counter_goes_with_the_last_row: CounterGoesWithTheLastRow
        => "c07_tokens_grow_through_purge", "oracle";
    counter_goes_with_a_restart: CounterGoesWithARestart
        => "c07_tokens_grow_through_restart", "oracle";
    token_is_the_clock: TokenIsTheClock
        => "c07_tokens_grow_though_the_wall_clock_steps_back", "oracle";
    token_is_above_the_first_key_only: TokenIsAboveTheFirstKeyOnly
        => "c07_one_token_above_every_earlier_token_of_each_key", "oracle";
    token_is_drawn_before_the_key_is_won: TokenIsDrawnBeforeTheKeyIsWon
        => "history";
    raise_leaves_the_counter: RaiseLeavesTheCounter
        => "c07_a_raise_raises_every_later_token", "oracle";
    raise_lowers: RaiseLowers
        => "c07_a_raise_never_lowers", "oracle";
    counter_is_forgotten_at_once: CounterIsForgottenAtOnce
        => "c07_counters_are_forgotten_after_a_while", "oracle";
    counter_ahead_of_the_clock_is_forgotten: CounterAheadOfTheClockIsForgotten
        => "c07_counters_ahead_of_the_clock_are_not_forgotten", "oracle";
    retry_after_is_the_smallest: RetryAfterIsTheSmallest
        => "c10_limited_waits_for_enough_readers_to_end", "oracle";
    retry_after_is_the_first_keys: RetryAfterIsTheFirstKeys
        => "c10_many_keys_wait_for_the_largest", "oracle";
    retry_after_ignores_never: RetryAfterIgnoresNever
        => "c10_a_holder_without_end_has_no_retry_after", "oracle";
    last_refusing_key_is_named: LastRefusingKeyIsNamed
        => "c10_the_first_refusing_key_is_named", "oracle";
    wrong_holder_is_named: WrongHolderIsNamed
        => "c10_the_awaited_reader_is_named", "oracle";
    expired_release_reports_released: ExpiredReleaseReportsReleased
        => "c13_an_expired_lease_is_reported", "oracle";
    eviction_is_not_told: EvictionIsNotTold
        => "evict_gives_the_holder_the_reason", "oracle";
    eviction_does_not_wake: EvictionDoesNotWake
        => "c12_an_eviction_wakes";
    every_release_wakes: EveryReleaseWakes
        => "c12_a_release_without_wakeup_wakes_nobody";
    keep_frees_the_key: KeepFreesTheKey
        => "c13_a_kept_key_stays_taken_until_the_keep_ends", "oracle";
    keep_is_granted_to_the_expired: KeepIsGrantedToTheExpired
        => "c13_a_keep_of_an_expired_lease_keeps_nothing", "oracle";
    resent_keep_starts_anew: ResentKeepStartsAnew
        => "c13_a_resent_keep_has_the_same_answer", "oracle";
    release_ends_a_keep: ReleaseEndsAKeep
        => "c13_a_release_after_a_keep_frees_nothing", "oracle";
    list_shows_the_expired: ListShowsTheExpired
        => "c05_listing_shows_live_records_only_unless_asked", "oracle";
    list_hides_the_expired: ListHidesTheExpired
        => "list_expired_out_in_and_only", "oracle";
    pages_skip_holders_of_a_key: PagesSkipHoldersOfAKey
        => "list_by_pages_of_one_holder", "oracle";
    prefix_is_a_pattern: PrefixIsAPattern
        => "c14_hostile_filters_are_data", "oracle";
    evict_ignores_the_id: EvictIgnoresTheId
        => "evict_exactly_compares_the_id", "oracle";
    evict_ignores_the_token: EvictIgnoresTheToken
        => "evict_exactly_compares_the_token", "oracle";
    purge_takes_the_live: PurgeTakesTheLive
        => "evict_expired_never_touches_live_leases", "oracle";
    purge_ignores_its_limit: PurgeIgnoresItsLimit
        => "evict_expired_keeps_to_its_limit", "oracle";
    limit_is_weakened_in_silence: LimitIsWeakenedInSilence
        => "c11_a_limit_is_kept_or_refused", "oracle";
    never_is_weakened_in_silence: NeverIsWeakenedInSilence
        => "c11_never_is_done_or_refused", "oracle";
    many_keys_are_weakened_in_silence: ManyKeysAreWeakenedInSilence
        => "c11_many_keys_are_taken_or_refused", "oracle";
    entries_are_not_counted: EntriesAreNotCounted
        => "c11_requests_name_one_to_a_thousand_leases", "oracle";
    looks_and_then_takes: LooksAndThenTakes
        => "c08_contenders_for_a_free_key_have_one_winner",
           "c08_contenders_for_an_expired_lease_have_one_winner",
           "c09_contenders_never_exceed_the_limit", "history", "counter";
    looks_and_then_purges: LooksAndThenPurges
        => "c08_a_purge_beside_a_takeover_removes_no_live_lease",
           "c08_a_purge_beside_the_same_id_removes_no_live_lease";
    writes_key_by_key: WritesKeyByKey
        => "c15_an_acquire_dropped_at_any_poll";
}
