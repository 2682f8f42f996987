//! Which boot the instants in the file belong to.

#[cfg(target_os = "linux")]
use std::path::Path;

#[cfg(target_os = "linux")]
use leasehold_core::Effect;
use leasehold_core::{Error, Result};
#[cfg(target_os = "linux")]
use nix::errno::Errno;
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::error;
use crate::sql::Sql;

/// One boot of the machine, as one time namespace sees it. Instants of two boots are not comparable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Boot {
    /// The kernel's random id of this boot.
    id: String,
    /// The inode of the time namespace, which shifts boot time under the same boot id.
    time_ns: i64,
    /// The shift, in nanoseconds. Kept with the inode because the kernel gives the inode of an ended namespace to
    /// the next one (seen on Linux 6.18).
    offset_ns: i64,
}

impl Boot {
    /// The boot of this process, for a database that no other process can see.
    pub(crate) fn private() -> Self {
        Self { id: "private".to_owned(), time_ns: 0, offset_ns: 0 }
    }

    /// The present boot.
    ///
    /// # Errors
    /// `Incompatible` if /proc does not report, `Unavailable` if it cannot be read for want of resources.
    #[cfg(target_os = "linux")]
    pub(crate) fn current() -> Result<Self> {
        Self::read(Path::new("/proc")).map_err(|e| match e.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => {
                Error::unavailable(Effect::NotApplied, "the boot id in /proc cannot be read now")
                    .with_source(e)
            }
            _ => Error::incompatible(
                "terms are kept in boot time, but /proc does not show the boot id and the time namespace; mount \
                 /proc in this container",
            )
            .with_source(e),
        })
    }

    /// The present boot.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn current() -> Result<Self> {
        Err(Error::unsupported(
            "terms in a file are kept in boot time, which is supported on Linux only",
        ))
    }

    #[cfg(target_os = "linux")]
    fn read(proc: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;

        let id = std::fs::read_to_string(proc.join("sys/kernel/random/boot_id"))?;
        // Kernels before 5.6 have no time namespaces.
        let time_ns = match std::fs::metadata(proc.join("self/ns/time")) {
            Ok(namespace) => i64::try_from(namespace.ino()).map_err(std::io::Error::other)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e),
        };
        let offset_ns = match std::fs::read_to_string(proc.join("self/timens_offsets")) {
            Ok(offsets) => boot_offset(&offsets)
                .ok_or_else(|| std::io::Error::other("timens_offsets has no boottime"))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => 0,
            Err(e) => return Err(e),
        };
        Ok(Self { id: id.trim().to_owned(), time_ns, offset_ns })
    }

    /// The file's current epoch, if it belongs to this boot.
    ///
    /// Another boot id means that the machine was restarted: a new epoch begins, and every finite term of the old
    /// one has ended. Another time namespace under the same boot id may exist at the same time and reads another
    /// clock. It may take the file over once no term in it depends on the other's clock; processes of the other
    /// namespace find out at their next operation.
    ///
    /// # Errors
    /// `Incompatible` if another time namespace still has records with a term.
    pub(crate) fn epoch(
        &self,
        connection: &Connection,
        sql: &Sql,
        name: &str,
    ) -> Result<Option<i64>> {
        let failed = |e| error::sqlite(name, e);
        let row = |row: &Row<'_>| {
            let boot = Self { id: row.get(1)?, time_ns: row.get(2)?, offset_ns: row.get(3)? };
            Ok((row.get::<_, i64>(0)?, boot))
        };
        let Some((epoch, last)) =
            connection.query_row(&sql.boot, [], row).optional().map_err(failed)?
        else {
            return Ok(None);
        };
        if last == *self {
            return Ok(Some(epoch));
        }
        let in_use: bool = last.id == self.id
            && connection.query_row(&sql.boot_in_use, [epoch], |row| row.get(0)).map_err(failed)?;
        if !in_use {
            return Ok(None);
        }
        Err(Error::incompatible(format!(
            "{name} holds leases of the time namespace time:[{}] (boot time {:+} ns), but this process \
             runs in time:[{}] (boot time {:+} ns), and their clocks differ; run it in that namespace, \
             or, once nothing runs there any more, remove the records that have a term: \
             {}",
            last.time_ns,
            last.offset_ns,
            self.time_ns,
            self.offset_ns,
            sql.end_terms.trim(),
        )))
    }

    /// Begins the epoch of this boot.
    pub(crate) fn register(
        &self,
        connection: &Connection,
        sql: &Sql,
        name: &str,
        wall_micros: i64,
    ) -> Result<i64> {
        connection
            .query_row(
                &sql.add_boot,
                (&self.id, self.time_ns, self.offset_ns, wall_micros),
                |row| row.get(0),
            )
            .map_err(|e| error::sqlite(name, e))
    }
}

/// The line `boottime SECONDS NANOSECONDS` of timens_offsets.
#[cfg(target_os = "linux")]
fn boot_offset(offsets: &str) -> Option<i64> {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_an_identity() {
        let boot = Boot::current().unwrap();
        assert_eq!(boot.id.len(), 36, "{boot:?}");
        assert_eq!(boot, Boot::current().unwrap());
    }

    #[test]
    fn without_proc_the_error_names_what_to_mount() {
        let empty = tempfile::tempdir().unwrap();
        assert!(Boot::read(empty.path()).is_err());
    }

    #[test]
    fn a_kernel_without_time_namespaces_counts_as_one() {
        let proc = tempfile::tempdir().unwrap();
        let random = proc.path().join("sys/kernel/random");
        std::fs::create_dir_all(&random).unwrap();
        std::fs::write(random.join("boot_id"), "b1\n").unwrap();
        let boot = Boot::read(proc.path()).unwrap();
        assert_eq!(boot, Boot { id: "b1".to_owned(), time_ns: 0, offset_ns: 0 });
    }

    #[test]
    fn offsets_are_read_with_their_sign() {
        let file = "monotonic           0         0\nboottime        1000         5\n";
        assert_eq!(boot_offset(file), Some(1_000_000_000_005));
        assert_eq!(boot_offset("boottime -1 0"), Some(-1_000_000_000));
        for bad in
            ["", "monotonic 0 0", "boottime x 0", "boottime 1", "boottime 9223372036854775807 0"]
        {
            assert_eq!(boot_offset(bad), None, "{bad}");
        }
    }
}
