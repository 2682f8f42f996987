use std::any::{Any, TypeId};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::AnyStore;

use crate::case::{Case, CaseResult, Need};
use crate::ended::Ended;
use crate::erased::Erased;
use crate::fixture::Fixture;
use crate::report::Report;
use crate::{Backing, Failure, Forgets, Subject, cases, counter, history, oracle};

/// Every case, the oracle, the history and the counter, on one or several stores.
#[derive(Default)]
pub struct Suite {
    pub(crate) stores: Vec<Planned>,
}

/// What to run on one store.
pub(crate) struct Planned {
    pub(crate) report: Arc<Mutex<Report>>,
    pub(crate) jobs: Vec<Job>,
}

/// One named thing to run.
pub(crate) struct Job {
    pub(crate) name: String,
    run: Box<dyn FnOnce() -> CaseResult + Send>,
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.stores.iter().flat_map(|store| &store.jobs).map(|job| &job.name);
        f.debug_list().entries(names).finish()
    }
}

impl Suite {
    /// A suite without stores.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds everything for one store: each case on the store itself and again through `AnyStore`, the oracle, the
    /// history and the counter. A store whose clients are `AnyStore`s runs each case once.
    #[must_use]
    pub fn on<S: Subject>(mut self, subject: S) -> Self {
        let subject = Arc::new(subject);
        let mut planned = Planned::of(&subject);
        if TypeId::of::<<S::Backing as Backing>::Store>() != TypeId::of::<AnyStore>() {
            planned.add_cases("any::", &Arc::new(Erased::new(&subject)));
        }
        self.stores.push(planned);
        self
    }

    /// Adds another form of a store that the suite has, such as a cluster of its servers: everything but the cases
    /// through `AnyStore`, which does the same for every form.
    #[must_use]
    pub fn on_form(mut self, subject: impl Subject) -> Self {
        self.stores.push(Planned::of(&Arc::new(subject)));
        self
    }

    /// Adds only the cases, on the store itself.
    #[must_use]
    pub fn cases_on(mut self, subject: impl Subject) -> Self {
        let subject = Arc::new(subject);
        let mut planned = Planned::new(subject.name());
        planned.add_cases("", &subject);
        self.stores.push(planned);
        self
    }

    /// Makes *ignored* a failure for these of its stores: names, separated by commas, as in `LEASEHOLD_REQUIRE`. A
    /// name includes every subject that begins with it and a hyphen: `redis` includes `redis-cluster`.
    #[must_use]
    pub fn require(self, stores: &str) -> Self {
        for store in &self.stores {
            let mut report = lock(&store.report);
            report.is_required = stores.split(',').any(|name| {
                let rest = report.store.strip_prefix(name.trim());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            });
        }
        self
    }

    /// Runs what the filter admits, one after the other and without printing; returns one report per store.
    ///
    /// For a harness of your own; a store's test uses [`main`](crate::main).
    pub fn run(self, admits: impl Fn(&str) -> bool) -> Vec<Report> {
        let stores = self.stores.into_iter().map(|store| {
            for job in store.jobs.into_iter().filter(|job| admits(&job.name)) {
                // A failure is in the report.
                job.run(&store.report).ok();
            }
            lock(&store.report).clone()
        });
        stores.collect()
    }
}

impl Planned {
    fn new(store: &str) -> Self {
        Self { report: Arc::new(Mutex::new(Report::new(store))), jobs: Vec::new() }
    }

    /// Everything on the store itself.
    fn of<S: Subject>(subject: &Arc<S>) -> Self {
        let mut planned = Self::new(subject.name());
        planned.add_programmes(subject);
        planned.add_cases("", subject);
        planned
    }

    fn add(&mut self, name: String, run: impl FnOnce() -> CaseResult + Send + 'static) {
        self.jobs.push(Job { name, run: Box::new(run) });
    }

