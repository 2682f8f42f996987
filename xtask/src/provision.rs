//! Gets a server's binaries: finds them, else installs their package, else says why not.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::shell::{capture, command, is_program, on_path, run};

/// What a store's tests start, and where it comes from.
#[derive(Debug)]
pub(crate) struct Server {
    /// The programs that the tests start, all of them needed.
    pub(crate) binaries: &'static [&'static str],
    /// Where they lie if not on `PATH`; `*` stands for the name of one folder, as in
    /// `/usr/lib/postgresql/*/bin`, and the greatest version wins.
    pub(crate) folders: &'static [&'static str],
    /// The Debian packages that have them.
    pub(crate) packages: &'static [&'static str],
    /// The argument that makes each program answer and end, which shows that it starts.
    pub(crate) probe: &'static str,
}

/// What became of the search for a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Provision {
    /// There is nothing to get, and why.
    NotNeeded(&'static str),
    /// It was there: the folder of its first program, or the variable that names a running server.
    Found(String),
    /// It was installed from these packages.
    Installed(&'static [&'static str]),
    /// It could not be had.
    Missing {
        /// What was tried, for people.
        why: String,
    },
}

impl fmt::Display for Provision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNeeded(why) => write!(f, "needs none: {why}"),
            Self::Found(at) => write!(f, "found: {at}"),
            Self::Installed(packages) => write!(f, "installed: {}", packages.join(", ")),
            Self::Missing { why } => write!(f, "missing: {why}"),
        }
    }
}

impl Server {
    /// Finds the server or installs it.
    pub(crate) fn provide(&self, store: &str, machine: &mut impl Host) -> Provision {
        let variable = format!("LEASEHOLD_TEST_{}_URL", store.to_uppercase());
        if machine.has_variable(&variable) {
            return Provision::Found(variable);
        }
        let lacking = match self.find(machine) {
            Ok(at) => return Provision::Found(at.display().to_string()),
            Err(lacking) => lacking,
        };
        if let Err(why) = machine.install(self.packages) {
            return Provision::Missing { why: format!("{lacking}, and {why}") };
        }
        match self.find(machine) {
            Ok(_) => Provision::Installed(self.packages),
            Err(lacking) => Provision::Missing {
                why: format!("{lacking}, although {} was installed", self.packages.join(", ")),
            },
        }
    }

    /// The folder of the first binary if all are there and answer; else what is lacking.
    fn find(&self, machine: &impl Host) -> Result<PathBuf, String> {
        let mut first = None;
        for binary in self.binaries {
            let file = machine
                .on_path(binary)
                .or_else(|| self.folders.iter().find_map(|folder| newest(folder, binary)))
                .ok_or_else(|| format!("there is no {binary}"))?;
            machine
                .probe(&file, self.probe)
                .map_err(|why| format!("{binary} does not start ({why})"))?;
            first.get_or_insert(file);
        }
        let folder = first.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        folder.ok_or_else(|| "no binary is named".to_owned())
    }
}

/// The binary in the folder of the greatest version that the pattern matches.
fn newest(pattern: &str, binary: &str) -> Option<PathBuf> {
    let found = match pattern.split_once('*') {
        None => vec![PathBuf::from(pattern)],
        Some((before, after)) => {
            let mut folders: Vec<_> =
                Path::new(before).read_dir().ok()?.flatten().map(|entry| entry.path()).collect();
            folders.sort_by_key(|folder| version(folder));
            let below = after.trim_start_matches('/');
            folders.iter().rev().map(|folder| folder.join(below)).collect()
        }
    };
    found.into_iter().map(|folder| folder.join(binary)).find(|file| is_program(file))
}

/// The numbers in a folder's name, so that 15 comes after 9.
fn version(folder: &Path) -> Vec<u64> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

/// What provisioning asks of the machine.
pub(crate) trait Host {
    /// True if this environment variable is set.
    fn has_variable(&self, name: &str) -> bool;
    /// The program on `PATH`.
    fn on_path(&self, program: &str) -> Option<PathBuf>;
    /// Sees whether a program starts.
    fn probe(&self, program: &Path, argument: &str) -> Result<(), String>;
    /// Installs Debian packages; the error says why that cannot be.
    fn install(&mut self, packages: &[&str]) -> Result<(), String>;
}

/// The machine we run on.
#[derive(Debug)]
pub(crate) struct Machine {
    index_is_fresh: bool,
}

impl Machine {
    pub(crate) fn here() -> Self {
        Self { index_is_fresh: false }
    }
}

impl Host for Machine {
    fn has_variable(&self, name: &str) -> bool {
        std::env::var_os(name).is_some_and(|value| !value.is_empty())
    }

    fn on_path(&self, program: &str) -> Option<PathBuf> {
        on_path(program)
    }

    fn probe(&self, program: &Path, argument: &str) -> Result<(), String> {
        capture(command(program, &[argument])).map(drop).map_err(|error| error.to_string())
    }

    fn install(&mut self, packages: &[&str]) -> Result<(), String> {
        if self.on_path("apt-get").is_none() {
            let packages = packages.join(", ");
            return Err(format!("there is no apt-get to install {packages} with"));
        }
        if !self.index_is_fresh {
            refresh_index()?;
            self.index_is_fresh = true;
        }
        apt_get(&[&["install", "--yes", "--no-install-recommends"], packages].concat())
    }
}

