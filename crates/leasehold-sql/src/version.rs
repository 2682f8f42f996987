use leasehold_core::{Error, Result};

/// The version of the objects in a database that the stores use.
const VERSION: u32 = 1;

/// Returns the version of the store's objects, if this program supports it. `kind` is what contains them, `"schema"` or
/// `"database"`, and `name` its name.
///
/// # Errors
/// `Incompatible` for another version, and without one: some of the objects are missing.
pub fn admit_version(server: &str, kind: &str, name: &str, version: Option<i64>) -> Result<u32> {
    let place = format!("the {kind} {name:?} of {server}");
    let Some(version) = version else {
        return Err(Error::incompatible(format!(
            "the store's objects in {place} are not complete; run `leasehold init`, or `Locker::prepare`, as its owner"
        )));
    };
    if version == i64::from(VERSION) {
        return Ok(VERSION);
    }
    Err(Error::incompatible(if version > i64::from(VERSION) {
        format!(
            "{place} has version {version} of the store's objects, but this program supports versions up to {VERSION}; \
             update this program, or give another {kind}"
        )
    } else {
        format!(
            "{place} has version {version} of the store's objects; run `leasehold init`, or `Locker::prepare`, of this version as its owner"
        )
    }))
}