    fn add_cases<S: Subject>(&mut self, prefix: &str, subject: &Arc<S>) {
        for case in cases::all::<S::Backing>() {
            let subject = Arc::clone(subject);
            self.add(format!("{prefix}{}", case.name), move || {
                on_a_runtime(&*subject, run_case(&*subject, &case))
            });
        }
    }

    /// Adds the long ones, which run in parallel with the cases.
    fn add_programmes<S: Subject>(&mut self, subject: &Arc<S>) {
        let (own, report) = (Arc::clone(subject), Arc::clone(&self.report));
        self.add("oracle".to_owned(), move || {
            on_a_runtime(&*own, async {
                let figures = oracle::run(&*own).await?;
                lock(&report).oracle = Some(figures);
                Ok(Ended::Passed)
            })
        });
        let (own, report) = (Arc::clone(subject), Arc::clone(&self.report));
        self.add("history".to_owned(), move || {
            on_a_runtime(&*own, async {
                let figures = history::run(&*own).await?;
                lock(&report).history = Some(figures);
                Ok(Ended::Passed)
            })
        });
        let own = Arc::clone(subject);
        self.add("counter".to_owned(), move || on_a_runtime(&*own, counter::run(&*own)));
    }
}

impl Job {
    /// Runs it and records the result.
    pub(crate) fn run(self, report: &Mutex<Report>) -> CaseResult {
        let verdict = catch_unwind(AssertUnwindSafe(self.run))
            .unwrap_or_else(|panic| Err(Failure::new(format!("panicked: {}", text_of(&*panic)))));
        let verdict = lock(report).judge(verdict);
        lock(report).add(self.name, &verdict);
        verdict
    }
}

/// How many times as long a tick of real time is, try by try. A case that fails on a machine too busy to keep it states
/// nothing about the store, and is tried again with more time.
const TICKS: [u32; 3] = [1, 2, 8];

/// Runs one case on its own state.
async fn run_case<S: Subject>(subject: &S, case: &Case<S::Backing>) -> CaseResult {
    if case.needs.contains(&Need::Forgetting) {
        return run_forgetting_case(subject, case).await;
    }
    let mut verdict = Err(Failure::new("it was not tried".to_owned()));
    for longer in TICKS {
        let fixture = Fixture::new(subject.open().await?, subject.reports(), longer).await?;
        verdict = case.run(&fixture).await;
        if verdict.is_ok() || !fixture.is_late() {
            break;
        }
    }
    verdict
}

/// Runs one case on a state that forgets counters, if there is one.
async fn run_forgetting_case<S: Subject>(subject: &S, case: &Case<S::Backing>) -> CaseResult {
    let never = match subject.open_forgetting(cases::FORGET_AFTER).await? {
        Forgets::After(backing) => {
            let fixture = Fixture::new(backing, subject.reports(), 1).await?;
            return case.run(&fixture).await;
        }
        Forgets::Never => Some(Need::Forgetting),
        Forgets::CannotHere(why) => return Ok(Ended::CannotHere(why)),
        Forgets::Unknown => None,
    };
    let fixture = Fixture::new(subject.open().await?, subject.reports(), 1).await?;
    match case.unmet(&fixture).or(never) {
        Some(need) => need.refused(&fixture).await.map(Ended::NotApplicable),
        None => {
            let why = "nothing was done to set when a counter is forgotten";
            Ok(Ended::Ignored(why.to_owned()))
        }
    }
}

/// Runs on its own runtime, so that nothing of one job outlives it.
fn on_a_runtime<S: Subject>(subject: &S, job: impl Future<Output = CaseResult>) -> CaseResult {
    if let Some(reason) = subject.unavailable() {
        return Ok(Ended::Ignored(reason));
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build()?;
    runtime.block_on(async {
        let limit = subject.timeout();
        match tokio::time::timeout(limit, job).await {
            Ok(verdict) => verdict,
            Err(_) => Err(Failure::new(format!("it did not end within {limit:?}"))),
        }
    })
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text")
}

pub(crate) fn lock(report: &Mutex<Report>) -> std::sync::MutexGuard<'_, Report> {
    // After a panic elsewhere the report is as it was written so far.
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
