//! What a pair costs the server's processors.

use leasehold::Result;
use leasehold_testkit::server_process::ServerProcess;

use crate::measure::{float, micros, or_few, ratio};
use crate::sides::Side;

/// With so many pairs of all tasks of a side, at each of these numbers of tasks.
pub(crate) async fn run(
    server: &ServerProcess,
    pairs: usize,
    tasks: &[usize],
    sides: &[Side],
) -> Result<()> {
    let pairs = or_few(pairs, tasks.iter().copied().max().unwrap_or(1));
    println!("## Processor time of the server\n");
    println!("{pairs} pairs; the time of all processes of the server, in user and kernel mode.\n");
    println!("| tasks | | µs per pair | as a multiple of the first |");
    println!("|---|---|---|---|");
    for &tasks in tasks {
        let mut first = None;
        for side in sides {
            side.time(tasks, or_few(16, 1)).await?;
            let before = server.processor_time();
            side.time(tasks, pairs / tasks).await?;
            let used = server.processor_time() - before;
            let each = used.div_f64(float(pairs));
            let multiple = ratio(each, *first.get_or_insert(each));
            println!("| {tasks} | {} | {} | {multiple:.2} |", side.name, micros(each));
        }
    }
    println!();
    Ok(())
}
