//! `docs/adding-a-store.md` shows the tested code.

const PAGE: &str = include_str!("../../../../docs/adding-a-store.md");
const CODE: &str = include_str!("../toy_store.rs");

/// The Rust blocks of the page, with a blank line between two.
fn blocks(page: &str) -> String {
    let blocks = page.split("```rust\n").skip(1).map(|rest| {
        let (block, _) = rest.split_once("```\n").expect("each block has an end");
        block
    });
    blocks.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_shows_the_whole_toy_store() {
    let shown = blocks(PAGE);
    for (line, (shown, tested)) in shown.lines().zip(CODE.lines()).enumerate() {
        assert_eq!(shown, tested, "line {} of tests/toy_store.rs", line + 1);
    }
    assert_eq!(shown.len(), CODE.len(), "the page or the file has more");
}
