//! The store on real emulators with the machine's clock, beyond the conformance suite.
//!
//! Without an emulator each test is ignored.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod network;
mod spindle;

use std::process::ExitCode;
use std::time::Duration;

use google_cloud_spanner::mutation::Mutation;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claim, Claims, Effect, ErrorKind, EvictRequest, FencingToken,
    Filter, Key, LeaseId, Level, ListRequest, Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest,
    RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_spanner::{SpannerConfig, SpannerStore, SpindleConfig};
use leasehold_testkit::spanner::{Emulator, PLACE, Runtime};
use leasehold_testkit::{fails_within, spanner_tests};

fn main() -> ExitCode {
    spanner_tests!(
        async [
            a_url_is_enough_and_the_emulator_is_best_effort,
            without_its_table_the_store_says_what_to_do,
            a_database_that_does_not_exist_is_named,
            a_database_of_the_postgresql_dialect_is_refused,
            a_table_without_one_of_the_columns_is_refused,
            a_damaged_row_is_no_free_key_and_hides_no_other,
            a_lease_above_the_counter_of_its_key_is_damage,
            an_emulator_that_stands_still_or_has_ended_is_unavailable,
            requests_that_arrive_together_are_all_decided,
            a_raise_damages_no_key_with_a_lower_counter,
            a_purge_of_a_prefix_forgets_the_key_that_is_the_prefix,
            network::a_grant_whose_commit_was_not_answered_keeps_its_token,
            network::a_release_whose_commit_was_not_answered_is_never_not_held,
            network::requests_that_share_a_transaction_without_an_answer_are_sent_alone,
            network::an_aborted_transaction_is_begun_again_within_the_limit_and_not_after_it,
            network::an_answer_that_stalls_is_given_up_and_its_connection_replaced,
            network::a_dead_connection_stops_nobody_longer_than_one_limit,
            network::an_answer_that_stalls_beside_others_replaces_one_connection,
            network::a_key_that_was_refused_lately_is_looked_at_without_a_lock,
            network::a_purge_that_stalls_returns_what_it_has_done,
            network::the_clock_is_read_again_after_a_statement_that_took_long,
            network::an_emulator_that_is_started_again_serves_what_is_prepared_again,
            spindle::a_client_of_spindle_waits_for_our_lease_and_its_margin,
            spindle::we_wait_for_a_leader_of_spindle_and_its_margin,
            spindle::a_release_frees_the_lock_at_once_for_both,
            spindle::a_token_is_the_time_of_its_commit_and_a_heartbeat_lies_back,
            spindle::a_shorter_term_is_a_heartbeat_that_lies_further_back,
            spindle::an_acquire_whose_reply_was_lost_finds_its_own_grant,
            spindle::a_kept_lock_is_shown_and_not_renewed,
            spindle::a_heartbeat_of_a_deposed_leader_costs_us_nothing,
            spindle::a_deposed_leader_revives_no_lease_that_was_released_or_evicted,
            spindle::a_token_that_changed_under_us_is_lost_at_the_next_renewal,
            spindle::a_client_that_looked_before_us_and_reads_our_token_overwrites_us,
            spindle::our_claim_row_stops_a_client_that_read_the_token_before_us,
            spindle::our_claim_row_stops_a_client_that_found_no_row,
            spindle::a_claim_without_a_row_blocks_us_for_the_duration_and_the_margin,
            spindle::a_lock_that_a_client_takes_over_is_not_evicted_before_its_time,
            spindle::a_claim_without_an_update_blocks_us_for_the_duration_and_the_margin,
            spindle::names_that_spindle_confuses_are_refused,
            spindle::a_neighbour_that_is_added_meanwhile_is_refused,
            spindle::requests_about_one_lock_are_sent_in_their_order,
            spindle::other_generations_of_spindle_are_refused,
            spindle::a_check_names_what_the_table_does_not_show,
            spindle::the_table_is_created_when_asked_and_another_one_refused,
            spindle::old_claim_rows_of_ours_go_in_batches_and_no_others,
            spindle::a_purge_frees_the_locks_of_the_dead_and_deletes_no_row,
        ],
        [a_store_whose_runtime_has_ended_connects_anew]
    )
}

const LIMIT: Duration = Duration::from_secs(4);

fn config(emulator: &Emulator) -> SpannerConfig {
    let [project, instance, database] = PLACE;
    SpannerConfig::new(project, instance, database)
        .emulator(emulator.grpc())
        .emulator_http(emulator.http())
        .timeout(LIMIT)
}

