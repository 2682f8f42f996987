//! What a pair costs the server's processors.

use leasehold::Result;
use leasehold_testkit::server_process::ServerProcess;

use crate::measure::{float, micros, ratio};
use crate::sides::Side;

/// Pairs of all tasks of a side.
const PAIRS: usize = 12_800;

/// At each of these numbers of tasks.
pub(crate) async fn run(server: &ServerProcess, tasks: &[usize], sides: &[Side]) -> Result<()> {
    println!("## Processor time of the server\n");
    println!("{PAIRS} pairs; the time of all processes of the server, in user and kernel mode.\n");
    println!("| tasks | | µs per pair | as a multiple of the first |");
    println!("|---|---|---|---|");
    for &tasks in tasks {
        let mut first = None;
        for side in sides {
            side.time(tasks, 16).await?;
            let before = server.processor_time();
            side.time(tasks, PAIRS / tasks).await?;
            let used = server.processor_time() - before;
            let each = used.div_f64(float(PAIRS));
            let multiple = ratio(each, *first.get_or_insert(each));
            println!("| {tasks} | {} | {} | {multiple:.2} |", side.name, micros(each));
        }
    }
    println!();
    Ok(())
}
