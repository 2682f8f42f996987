use std::future::Future;
use std::time::Duration;

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
         https://docs.rs/leasehold-driver/latest/leasehold_driver/nene/manual lists the least privileges, as GRANTs; the \
         server reported: {reported}"
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

/// What a look at one resource found.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "a clock and a row")]
pub struct Seen {
    /// The server's clock, in microseconds since 1970-01-01 UTC.
    pub now: i64,
    /// The row, whose resource differs from the requested one where the collation of the table does not tell the two
    /// apart.
    pub row: Option<NeneRow>,
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
            page.now = integer(row, "o_now")?.ok_or_else(|| Error::unexpected("no o_now"))?;
            page.rows.extend(found(|name| text(row, name), |name| integer(row, name))?);
        }
        Ok(page)
    }
}

fn found(
    text: impl Fn(&str) -> Result<Option<String>>,
    integer: impl Fn(&str) -> Result<Option<i64>>,
) -> Result<Option<Found>> {
    let complete = |resource: &str| {
        let damaged = || Error::corrupt(format!("the row of {resource:?} has no owner or no time"));
        Ok(NeneRow {
            resource: resource.to_owned(),
            owner: text("o_owner")?.ok_or_else(damaged)?,
            expires_at: integer("o_expires_at")?.ok_or_else(damaged)?,
            acquired_at: integer("o_acquired_at")?.ok_or_else(damaged)?,
        })
    };
    let row = match text("o_resource") {
        Ok(None) => return Ok(None),
        Ok(Some(resource)) => complete(&resource).map_err(|e| (resource, e)),
        Err(error) => Err((String::new(), error)),
    };
    match row {
        Ok(row) => Ok(Some(Ok(row))),
        Err((resource, error)) if error.kind() == ErrorKind::Corrupt => {
            Ok(Some(Err(Unreadable::new(resource, error))))
        }
        Err((_, error)) => Err(error),
    }
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

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(integer: i64) -> Self {
        Self::Integer(integer)
    }
}

/// The statements on the rows. Each binds its values once, in this order; times are seconds since 1970-01-01 UTC.
///
/// A write names the row as it was seen, and changes nothing if it has changed since.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "the clients in PHP have no others")]
pub struct Statements {
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

/// The [`Statements`](crate::nene::Statements) in the folder `sql/nene` beside the file that uses this, each as this
/// function completes it.
#[macro_export]
macro_rules! nene_statements {
    ($inserted:expr) => {
        $crate::nene::Statements {
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

    /// The time limit of an operation.
    fn timeout(&self) -> Duration;

    /// Its statements.
    fn statements(&self) -> &Statements;

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

    /// Creates the table if it is missing.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// As [`Store::close`](leasehold_core::Store::close); by default at once.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Reads the row of a resource.
    fn look(&self, until: Deadline, resource: &str) -> impl Future<Output = Result<Seen>> + Send {
        async move {
            let values = vec![resource.into()];
            let Page { now, rows } = self.read(until, &self.statements().look, values).await?;
            let row = rows.into_iter().next().transpose().map_err(|damaged| damaged.error)?;
            Ok(Seen { now, row })
        }
    }

    /// At most `most` rows after a resource, in the table's order.
    fn page(
        &self,
        until: Deadline,
        after: &str,
        most: usize,
    ) -> impl Future<Output = Result<Page>> + Send {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read(until, &self.statements().page, vec![after.into(), most.into()])
    }

    /// Adds a row, unless there is one of its resource.
    fn insert(&self, until: Deadline, row: &NeneRow) -> impl Future<Output = Result<bool>> + Send {
        let NeneRow { resource, owner, expires_at, acquired_at } = row;
        let (resource, owner) = (resource.as_str().into(), owner.as_str().into());
        let values = vec![resource, owner, (*expires_at).into(), (*acquired_at).into()];
        self.write(until, &self.statements().insert, values)
    }

    /// Puts a row in the place of one that is still as it was seen, unless the clock has reached `before` by then: when
    /// nobody else can change the row any more.
    fn replace(
        &self,
        until: Deadline,
        seen: &NeneRow,
        by: &NeneRow,
        before: Option<i64>,
    ) -> impl Future<Output = Result<bool>> + Send {
        let mut values =
            vec![by.owner.as_str().into(), by.expires_at.into(), by.acquired_at.into()];
        values.extend(as_seen(seen));
        values.push(before.unwrap_or(i64::MAX).into());
        self.write(until, &self.statements().replace, values)
    }

    /// Removes a row that is still as it was seen.
    fn delete(&self, until: Deadline, seen: &NeneRow) -> impl Future<Output = Result<bool>> + Send {
        self.write(until, &self.statements().delete, as_seen(seen).into())
    }
}

/// What identifies the state of a row.
fn as_seen(row: &NeneRow) -> [Value; 3] {
    [row.resource.as_str().into(), row.owner.as_str().into(), row.expires_at.into()]
}
