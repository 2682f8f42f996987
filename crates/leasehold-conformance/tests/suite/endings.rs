//! The results of cases that do not run, and their place in the report.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold_conformance::{Backing, Observation, Report, Result, Subject, Suite, Time};
use leasehold_core::{AnyStore, Store};

use crate::planted::store::{Abilities, Planted, PlantedStore};

/// A store whose server is not installed, with clients of this type.
struct Absent<S> {
    name: &'static str,
    clients: PhantomData<S>,
}

/// A state of it. None exists.
struct Nothing<S>(Infallible, PhantomData<S>);

impl<S: Store> Subject for Absent<S> {
    type Backing = Nothing<S>;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<Nothing<S>> {
        Err(std::io::Error::other("it was opened although it is not there"))?
    }

    fn unavailable(&self) -> Option<String> {
        Some("no such server is installed".to_owned())
    }
}

impl<S: Store> Backing for Nothing<S> {
    type Store = S;

    async fn client(&self) -> Result<S> {
        match self.0 {}
    }

    async fn observe(&self) -> Result<Observation> {
        match self.0 {}
    }

    fn time(&self) -> Time {
        match self.0 {}
    }
}

fn absent<S: Store>(name: &'static str) -> Absent<S> {
    Absent { name, clients: PhantomData }
}

fn run(required: &str) -> Report {
    Suite::new().on(absent::<PlantedStore>("absent")).require(required).run(|_| true).remove(0)
}

#[test]
fn a_case_that_cannot_run_is_ignored_by_name() {
    for required in ["", "local,sqlite"] {
        let report = run(required);
        assert!(report.cases.len() > 180, "{} cases", report.cases.len());
        assert_eq!(report.ignored().count(), report.cases.len());
        assert!(report.ignored().all(|(_, why)| why == "no such server is installed"));
    }
}

#[test]
fn a_case_runs_through_any_store_once_for_all_forms_of_a_store() {
    let suite = Suite::new()
        .on(absent::<PlantedStore>("typed"))
        .on_form(absent::<PlantedStore>("form"))
        .on(absent::<AnyStore>("erased"));
    let reports = suite.run(|_| true);
    let names = |nth: usize| reports[nth].cases.keys().map(String::as_str).collect::<Vec<_>>();
    let [typed, form, erased] = [names(0), names(1), names(2)];
    let (again, once): (Vec<&str>, Vec<&str>) =
        typed.into_iter().partition(|name| name.starts_with("any::"));
    let programmes = ["counter", "history", "oracle"];
    let mut all: Vec<_> =
        again.iter().map(|name| &name["any::".len()..]).chain(programmes).collect();
    all.sort_unstable();
    assert!(again.len() >= 90, "{} cases", again.len());
    assert_eq!(all, once);
    assert_eq!((&form, &erased), (&once, &once));
}

#[test]
fn a_required_store_is_required_in_all_its_forms() {
    for (name, is_required) in [("absent-in-real-time", true), ("absentee", false)] {
        let suite = Suite::new().cases_on(absent::<PlantedStore>(name)).require("absent");
        assert_eq!(suite.run(|_| true)[0].failed().count() > 0, is_required, "{name}");
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
