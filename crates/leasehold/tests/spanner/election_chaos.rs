//! Candidates in processes of their own, as on the other stores.

use leasehold::store::Store as _;
use leasehold_testkit::spanner::{Emulator, Runtime};

use crate::front_end::election_chaos::{Home, alone, candidate, chaos, open};

pub(crate) fn five_candidates_on_spanner() {
    on_an_emulator("five_candidates_on_spanner", Emulator::url);
}

pub(crate) fn five_candidates_on_spindle() {
    on_an_emulator("five_candidates_on_spindle", Emulator::spindle_url);
}

fn on_an_emulator(name: &'static str, url: fn(&Emulator) -> String) {
    if candidate::is_asked_for(name) {
        return;
    }
    let _alone = alone();
    let runtime = Runtime::new().unwrap();
    let emulator = runtime.block_on(Emulator::start()).unwrap();
    let url = url(&emulator);
    runtime.block_on(async { open(&url).await.prepare().await }).unwrap();
    chaos(&url, Home::Processes(name));
}
