use std::future::Future;

use leasehold_core::{Error, ErrorKind, Health, Result, Unreadable};

use crate::Deadline;

/// A row of the table. Times are seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the format will not change")]
pub struct NeneRow {
    /// The name of the lock.
    pub resource: String,
    /// The holder's name: the id of a lease.
    pub owner: String,
    /// When the lock ends.
    pub expires_at: i64,
    /// When it was acquired.
    pub acquired_at: i64,
}

/// The hazard of a table without a trigger.
pub const OVERWRITTEN: &str = "a PHP client overwrites a row that it has read without another look: if it is stopped between the \
     two for longer than the option settle, or while the row is removed and added again, two clients hold; add a trigger that \
     refuses it, by `leasehold init` with the option guard=1";

/// The error of a user who lacks a privilege on the table, with what the server reported.
pub fn lacks_privilege(reported: impl std::fmt::Display) -> Error {
    Error::denied(format!(
        "the user lacks a privilege on the PHP library's table; \
         https://docs.rs/leasehold-driver/latest/leasehold_driver/nene/manual lists the GRANTs; the server reported: {reported}"
    ))
}

/// A row, or one that is damaged.
pub type Found = Result<NeneRow, Unreadable>;

/// What a statement has read.
#[derive(Debug, Clone, Default)]
#[expect(clippy::exhaustive_structs, reason = "a clock and rows")]
pub struct Page {
    /// The server's clock, in microseconds since 1970-01-01 UTC.
    pub now: i64,
    /// The rows.
    pub rows: Vec<Found>,
}

impl Page {
    /// Reads the rows that a server sent for a look or a page: its clock `o_now` in each, and what is in the table as
    /// `o_resource`, `o_owner`, `o_expires_at` and `o_acquired_at`; the resource is null where there is no row. `text` and
    /// `integer` read a column by its name: `None` for null, and `Corrupt` for what is no text.
    ///
    /// # Errors
    /// Those of the columns. A row that is damaged is one of the rows, and hides no other.
    pub fn of<'r, R: 'r>(
        sent: impl IntoIterator<Item = &'r R>,
        text: impl Fn(&R, &str) -> Result<Option<String>>,
        integer: impl Fn(&R, &str) -> Result<Option<i64>>,
    ) -> Result<Self> {
        let mut page = Self::default();
        for row in sent {
            let (text, integer) = (|name: &str| text(row, name), |name: &str| integer(row, name));
            page.now = integer("o_now")?.ok_or_else(|| Error::unexpected("no o_now"))?;
            let mut resource = String::new();
            match found(&mut resource, text, integer) {
                Ok(row) => page.rows.extend(row.map(Ok)),
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    page.rows.push(Err(Unreadable::new(resource, error)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }
}

/// The row that was sent, if there is one. `resource` becomes its resource, also if the rest is damaged.
fn found(
    resource: &mut String,
    text: impl Fn(&str) -> Result<Option<String>>,
    integer: impl Fn(&str) -> Result<Option<i64>>,
) -> Result<Option<NeneRow>> {
    let Some(name) = text("o_resource")? else { return Ok(None) };
    resource.clone_from(&name);
    let damaged = || Error::corrupt(format!("the row of {name:?} has no owner or no time"));
    Ok(Some(NeneRow {
        owner: text("o_owner")?.ok_or_else(damaged)?,
        expires_at: integer("o_expires_at")?.ok_or_else(damaged)?,
        acquired_at: integer("o_acquired_at")?.ok_or_else(damaged)?,
        resource: name,
    }))
}

/// A value that a statement binds (C14).
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "the table has no other")]
pub enum Value {
    /// A text.
    Text(String),
    /// An integer.
    Integer(i64),
}

/// The statements on the rows. Each binds its values once, in this order; times are seconds since 1970-01-01 UTC.
///
/// A write names the row as it was seen, and changes nothing if it has changed since.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "the clients in PHP have no others")]
pub struct Statements {
    /// Create the table, and the trigger if it is asked for.
    pub create: Vec<String>,
    /// The row of: resource.
    pub look: String,
    /// The rows after: resource; at most: number.
    pub page: String,
    /// Adds, unless there is a row of the resource: resource, owner, `expires_at`, `acquired_at`.
    pub insert: String,
    /// Sets: owner, `expires_at`, `acquired_at`; of the row: resource, owner, `expires_at`; unless the clock in
    /// microseconds, read when nobody else can change the row any more, has reached: before.
    pub replace: String,
    /// Removes the row: resource, owner, `expires_at`.
    pub delete: String,
}

/// The [`Statements`](crate::nene::Statements) of a configuration, in the folder `sql/nene` beside the file that uses this,
/// each as this function completes it.
#[macro_export]
macro_rules! nene_statements {
    ($nene:expr, $inserted:expr) => {
        $crate::nene::Statements {
            create: $nene
                .with_guard(include_str!("sql/nene/create.sql"), include_str!("sql/nene/guard.sql"))
                .into_iter()
                .map($inserted)
                .collect(),
            look: $inserted(include_str!("sql/nene/look.sql")),
            page: $inserted(include_str!("sql/nene/page.sql")),
            insert: $inserted(include_str!("sql/nene/insert.sql")),
            replace: $inserted(include_str!("sql/nene/replace.sql")),
            delete: $inserted(include_str!("sql/nene/delete.sql")),
        }
    };
}

/// A database with the table. Each statement is a transaction of its own, which ends by the deadline of its operation.
pub trait NeneRows: Send + Sync + 'static {
    /// The store, as in its URL.
    const NAME: &'static str;

    /// Runs a statement that only reads.
    fn read(
        &self,
        until: Deadline,
        statement: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<Page>> + Send;

    /// Runs a statement that writes, and returns whether it changed a row.
    fn write(
        &self,
        until: Deadline,
        statement: &str,
        values: Vec<Value>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Whether the table is there and as it must be, and what the server's settings support.
    fn check(&self) -> impl Future<Output = Result<Health>> + Send;

    /// Creates the table if it is missing, by these statements.
    fn prepare(&self, create: &[String]) -> impl Future<Output = Result<()>> + Send;

    /// As [`Store::close`](leasehold_core::Store::close); by default at once.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
