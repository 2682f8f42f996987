//! Plain tables for people.

/// Prints rows under their headings, each column as wide as its widest cell; numbers are right-aligned.
pub(crate) fn print<const N: usize>(headings: [&str; N], rows: &[[String; N]]) {
    print!("{}", lay_out(headings, rows));
}

fn lay_out<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let mut text = String::new();
    for row in std::iter::once(&headings.map(String::from)).chain(rows) {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            if is_number(cell) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["local".into(), "7".into()], ["sqlite".into(), "112".into()]];
        assert_eq!(lay_out(["store", "n"], &rows), "store   n\nlocal     7\nsqlite  112\n");
    }
}