async fn prepared() -> (Emulator, SpannerStore) {
    let emulator = Emulator::start().await.unwrap();
    let store = config(&emulator).timeout(Duration::from_secs(30)).connect().await.unwrap();
    store.prepare().await.unwrap();
    (emulator, store)
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn request(name: &str) -> AcquireRequest {
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    AcquireRequest::new(LeaseId::mint().unwrap(), Claims::one(key(name), Mode::Exclusive), ttl)
}

async fn is_granted(store: &SpannerStore, name: &str) -> bool {
    matches!(store.acquire(&request(name)).await.unwrap(), AcquireReply::Granted(_))
}

async fn a_url_is_enough_and_the_emulator_is_best_effort() {
    let (emulator, _) = prepared().await;
    let [project, instance, database] = PLACE;
    let url = format!("spanner://{project}/{instance}/{database}?emulator={}", emulator.grpc());
    let store = SpannerStore::connect(&url).await.unwrap();
    let request = request("a");
    assert!(matches!(store.acquire(&request).await.unwrap(), AcquireReply::Granted(_)));
    let health = store.check().await.unwrap();
    assert_eq!((health.level, health.schema), (Level::BestEffort, Some(1)));
    assert!(!health.durable && health.hazards.len() == 1, "{health:?}");
    let ends = ReleaseRequest::new(vec![ReleaseEntry::new(request.id().clone(), [key("a")])]);
    assert!(matches!(store.release(&ends).await.unwrap().leases[..], [ReleaseOutcome::Released]));
}

async fn without_its_table_the_store_says_what_to_do() {
    let emulator = Emulator::start().await.unwrap();
    let store = config(&emulator).connect().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, None);
    let error = store.acquire(&request("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Incompatible, Effect::NotApplied));
    assert!(error.to_string().contains("leasehold init"), "{error}");
    // One with other columns is not ours.
    let other = config(&emulator).table("clock").connect().await.unwrap();
    let error = other.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("option table"), "{error}");
}

async fn a_database_that_does_not_exist_is_named() {
    let emulator = Emulator::start().await.unwrap();
    let [project, instance, _] = PLACE;
    let config =
        SpannerConfig::new(project, instance, "missing").emulator(emulator.grpc()).timeout(LIMIT);
    let error = config.connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    assert!(error.to_string().contains("missing"), "{error}");
}

async fn a_database_of_the_postgresql_dialect_is_refused() {
    let emulator = Emulator::start().await.unwrap();
    emulator.create_postgres_database("pg").await.unwrap();
    let [project, instance, _] = PLACE;
    let config = SpannerConfig::new(project, instance, "pg")
        .emulator(emulator.grpc())
        .emulator_http(emulator.http())
        .table("locktable");
    let native = config.clone().connect().await.unwrap();
    let spindle = SpindleConfig::new(config).duration(Duration::from_secs(60));
    let spindle = spindle.connect().await.unwrap();
    let errors = [
        native.check().await.err(),
        native.prepare().await.err(),
        native.acquire(&request("a")).await.err(),
        native.list(&ListRequest::new(Filter::default())).await.err(),
        spindle.check().await.err(),
        spindle.prepare().await.err(),
        spindle.acquire(&request("a")).await.err(),
    ];
    for error in errors {
        let error = error.unwrap();
        assert_eq!(
            (error.kind(), error.effect()),
            (ErrorKind::Incompatible, Effect::NotApplied),
            "{error}"
        );
        assert!(error.to_string().contains("PostgreSQL dialect"), "{error}");
    }
}

async fn a_table_without_one_of_the_columns_is_refused() {
    let emulator = Emulator::start().await.unwrap();
    let schema = config(&emulator).schema_sql().unwrap();
    emulator.create_table(&schema.replace("    reason     STRING(MAX),\n", "")).await.unwrap();
    let store = config(&emulator).connect().await.unwrap();
    for error in [store.check().await.err(), store.acquire(&request("a")).await.err()] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
        assert!(error.to_string().contains("leasehold"), "{error}");
    }
}