/// Fetches the list of what packages there are.
pub(crate) fn refresh_index() -> Result<(), String> {
    apt_get(&["update"])
}

/// By what right packages are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Root,
    Sudo,
}

impl Rights {
    fn here() -> Option<Self> {
        let says = |program: &str, arguments: &[&str]| {
            capture(command(Path::new(program), arguments)).unwrap_or_default()
        };
        if says("id", &["-u"]).trim() == "0" {
            return Some(Self::Root);
        }
        (says("sudo", &["-n", "id", "-u"]).trim() == "0").then_some(Self::Sudo)
    }
}

fn apt_get(arguments: &[&str]) -> Result<(), String> {
    let rights = Rights::here().ok_or("apt-get needs root, or sudo without a password")?;
    let words = apt_get_words(rights, arguments);
    run(command(Path::new(words[0]), &words[1..])).map_err(|error| error.to_string())
}

/// The whole command. `env` carries the variable through sudo, which clears the others.
fn apt_get_words<'a>(rights: Rights, arguments: &[&'a str]) -> Vec<&'a str> {
    let before: &[&str] = match rights {
        Rights::Root => &[],
        Rights::Sudo => &["sudo", "-n"],
    };
    [before, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"], arguments].concat()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const SERVER: Server = Server {
        binaries: &["mydbd", "mydb-init"],
        folders: &[],
        packages: &["mydb"],
        probe: "-V",
    };

    /// A machine on which installing puts programs on `PATH`, or fails.
    #[derive(Debug, Default)]
    struct Fake {
        variables: Vec<&'static str>,
        programs: Vec<&'static str>,
        broken: Vec<&'static str>,
        package: Option<Vec<&'static str>>,
    }

    impl Host for Fake {
        fn has_variable(&self, name: &str) -> bool {
            self.variables.contains(&name)
        }

        fn on_path(&self, program: &str) -> Option<PathBuf> {
            self.programs.contains(&program).then(|| Path::new("/bin").join(program))
        }

        fn probe(&self, program: &Path, argument: &str) -> Result<(), String> {
            assert_eq!(argument, "-V");
            match self.broken.iter().find(|broken| program.ends_with(broken)) {
                None => Ok(()),
                Some(_) => Err("exit code 1".to_owned()),
            }
        }

        fn install(&mut self, packages: &[&str]) -> Result<(), String> {
            assert_eq!(packages, ["mydb"]);
            let programs = self.package.take().ok_or("there is no apt-get")?;
            self.programs.extend(programs);
            Ok(())
        }
    }

    fn missing(why: &str) -> Provision {
        Provision::Missing { why: why.to_owned() }
    }

    #[test]
    fn what_is_there_is_found() {
        let mut machine = Fake { programs: vec!["mydbd", "mydb-init"], ..Fake::default() };
        assert_eq!(SERVER.provide("mydb", &mut machine), Provision::Found("/bin".into()));
    }

    #[test]
    fn a_server_of_the_user_needs_no_binary() {
        let mut machine = Fake { variables: vec!["LEASEHOLD_TEST_MYDB_URL"], ..Fake::default() };
        let found = Provision::Found("LEASEHOLD_TEST_MYDB_URL".into());
        assert_eq!(SERVER.provide("mydb", &mut machine), found);
    }

    #[test]
    fn what_is_not_there_is_installed() {
        let package = Some(vec!["mydbd", "mydb-init"]);
        let mut machine = Fake { programs: vec!["mydbd"], package, ..Fake::default() };
        assert_eq!(SERVER.provide("mydb", &mut machine), Provision::Installed(&["mydb"]));
    }

    #[test]
    fn what_cannot_be_had_is_missing_and_says_why() {
        let mut machine = Fake { programs: vec!["mydbd"], ..Fake::default() };
        let why = "there is no mydb-init, and there is no apt-get";
        assert_eq!(SERVER.provide("mydb", &mut machine), missing(why));

        machine.package = Some(vec!["other"]);
        let why = "there is no mydb-init, although mydb was installed";
        assert_eq!(SERVER.provide("mydb", &mut machine), missing(why));

        machine.programs.push("mydb-init");
        machine.broken.push("mydb-init");
        let why = "mydb-init does not start (exit code 1), and there is no apt-get";
        assert_eq!(SERVER.provide("mydb", &mut machine), missing(why));
    }

    #[test]
    fn the_newest_version_wins() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["9.6", "14", "15"] {
            fs::create_dir_all(folder.path().join(version).join("bin")).unwrap();
        }
        let pattern = format!("{}/*/bin", folder.path().display());
        assert_eq!(newest(&pattern, "initdb"), None);

        let put = |version: &str, mode| {
            let file = folder.path().join(version).join("bin/initdb");
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let (old, middle) = (put("9.6", 0o755), put("14", 0o755));
        put("15", 0o644);
        assert_eq!(newest(&pattern, "initdb"), Some(middle));
        let exact = old.parent().unwrap().display().to_string();
        assert_eq!(newest(&exact, "initdb"), Some(old));
    }

    #[test]
    fn packages_are_installed_as_root_or_through_sudo() {
        let install = ["install", "mydb"];
        assert_eq!(
            apt_get_words(Rights::Root, &install).join(" "),
            "env DEBIAN_FRONTEND=noninteractive apt-get --quiet install mydb"
        );
        assert_eq!(
            apt_get_words(Rights::Sudo, &["update"]).join(" "),
            "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get --quiet update"
        );
    }
}
