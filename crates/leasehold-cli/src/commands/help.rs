//! `leasehold completions` and `leasehold man`.

use std::io::{self, Write as _};

use clap::CommandFactory as _;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::exit::Exit;
use crate::failure::Failure;

/// Prints a completion script.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    print(&script)
}

/// Prints the manual page, or writes that of each command.
pub(crate) fn man(args: &ManArgs) -> Result<Exit, Failure> {
    let written = match &args.dir {
        Some(directory) => clap_mangen::generate_to(Cli::command(), directory),
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command())
                .render(&mut page)
                .map_err(|error| Failure::unexpected(error.to_string()))?;
            return print(&page);
        }
    };
    written.map_err(|error| Failure::of_system("the pages cannot be written", &error))?;
    Ok(Exit::SUCCESS)
}

fn print(bytes: &[u8]) -> Result<Exit, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::of_system("stdout cannot be written", &error))
        }
        _ => Ok(Exit::SUCCESS),
    }
}
