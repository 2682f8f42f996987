//! The copy of the tree in which faults are planted.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::shell::{Outcome, capture, command};

/// A copy that is kept between runs, so that only changes are built again.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
}

impl Tree {
    /// Brings the copy up to date with what git tracks, or would track, in `from`.
    pub(super) fn copy(from: &Path, root: &Path) -> Outcome<Self> {
        let mut list = command(Path::new("git"), &["ls-files", "-z", "--cached", "--others"]);
        list.arg("--exclude-standard").current_dir(from);
        let listed = capture(list)?;
        let tree = Self { root: root.to_path_buf() };
        let is_new = !root.exists();
        let mut names = BTreeSet::new();
        // A tracked file that was deleted is listed too.
        for name in listed.split_terminator('\0').filter(|name| from.join(name).is_file()) {
            let sound = from.join(name);
            if tree.write_bytes(name, &fs::read(&sound)?)? && is_new {
                // The tree's build is valid for the copy too.
                let copy = File::options().append(true).open(root.join(name))?;
                copy.set_modified(sound.metadata()?.modified()?)?;
            }
            names.insert(PathBuf::from(name));
        }
        tree.remove_others(root, &names)?;
        Ok(tree)
    }

    /// One file's text.
    pub(super) fn read(&self, name: &str) -> Outcome<String> {
        Ok(fs::read_to_string(self.root.join(name)).map_err(|error| format!("{name}: {error}"))?)
    }

    /// Replaces one file's text.
    pub(super) fn write(&self, name: &str, text: &str) -> Outcome {
        self.write_bytes(name, text.as_bytes()).map(drop)
    }

    /// Returns whether it wrote. A file that already has this content keeps its time, which tells cargo that
    /// nothing changed.
    fn write_bytes(&self, name: &str, content: &[u8]) -> Outcome<bool> {
        let file = self.root.join(name);
        if fs::read(&file).is_ok_and(|present| present == content) {
            return Ok(false);
        }
        fs::create_dir_all(file.parent().unwrap_or(&self.root))?;
        fs::write(&file, content)?;
        Ok(true)
    }

    fn remove_others(&self, folder: &Path, names: &BTreeSet<PathBuf>) -> Outcome {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.remove_others(&path, names)?;
            } else if path.strip_prefix(&self.root).is_ok_and(|name| !names.contains(name)) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_follows_the_tree_and_keeps_equal_files() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("src")).unwrap();
        fs::write(from.join("src/a.rs"), "a").unwrap();
        fs::write(from.join("b.rs"), "b").unwrap();
        fs::write(from.join(".gitignore"), "/target\n").unwrap();
        fs::create_dir(from.join("target")).unwrap();
        fs::write(from.join("target/built"), "").unwrap();
        let mut init = command(Path::new("git"), &["init", "--quiet"]);
        init.current_dir(&from);
        capture(init).unwrap();

        let tree = Tree::copy(&from, &to).unwrap();
        assert_eq!(tree.read("src/a.rs").unwrap(), "a");
        assert!(!to.join("target").exists());

        tree.write("b.rs", "fault").unwrap();
        let time = || fs::metadata(to.join("src/a.rs")).unwrap().modified().unwrap();
        let before = time();
        fs::remove_file(from.join(".gitignore")).unwrap();
        fs::remove_dir_all(from.join("target")).unwrap();
        let tree = Tree::copy(&from, &to).unwrap();
        assert_eq!(tree.read("b.rs").unwrap(), "b");
        assert_eq!(time(), before);
        assert!(tree.read(".gitignore").is_err());
    }
}
