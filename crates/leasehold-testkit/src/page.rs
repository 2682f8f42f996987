//! The documents, as far as tests run what they show.

/// The blocks of SQL below a heading of a page, such as `## PostgreSQL`, up to the next heading of its kind.
pub fn sql_of(page: &str, heading: &str) -> Vec<String> {
    let from = page.find(&format!("\n{heading}\n")).expect("the page has this heading");
    let section = &page[from + 1 + heading.len()..];
    let section = &section[..section.find("\n## ").unwrap_or(section.len())];
    let blocks = section.split("```sql\n").skip(1);
    blocks.map(|block| block[..block.find("```").expect("the block ends")].to_owned()).collect()
}
