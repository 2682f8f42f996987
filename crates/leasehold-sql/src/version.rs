use leasehold_core::{Error, Result};

/// The version of the objects in a database that the stores use.
const VERSION: u32 = 1;

/// Returns the version of the store's objects, if this program supports it. `kind` is what contains them, `"schema"` or
/// `"database"`, and `name` its name.
///
/// # Errors
/// `Incompatible` for another version.
pub fn admit_version(server: &str, kind: &str, name: &str, version: i64) -> Result<u32> {
    if version == i64::from(VERSION) {
        return Ok(VERSION);
    }
    let place = format!("the {kind} {name:?} of {server}");
    Err(Error::incompatible(if version > i64::from(VERSION) {
        format!(
            "{place} has version {version} of the store's objects, but this program supports versions up to {VERSION}; \
             update this program, or give another {kind}"
        )
    } else {
        format!(
            "{place} has version {version} of the store's objects; run `leasehold init` of this version, or in a program \
             `Locker::connect_unchecked` and `prepare`, as its owner"
        )
    }))
}

/// The error for a database that lacks some of the store's objects.
pub fn incomplete(server: &str, kind: &str, name: &str) -> Error {
    Error::incompatible(format!(
        "the store's objects in the {kind} {name:?} of {server} are not complete; run `leasehold init`, or in a program \
         `Locker::connect_unchecked` and `prepare`, as its owner"
    ))
}
