use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use crate::case::CaseResult;
use crate::ended::Ended;
use crate::suite::lock;
use crate::{Subject, Suite};

/// How many cases run at the same time by default.
const THREADS: usize = 4;

/// Runs everything on one store, as the `main` of a test with `harness = false`.
pub fn main(subject: impl Subject) -> ExitCode {
    Suite::new().on(subject).main()
}

impl Suite {
    /// Runs everything on every store of the suite, as the `main` of a test with `harness = false`.
    ///
    /// Takes the usual arguments of a test program: a filter, `--list`, `--exact`, `--test-threads`.
    pub fn main(self) -> ExitCode {
        let suite = self.require(&std::env::var("LEASEHOLD_REQUIRE").unwrap_or_default());
        let mut arguments = Arguments::from_args();
        // In real time a case mostly sleeps.
        arguments.test_threads.get_or_insert(THREADS);
        let mut trials = Vec::new();
        let mut reports = Vec::new();
        for store in suite.stores {
            let name = lock(&store.report).store.clone();
            reports.push((Arc::clone(&store.report), store.jobs.len()));
            for job in store.jobs {
                let (full_name, report) =
                    (format!("{name}::{}", job.name), Arc::clone(&store.report));
                trials.push(Trial::ignorable_test(full_name, move || completion(job.run(&report))));
            }
        }
        let conclusion = libtest_mimic::run(&arguments, trials);
        let mut written = true;
        if !arguments.list {
            let directory = std::env::var_os("LEASEHOLD_REPORT").map(PathBuf::from);
            for (report, planned) in reports {
                let report = lock(&report);
                if report.cases.is_empty() {
                    continue;
                }
                print!("{report}");
                // A partial run is not a report of the store.
                if let (Some(directory), true) = (&directory, report.cases.len() == planned) {
                    if let Err(error) = report.write(directory) {
                        eprintln!("{}: the report cannot be written: {error}", report.store);
                        written = false;
                    }
                }
            }
        }
        if written { conclusion.exit_code() } else { ExitCode::FAILURE }
    }
}

/// The result for the harness, which knows neither *not applicable* nor *cannot here*.
fn completion(verdict: CaseResult) -> Result<Completion, Failed> {
    match verdict {
        Ok(Ended::Passed) => Ok(Completion::Completed),
        Ok(Ended::NotApplicable(why)) => {
            Ok(Completion::ignored_with(format!("not applicable: {why}")))
        }
        Ok(Ended::CannotHere(why)) => Ok(Completion::ignored_with(format!("cannot here: {why}"))),
        Ok(Ended::Ignored(why)) => Ok(Completion::ignored_with(why)),
        Err(failure) => Err(Failed::from(failure.to_string())),
    }
}
