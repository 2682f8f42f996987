use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::machine::{Rights, apt_get_words, make_programs};
use super::*;

const SERVER: Programs = Programs {
    binaries: &["mydbd", "mydb-init"],
    places: &[],
    source: Source::Packages(&["mydb"]),
    probe: "-V",
};

/// A machine on which installing puts programs on `PATH`, or fails.
#[derive(Debug, Default)]
struct Fake {
    programs: Vec<&'static str>,
    broken: Vec<&'static str>,
    package: Option<Vec<&'static str>>,
    /// The program in a wheel.
    wheel: Option<&'static str>,
    target: PathBuf,
    links: Vec<(&'static str, PathBuf)>,
}

impl Host for Fake {
    fn on_path(&self, program: &str) -> Option<PathBuf> {
        let link = self.links.iter().find(|(name, _)| *name == program);
        link.map(|(_, file)| file.clone())
            .or_else(|| self.programs.contains(&program).then(|| Path::new("/bin").join(program)))
    }

    fn probe(&self, program: &Path, argument: &str) -> Result<(), String> {
        assert_eq!(argument, "-V");
        match self.broken.iter().find(|broken| program.ends_with(broken)) {
            None => Ok(()),
            Some(_) => Err("exit code 1".to_owned()),
        }
    }

    fn install_packages(&mut self, packages: &[&str]) -> Result<(), String> {
        let programs = self.package.take().ok_or("there is no apt-get")?;
        self.programs.extend(programs);
        // The library that is missing there.
        if packages.contains(&"libmydb") {
            self.broken.clear();
        }
        Ok(())
    }

    fn install_backports(&mut self, packages: &[&str]) -> Result<(), String> {
        Err(format!("the backports have no {packages:?}"))
    }

    fn unpack_wheel(&mut self, name: &str) -> Result<(), String> {
        let program = self.wheel.take().ok_or("there is no pip")?;
        put_program(&self.target.join("wheels").join(name).join(program));
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
    assert_eq!(SERVER.provide(&mut machine), Provision::Found(vec!["/bin".into()]));
}

#[test]
fn missing_binaries_are_installed() {
    let package = Some(vec!["mydbd", "mydb-init"]);
    let mut machine = Fake { programs: vec!["mydbd"], package, ..Fake::default() };
    let installed = Provision::Installed(SERVER.source, vec!["/bin".into()]);
    assert_eq!(SERVER.provide(&mut machine), installed);
}

#[test]
fn an_unavailable_server_is_missing_and_reports_why() {
    let mut machine = Fake { programs: vec!["mydbd"], ..Fake::default() };
    let why = "there is no mydb-init, and there is no apt-get";
    assert_eq!(SERVER.provide(&mut machine), missing(why));

    machine.package = Some(vec!["other"]);
    let why = "there is no mydb-init, although mydb was installed";
    assert_eq!(SERVER.provide(&mut machine), missing(why));

    machine.programs.push("mydb-init");
    machine.broken.push("mydb-init");
    let why = "mydb-init does not start (exit code 1), and there is no apt-get";
    assert_eq!(SERVER.provide(&mut machine), missing(why));
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
    let server = Programs {
        binaries: &["mydbd"],
        places: &[Whereabouts::Beside { program: "tool", folder: "emulator" }],
        source: Source::Elsewhere("install the tool"),
        probe: "-V",
    };
    let mut machine = Fake { links: vec![("tool", link)], ..Fake::default() };
    let emulator = fs::canonicalize(folder.path()).unwrap().join("sdk/bin/emulator");
    assert_eq!(server.provide(&mut machine), Provision::Found(vec![emulator]));
    let why = "there is no mydbd, and it cannot be installed automatically: install the tool";
    assert_eq!(server.provide(&mut Fake::default()), missing(why));
}

const WHEEL: Programs = Programs {
    binaries: &["mydbd"],
    places: &[Whereabouts::Folder("/nowhere")],
    source: Source::Wheel { name: "mydb==1.0", folder: "mydb/bin", packages: &[] },
    probe: "-V",
};

/// As [`WHEEL`], with what is not in it.
const WHEEL_AND_PACKAGES: Programs = Programs {
    binaries: &["mydbd", "mydb-time"],
    source: Source::Wheel {
        name: "mydb==1.0",
        folder: "mydb/bin",
        packages: &["libmydb", "mydb-time"],
    },
    ..WHEEL
};

#[test]
fn a_server_in_a_wheel_is_found_where_that_is_unpacked() {
    let target = tempfile::tempdir().unwrap();
    let mut machine = Fake { target: target.path().to_path_buf(), ..Fake::default() };
    assert_eq!(WHEEL.provide(&mut machine), missing("there is no mydbd, and there is no pip"));
    machine.wheel = Some("mydb/bin/mydbd");
    let bin = target.path().join("wheels/mydb==1.0/mydb/bin");
    let installed = Provision::Installed(WHEEL.source, vec![bin.clone()]);
    assert_eq!(WHEEL.provide(&mut machine), installed);
    assert_eq!(installed.folders(), [bin]);
    let found = Provision::Found(installed.folders().to_vec());
    assert_eq!(WHEEL.provide(&mut machine), found);
}

#[test]
fn a_wheel_comes_with_the_packages_that_it_needs() {
    let target = tempfile::tempdir().unwrap();
    let mut machine = Fake {
        broken: vec!["mydbd"],
        package: Some(vec!["mydb-time"]),
        wheel: Some("mydb/bin/mydbd"),
        target: target.path().to_path_buf(),
        ..Fake::default()
    };
    let folders = vec![target.path().join("wheels/mydb==1.0/mydb/bin"), "/bin".into()];
    let installed = Provision::Installed(WHEEL_AND_PACKAGES.source, folders);
    assert_eq!(WHEEL_AND_PACKAGES.provide(&mut machine), installed);
    assert_eq!(installed.to_string(), "installed: mydb==1.0, libmydb, mydb-time");
}

#[test]
fn a_wheel_whose_packages_cannot_be_installed_does_if_its_programs_start() {
    let target = tempfile::tempdir().unwrap();
    let mut machine = Fake {
        wheel: Some("mydb/bin/mydbd"),
        target: target.path().to_path_buf(),
        ..Fake::default()
    };
    let why = "there is no mydb-time, and there is no apt-get";
    assert_eq!(WHEEL_AND_PACKAGES.provide(&mut machine), missing(why));
    machine.wheel = Some("mydb/bin/mydbd");
    machine.programs = vec!["mydb-time"];
    fs::remove_dir_all(target.path().join("wheels")).unwrap();
    let provided = WHEEL_AND_PACKAGES.provide(&mut machine);
    assert!(matches!(provided, Provision::Installed(..)), "{provided}");
}

#[test]
fn the_programs_of_a_wheel_are_executable() {
    let folder = tempfile::tempdir().unwrap();
    let [bin, script, text] =
        ["db/bin/mydbd", "mydb.data/scripts/mydb", "db/note"].map(|file| folder.path().join(file));
    for file in [&bin, &script, &text] {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    make_programs(folder.path()).unwrap();
    assert!(is_program(&bin) && is_program(&script) && !is_program(&text));
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
