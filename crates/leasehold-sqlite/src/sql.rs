//! The statements, each in its own file, with the table prefix inserted.

/// `{prefix}` in the files: the only text that is ever put into a statement (C14: it is a validated identifier,
/// everything else is bound).
const PLACEHOLDER: &str = "{prefix}";

/// `PRAGMA user_version` of a file with the tables of these statements.
pub(crate) const VERSION: i32 = 2;

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of the store, by the name of its file.
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(crate) $name: String,)*
        }

        impl Sql {
            pub(crate) fn new(prefix: &str) -> Self {
                Self {
                    $($name: include_str!(concat!("sql/", stringify!($name), ".sql"))
                        .replace(PLACEHOLDER, prefix),)*
                }
            }
        }
    };
}

statements! {
    schema,
    objects,
    too_high,
    upgrade,
    epoch,
    boot,
    boot_in_use,
    end_terms,
    add_boot,
    mark,
    holders,
    page,
    seen,
    expired,
    save_mark,
    save_holder,
    delete_holder,
    forget,
    tidy,
    older_leases,
    outgrow,
    leave,
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn plan(statement: &str, parameters: usize) -> String {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&Sql::new("leasehold_").schema).unwrap();
        let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        let steps = plan.query_map(rusqlite::params_from_iter(vec![0; parameters]), |row| {
            row.get::<_, String>(3)
        });
        steps.unwrap().collect::<Result<Vec<_>, _>>().unwrap().join("\n")
    }

    #[test]
    fn nothing_is_sorted_and_nothing_is_searched_without_an_index() {
        let sql = Sql::new("leasehold_");
        for (statement, parameters) in [
            (&sql.mark, 0),
            (&sql.holders, 1),
            (&sql.page, 2),
            (&sql.seen, 1),
            (&sql.expired, 4),
            (&sql.boot_in_use, 1),
            (&sql.delete_holder, 2),
            (&sql.save_mark, 1),
            (&sql.forget, 3),
        ] {
            let plan = plan(&without_comments(statement), parameters);
            assert!(plan.contains("SEARCH"), "{plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{plan}");
            let scanned = plan.lines().find(|step| step.contains("SCAN ") && *step != CONSTANT_ROW);
            assert_eq!(scanned, None, "{plan}");
        }
    }

    const CONSTANT_ROW: &str = "SCAN CONSTANT ROW";

    fn without_comments(statement: &str) -> String {
        let lines = statement.lines().filter(|line| !line.starts_with("--"));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_prefix_is_inserted_everywhere() {
        assert!(!format!("{:?}", Sql::new("x_")).contains(PLACEHOLDER));
        assert!(!format!("{:?}", Sql::new("x_")).contains("leasehold_mark"));
    }
}
