use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A client in PHP, with the library's statements.
pub struct Php {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A client acquired: how long after its look it wrote, and whether it changed a row, which it does not look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acquired {
    pub after: Duration,
    pub wrote: bool,
}

/// A write to the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// When, in seconds.
    pub at: f64,
    /// Whose the row was, and when it ended, in whole seconds.
    pub old: Option<(String, f64)>,
    /// Whose it is now.
    pub new: Option<String>,
}

impl Write {
    fn of([at, old_owner, old_end, new_owner]: [&str; 4]) -> Self {
        let seconds = |text: &str| text.parse::<f64>().unwrap();
        let owner = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let old = owner(old_owner).map(|old| (old, seconds(old_end)));
        Self { at: seconds(at), old, new: owner(new_owner) }
    }
}

impl Php {
    /// A client of the database that PDO knows by this name, with a clock that is so many seconds ahead.
    pub fn start(dsn: &str, user: &str, ahead: i64) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/nene/client.php");
        let started = Command::new("php")
            .args([script, dsn, user, "distributed_locks", &ahead.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut process = started.expect("there is a php, which `cargo xtask servers` installs");
        let commands = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, commands, answers }
    }

    /// The answer to a command, or the message of an exception.
    pub fn ask(&mut self, words: &[&str]) -> Result<String, String> {
        writeln!(self.commands, "{}", words.join("\t")).unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let answer = answer.strip_suffix('\n').expect("the client lives");
        match answer.strip_prefix("exception: ") {
            Some(exception) => Err(exception.to_owned()),
            None => Ok(answer.to_owned()),
        }
    }

    fn succeeds(&mut self, words: &[&str]) -> bool {
        match self.ask(words).unwrap().as_str() {
            "yes" => true,
            "no" => false,
            other => panic!("{words:?}: {other}"),
        }
    }

    /// `acquire`; on PostgreSQL with an insert that the library does not have. The client is stopped so long between its
    /// look and its write.
    pub fn acquires(
        &mut self,
        resource: &str,
        owner: &str,
        ttl: u64,
        stop: Duration,
    ) -> Result<Option<Acquired>, String> {
        let (ttl, stop) = (ttl.to_string(), stop.as_millis().to_string());
        let answer = self.ask(&["acquire-mended", resource, owner, &ttl, &stop])?;
        let words: Vec<&str> = answer.split('\t').collect();
        Ok(match words[..] {
            ["yes", after, rows] => Some(Acquired {
                after: Duration::from_millis(after.parse().unwrap()),
                wrote: rows != "0",
            }),
            ["no"] => None,
            _ => panic!("acquire: {answer}"),
        })
    }

    pub fn acquired(&mut self, resource: &str, owner: &str, ttl: u64) -> bool {
        self.acquires(resource, owner, ttl, Duration::ZERO).unwrap().is_some()
    }

    /// The second half of `acquire`, whatever has happened since the first: how many rows it changed.
    pub fn overwrites(&mut self, resource: &str, owner: &str, ttl: u64) -> Result<u64, String> {
        let rows = self.ask(&["overwrite", resource, owner, &ttl.to_string()])?;
        Ok(rows.parse().unwrap())
    }

    pub fn renews(&mut self, resource: &str, owner: &str, ttl: u64) -> bool {
        self.succeeds(&["renew", resource, owner, &ttl.to_string()])
    }

    pub fn releases(&mut self, resource: &str, owner: &str) -> bool {
        self.succeeds(&["release", resource, owner])
    }

    pub fn is_held(&mut self, resource: &str) -> bool {
        self.succeeds(&["held", resource])
    }

    /// From now on its clock stands still.
    pub fn stops_its_clock_at(&mut self, seconds: u64) {
        self.ask(&["stop", &seconds.to_string()]).unwrap();
    }

    /// From now on triggers keep every write to the table, of any client.
    pub fn watches(&mut self) {
        assert_eq!(self.ask(&["watch"]), Ok("done".to_owned()));
    }

    /// What they have kept.
    pub fn writes(&mut self) -> Vec<Write> {
        let answer = self.ask(&["writes"]).unwrap();
        let values: Vec<&str> = answer.split('\t').collect();
        values.chunks_exact(4).map(|write| Write::of(write.try_into().unwrap())).collect()
    }

    /// The owner of the row, empty without a row.
    pub fn owner(&mut self, resource: &str) -> String {
        self.ask(&["owner", resource]).unwrap()
    }

    /// Adds a row that ends so many seconds after now, or before.
    pub fn crafts(&mut self, resource: &str, owner: &str, ends: i64) {
        self.ask(&["craft", resource, owner, &ends.to_string()]).unwrap();
    }
}

impl Drop for Php {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
