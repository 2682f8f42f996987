//! The documents, as far as tests run what they show.

/// What is below a heading of a page, such as `## PostgreSQL`, up to the next heading of its kind.
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let from = page.find(&format!("\n{heading}\n")).expect("the page has this heading");
    let section = &page[from + 1 + heading.len()..];
    &section[..section.find("\n## ").unwrap_or(section.len())]
}

/// The blocks of SQL below a heading of a page.
pub fn sql_of(page: &str, heading: &str) -> Vec<String> {
    let blocks = section(page, heading).split("```sql\n").skip(1);
    blocks.map(|block| block[..block.find("```").expect("the block ends")].to_owned()).collect()
}

/// How a statement begins that makes a database or a user, or gives a privilege.
const PRIVILEGES: [&str; 5] =
    ["ACL SETUSER ", "CREATE DATABASE ", "CREATE ROLE ", "CREATE USER ", "GRANT "];

/// The statements of this text that make databases and users, and give privileges: in blocks, and in the text.
pub fn privileges_of(text: &str) -> Vec<&str> {
    let lines = text.split(['\n', '`', ';']).map(str::trim);
    lines.filter(|line| PRIVILEGES.iter().any(|begin| line.starts_with(begin))).collect()
}