async fn a_damaged_row_is_no_free_key_and_hides_no_other() {
    let (emulator, store) = prepared().await;
    assert!(is_granted(&store, "b").await);
    let client = emulator.client().await.unwrap();
    let row = Mutation::new_insert_builder("leasehold")
        .set("key")
        .to("a")
        .set("id")
        .to(b"x".to_vec())
        .set("state")
        .to("?")
        .build();
    client.write_only_transaction().build().write([row]).await.unwrap();
    let error = store.acquire(&request("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Corrupt, Effect::NotApplied), "{error}");
    let page = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(page.records.iter().map(|record| record.key.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(page.unreadable.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a"]);
}

async fn a_lease_above_the_counter_of_its_key_is_damage() {
    let (emulator, store) = prepared().await;
    let held = request("a");
    assert!(matches!(store.acquire(&held).await.unwrap(), AcquireReply::Granted(_)));
    let client = emulator.client().await.unwrap();
    let row = Mutation::new_insert_or_update_builder("leasehold")
        .set("key")
        .to("a")
        .set("id")
        .to(Vec::<u8>::new())
        .set("counter")
        .to(1_i64)
        .build();
    client.write_only_transaction().build().write([row]).await.unwrap();
    let error = store.acquire(&request("a")).await.unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Corrupt,
        "the next token would not be above every earlier one"
    );
}

async fn an_emulator_that_stands_still_or_has_ended_is_unavailable() {
    let (emulator, _) = prepared().await;
    let store = config(&emulator).connect().await.unwrap();
    assert!(is_granted(&store, "a").await);
    emulator.pause();
    fails_within(LIMIT, store.acquire(&request("b"))).await;
    fails_within(LIMIT, store.list(&ListRequest::new(Filter::default()))).await;
    emulator.resume();
    assert!(is_granted(&store, "c").await);
    emulator.kill();
    fails_within(LIMIT, store.acquire(&request("d"))).await;
}

fn a_store_whose_runtime_has_ended_connects_anew() {
    let servers = Runtime::new().unwrap();
    let emulator = servers.block_on(Emulator::start()).unwrap();
    let limit = Duration::from_secs(30);
    let store = {
        let runtime = Runtime::new().unwrap();
        runtime.block_on(async {
            let store = config(&emulator).timeout(limit).connect().await.unwrap();
            store.prepare().await.unwrap();
            store
        })
    };
    let served = async {
        let held = request("a");
        token_of(store.acquire(&held).await.unwrap());
        let entry = RenewEntry::extend(held.id().clone(), held.claims().clone(), held.term());
        let renewed = store.renew(&RenewRequest::new(vec![entry])).await.unwrap();
        assert!(matches!(renewed.leases[0], RenewOutcome::Held(_)), "{renewed:?}");
    };
    servers.block_on(async { tokio::time::timeout(limit / 2, served).await.unwrap() });
}

async fn requests_that_arrive_together_are_all_decided() {
    let (_emulator, store) = prepared().await;
    let names: Vec<_> = (0..50).map(|n| format!("k{}", n % 40)).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for name in names {
        let store = store.clone();
        tasks.spawn(async move { is_granted(&store, &name).await });
    }
    let granted = tasks.join_all().await.into_iter().filter(|granted| *granted).count();
    assert_eq!(granted, 40);
}

async fn a_raise_damages_no_key_with_a_lower_counter() {
    let (_emulator, store) = prepared().await;
    let ttl = Ttl::new(Duration::from_secs(60)).unwrap();
    let shared = |keys: &[&str]| {
        let claims = keys.iter().map(|name| Claim { key: key(name), mode: Mode::SHARED });
        let claims = Claims::new(claims).unwrap();
        AcquireRequest::new(LeaseId::mint().unwrap(), claims, ttl)
    };
    let both = shared(&["a", "b"]);
    let token = token_of(store.acquire(&both).await.unwrap());
    let above = token_of(store.acquire(&shared(&["b"])).await.unwrap());
    assert!(token < above);
    let between = FencingToken::new(token.get() + 1).unwrap();
    let raise = RenewEntry::extend(both.id().clone(), both.claims().clone(), ttl)
        .with_token_raised_to(between);
    let renewed = store.renew(&RenewRequest::new(vec![raise])).await.unwrap();
    assert!(matches!(renewed.leases[..], [RenewOutcome::Held(_)]), "{renewed:?}");
    let next = token_of(store.acquire(&shared(&["a"])).await.unwrap());
    assert!(between < next);
}

async fn a_purge_of_a_prefix_forgets_the_key_that_is_the_prefix() {
    let (emulator, _) = prepared().await;
    let store = config(&emulator).forget_after(Some(Duration::ZERO)).connect().await.unwrap();
    for name in ["job", "job:1", "other"] {
        let request = request(name);
        token_of(store.acquire(&request).await.unwrap());
        let ends = ReleaseEntry::new(request.id().clone(), [key(name)]);
        store.release(&ReleaseRequest::new(vec![ends])).await.unwrap();
    }
    let purge = EvictRequest::expired(Filter::default().with_prefix("job"));
    assert_eq!(store.evict(&purge).await.unwrap().counters_forgotten, 2);
    assert_eq!(store.evict(&purge).await.unwrap().counters_forgotten, 0);
}

fn token_of(reply: AcquireReply) -> FencingToken {
    match reply {
        AcquireReply::Granted(granted) => granted.token.unwrap(),
        AcquireReply::Refused(refused) => panic!("{refused:?}"),
    }
}
