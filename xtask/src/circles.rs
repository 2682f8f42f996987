//! Finds circles of imports in a crate: among the files and folders of each of its folders. A folder is one thing there,
//! with the file of its name: what is inside it may import each other, but is looked at for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree, Visibility};

use crate::shell::{Outcome, root};

/// A module: the names that lead to it from the root of its crate.
type Module = Vec<String>;

/// Fails if files or folders of a crate import each other.
pub(crate) fn check() -> Outcome {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        let folder = entry?.path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !folder.join("src").is_dir() {
            continue;
        }
        for circle in of_crate(&folder.join("src"))? {
            let modules: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            found.push(format!("{name}: {}", modules.join(", ")));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(format!("files or folders import each other in a circle: {}", found.join("; ")).into())
}

/// The circles of a crate.
fn of_crate(src: &Path) -> Outcome<Vec<BTreeSet<Module>>> {
    let mut files = BTreeMap::new();
    read(src, &Vec::new(), &mut files)?;
    Ok(circles_of(&imports(&files)))
}

/// Reads every file in a folder, and the paths that it names.
fn read(folder: &Path, below: &Module, files: &mut BTreeMap<Module, Paths>) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut module = below.clone();
        if path.is_dir() {
            module.push(name);
            read(&path, &module, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            if !["lib", "main", "mod"].contains(&name.as_str()) {
                module.push(name);
            }
            files.insert(module, Paths::of(&path)?);
        }
    }
    Ok(())
}

/// The paths that a file names, outside its tests.
#[derive(Debug, Default)]
struct Paths {
    /// Imports, by the name that they have in the file.
    used: Vec<Module>,
    /// Paths that are used without an import.
    named: Vec<Module>,
}

impl Paths {
    fn of(file: &PathBuf) -> Outcome<Self> {
        let text = fs::read_to_string(file)?;
        Self::in_text(&text).map_err(|error| format!("{}: {error}", file.display()).into())
    }

    fn in_text(text: &str) -> syn::Result<Self> {
        let mut paths = Self::default();
        paths.visit_file(&syn::parse_file(text)?);
        Ok(paths)
    }

