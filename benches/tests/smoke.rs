//! Each part of each benchmark runs: with little of everything, for a moment. The figures mean nothing.

use std::process::Command;

/// Fails, with what it printed, if a benchmark fails.
fn runs(arguments: &[&str]) {
    let program = env!("CARGO_BIN_EXE_leasehold-benches");
    let output = Command::new(program).args(arguments).output().expect("it was built");
    let [printed, error] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n{printed}\n{error}", output.status);
    assert!(printed.contains("\n|---|"), "there is no table:\n{printed}");
}

macro_rules! benchmarks {
    ($($name:ident $arguments:expr;)*) => {$(
        #[test]
        #[ignore = "cargo xtask bench --smoke runs it, with the servers that it needs"]
        fn $name() {
            runs(&$arguments);
        }
    )*};
}

benchmarks! {
    redis ["redis"];
    spanner ["spanner"];
    mongodb ["mongodb"];
    slow_disk ["slow-disk", "sqlite", "pairs"];
    sqlite ["sqlite"];
    redlock ["redlock"];
    postgres ["postgres"];
    mariadb ["mariadb"];
    local ["local"];
    command ["command"];
    embedded [];
}
