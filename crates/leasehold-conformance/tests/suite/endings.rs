//! The results of cases that do not run, and their place in the report.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_conformance::{Backing, Observation, Report, Result, Subject, Suite, Time};
use leasehold_core::AnyStore;

use crate::planted::store::{Abilities, Planted, PlantedStore};

/// A store whose server is not installed.
struct Absent;

/// None exists.
enum Nothing {}

impl Subject for Absent {
    type Backing = Nothing;

    fn name(&self) -> &'static str {
        "absent"
    }

    async fn open(&self) -> Result<Nothing> {
        Err(std::io::Error::other("it was opened although it is not there"))?
    }

    fn unavailable(&self) -> Option<String> {
        Some("no such server is installed".to_owned())
    }
}

impl Backing for Nothing {
    type Store = AnyStore;

    async fn client(&self) -> Result<AnyStore> {
        match *self {}
    }

    async fn observe(&self) -> Result<Observation> {
        match *self {}
    }

    fn time(&self) -> Time {
        match *self {}
    }
}

fn run(required: &str) -> Report {
    Suite::new().on(Absent).require(required).run(|_| true).remove(0)
}

#[test]
fn a_case_that_cannot_run_is_ignored_by_name() {
    for required in ["", "local,sqlite"] {
        let report = run(required);
        assert!(report.cases.len() > 180, "{} cases", report.cases.len());
        assert_eq!(report.ignored().count(), report.cases.len());
        assert!(report.ignored().all(|(_, why)| why == "no such server is installed"));
        assert!(report.ignored().any(|(name, _)| name == "any::c02_other_keys_are_free"));
    }
}

#[test]
fn a_required_store_is_required_in_all_its_forms() {
    struct Form(&'static str);

    impl Subject for Form {
        type Backing = Nothing;

        fn name(&self) -> &'static str {
            self.0
        }

        async fn open(&self) -> Result<Nothing> {
            Absent.open().await
        }

        fn unavailable(&self) -> Option<String> {
            Absent.unavailable()
        }
    }

    for (name, is_required) in [("absent-in-real-time", true), ("absentee", false)] {
        let reports = Suite::new().cases_on(Form(name)).require("absent").run(|_| true);
        assert_eq!(reports[0].failed().count() > 0, is_required, "{name}");
    }
}

#[test]
fn a_required_case_that_cannot_run_has_failed() {
    let report = run("local, absent");
    assert_eq!(report.failed().count(), report.cases.len());
    let (_, why) = report.failed().next().expect("there are cases");
    assert!(why.contains("no such server is installed"), "{why}");
}

#[test]
fn the_written_report_has_the_counts_and_the_reasons() {
    let report = run("");
    let written: serde_json::Value = serde_json::from_str(&report.to_json()).expect("it is JSON");
    assert_eq!(written["store"], "absent");
    assert_eq!(written["ignored"], report.cases.len());
    for count in ["passed", "failed", "not_applicable", "cannot_here", "oracle_operations"] {
        assert_eq!(written[count], 0, "{count}");
    }
    assert_eq!(written["reasons_ignored"]["oracle"], "no such server is installed");
    let printed = report.to_string();
    let counts = format!(
        "absent: 0 passed, 0 failed, 0 not applicable, 0 cannot here, {} ignored",
        report.cases.len()
    );
    assert!(printed.starts_with(&counts), "{printed}");
    assert!(printed.contains("ignored, because no such server is installed:\n"), "{printed}");
}

/// A store in real time, on a machine that is late while the first states are tested.
struct Late {
    states: usize,
    opened: Arc<AtomicUsize>,
}

struct LateState {
    store: PlantedStore,
    is_late: bool,
}

impl Subject for Late {
    type Backing = LateState;

    fn name(&self) -> &'static str {
        "late"
    }

    async fn open(&self) -> Result<LateState> {
        let store = Planted { bug: None, abilities: Abilities::All }.open().await?;
        Ok(LateState { store, is_late: self.opened.fetch_add(1, Ordering::SeqCst) < self.states })
    }
}

impl Backing for LateState {
    type Store = PlantedStore;

    async fn client(&self) -> Result<PlantedStore> {
        self.store.client().await
    }

    async fn observe(&self) -> Result<Observation> {
        self.store.observe().await
    }

    fn time(&self) -> Time {
        Time::Real { tick: Duration::from_millis(10) }
    }

    async fn advance(&self, by: Duration) {
        let by = if self.is_late { by * 3 } else { by };
        tokio::time::sleep(by).await;
        self.store.advance(by).await;
    }
}

/// A term that ended while the machine was late shows nothing about the store.
#[test]
fn in_real_time_a_case_that_failed_late_is_tried_again() {
    for (states, passes, tried) in [(0, true, 1), (2, true, 3), (3, false, 3)] {
        let opened = Arc::new(AtomicUsize::new(0));
        let late = Late { states, opened: opened.clone() };
        let case = "c04_terms_run_on_the_stores_clock";
        let report = Suite::new().cases_on(late).run(|name| name == case).remove(0);
        assert_eq!(report.passed().count() == 1, passes, "{states}: {:?}", report.cases);
        assert_eq!(opened.load(Ordering::SeqCst), tried, "{states} late states");
    }
}