    fn add(&mut self, tree: &UseTree, before: &Module) {
        let mut path = before.clone();
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.add(&part.tree, &path);
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                self.used.push(path);
            }
            UseTree::Rename(name) => {
                path.push(name.ident.to_string());
                self.used.push(path);
            }
            UseTree::Glob(_) => self.used.push(path),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.add(item, before)),
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_for_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add(&item.tree, &Vec::new());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, item: &'ast Macro) {
        let text = item.tokens.to_string().replace(":: ", "::").replace(" ::", "::");
        let words = text.split(|c: char| c != ':' && c != '_' && !c.is_alphanumeric());
        let paths = words.filter(|word| word.contains("::"));
        self.named.extend(paths.map(|path| path.split("::").map(str::to_owned).collect()));
        visit::visit_macro(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.named.push(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.meta.require_list().is_ok_and(|list| {
            let told = list.tokens.to_string();
            told == "test" || told.starts_with("all (test") || told == "doctest"
        })
}

/// For each file, the files that it imports from.
fn imports(files: &BTreeMap<Module, Paths>) -> BTreeMap<Module, BTreeSet<Module>> {
    let of_file = |(module, paths): (&Module, &Paths)| {
        let all = paths.used.iter().chain(&paths.named);
        let named = all.filter_map(|path| absolute(files, module, path));
        let mut named: BTreeSet<_> = named.filter_map(|path| home(files, path)).collect();
        named.remove(module);
        (module.clone(), named)
    };
    files.iter().map(of_file).collect()
}

/// The path from the root of the crate, if it is in the crate.
fn absolute(files: &BTreeMap<Module, Paths>, from: &Module, path: &Module) -> Option<Module> {
    let (first, rest) = path.split_first()?;
    let mut whole = from.clone();
    match first.as_str() {
        "crate" => whole.clear(),
        "self" => {}
        "super" => {
            whole.pop();
            if rest.first().is_some_and(|next| next == "super") {
                return absolute(files, &whole, &rest.to_vec());
            }
        }
        _ => {
            whole.push(first.clone());
            if !files.contains_key(&whole) {
                return None;
            }
        }
    }
    whole.extend_from_slice(rest);
    Some(whole)
}

/// The file in which a path ends, through files that re-export it.
fn home(files: &BTreeMap<Module, Paths>, mut path: Module) -> Option<Module> {
    // A chain of re-exports is short.
    for _ in 0..8 {
        let known = (0..=path.len()).rev().find(|length| files.contains_key(&path[..*length]))?;
        let (module, rest) = (path[..known].to_vec(), &path[known..]);
        let Some((name, rest)) = rest.split_first() else { return Some(module) };
        let mut used = files[&module].used.iter();
        let from = used.find(|used| used.last() == Some(name));
        match from.and_then(|used| absolute(files, &module, used)) {
            Some(next) if next != path => path = [&next, rest].concat(),
            _ => return Some(module),
        }
    }
    None
}

/// The circles in each folder.
fn circles_of(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let needed: BTreeSet<_> = imports.values().flatten().collect();
    let mut folders: BTreeMap<&[String], BTreeMap<Module, BTreeSet<Module>>> = BTreeMap::new();
    // From what only implements, nothing is imported: it may use anything.
    for (from, to) in imports.iter().filter(|(from, _)| needed.contains(from)) {
        for to in to {
            let common = from.iter().zip(to).take_while(|(from, to)| from == to).count();
            // Neither is the file of the folder itself.
            if common < from.len().min(to.len()) {
                let folder = folders.entry(&from[..common]).or_default();
                folder.entry(to[..=common].to_vec()).or_default();
                let within = folder.entry(from[..=common].to_vec()).or_default();
                within.insert(to[..=common].to_vec());
            }
        }
    }
    folders.values().flat_map(circles).collect()
}

/// The largest sets in which each module leads to each other one.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<BTreeSet<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> = imports
        .keys()
        .map(|start| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
            while let Some(module) = next.pop() {
                let further = imports.get(module).into_iter().flatten();
                next.extend(further.filter(|module| seen.insert(*module)));
            }
            (start, seen)
        })
        .collect();
    let circle = |module: &&Module| -> BTreeSet<Module> {
        let back = |other: &&&Module| reached[**other].contains(*module);
        reached[*module].iter().filter(back).map(|other| (*other).clone()).collect()
    };
    let all: BTreeSet<_> = imports.keys().map(|module| circle(&module)).collect();
    all.into_iter().filter(|circle| circle.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, &str)]) -> Vec<String> {
        let module = |name: &str| name.split_terminator("::").map(str::to_owned).collect();
        let files = texts
            .iter()
            .map(|(name, text)| (module(name), Paths::in_text(text).unwrap()))
            .collect();
        let shown = |circle: &BTreeSet<Module>| -> Vec<_> {
            circle.iter().map(|module| module.join("::")).collect()
        };
        circles_of(&imports(&files)).iter().map(|circle| shown(circle).join(" ")).collect()
    }

    #[test]
    fn files_that_import_each_other_are_found_through_re_exports_inline_paths_and_macros() {
        let root = ("", "mod a; mod b; mod c; pub use b::B;");
        let a = ("a", "pub struct A(crate::B);");
        let b = ("b", "pub(crate) struct B; fn f() { println!(\"{}\", crate::c::g(1)) }");
        assert_eq!(found(&[root, a, b, ("c", "use crate::a::A;")]), ["a b c"]);
        assert!(found(&[root, a, b, ("c", "")]).is_empty());
        let b = ("b", "pub(super) use crate::a::A;");
        assert_eq!(found(&[root, a, b]), ["a b"]);
    }

    #[test]
    fn folders_that_import_each_other_are_found_though_no_files_do() {
        let files = |b| {
            [
                ("", "mod a; mod b; use a::high::High;"),
                ("a", "mod low; mod high;"),
                ("a::low", "pub struct Low;"),
                ("a::high", "use crate::b::B; pub struct High;"),
                ("b", b),
            ]
        };
        assert_eq!(found(&files("use crate::a::low::Low;")), ["a b"]);
        assert!(found(&files("")).is_empty());
        // Inside a folder.
        let (low, high) = (("a::low", "use super::high::H;"), ("a::high", "use super::low::L;"));
        assert_eq!(
            found(&[("", "mod a;"), ("a", "mod low; mod high;"), low, high]),
            ["a::high a::low"]
        );
    }

    #[test]
    fn a_folder_is_one_with_its_file_and_what_only_implements_may_use_anything() {
        let (a, b) = (("a", "mod c; use c::C;"), ("b", "use crate::a::A;"));
        let c = ("a::c", "use super::A; use crate::b::B;");
        assert_eq!(found(&[("", ""), a, b, c]), ["a b"]);
        assert!(found(&[("", ""), ("a", "mod c;"), b, c]).is_empty());
    }

    #[test]
    fn no_crate_has_a_circle() {
        check().unwrap();
    }

    #[test]
    fn tests_may_import_anything() {
        let b = ("b", "use crate::a::A; #[cfg(test)] mod tests { use crate::c::C; }");
        let texts = [("", ""), ("a", ""), b, ("c", "use crate::b::B;")];
        assert!(found(&texts).is_empty());
    }
}
