//! Which names and operators of a statement the search path of its session decides about.

/// What precedes a parenthesis and is no function.
const SYNTAX: &[&str] = &[
    "AND",
    "ANY",
    "ARRAY",
    "AS",
    "BY",
    "COALESCE",
    "CONFLICT",
    "EXISTS",
    "EXTRACT",
    "FROM",
    "GREATEST",
    "JOIN",
    "LATERAL",
    "LEAST",
    "MATERIALIZED",
    "NOT",
    "OPERATOR",
    "OR",
    "OVER",
    "SELECT",
    "WHERE",
];

/// What compares by an operator that cannot be qualified.
const COMPARES: &[&str] = &["BETWEEN", "DISTINCT", "ILIKE", "IN", "LIKE", "NULLIF", "SIMILAR"];

/// Types whose names are syntax, not names.
const TYPES: &[&str] = &["bigint", "integer", "boolean"];

/// The names and operators of a statement that are not qualified and should be.
pub(crate) fn unqualified(statement: &str) -> Vec<String> {
    let tokens = tokens(statement);
    let at = |n: usize| tokens.get(n).map_or("", String::as_str);
    let mut found = Vec::new();
    let (mut is_operator_name, mut is_set) = (false, false);
    for (n, token) in tokens.iter().enumerate() {
        let (before, after) = (at(n.wrapping_sub(1)), at(n + 1));
        let word = token.to_ascii_uppercase();
        is_set =
            (is_set || word == "SET") && !["FROM", "WHERE", "RETURNING"].contains(&word.as_str());
        if is_operator_name {
            is_operator_name = token != ")";
        } else if word == "OPERATOR" {
            is_operator_name = true;
            found.extend((at(n + 2) != "pg_catalog.").then(|| format!("OPERATOR({}", at(n + 2))));
        } else if token == "::" {
            let is_known = TYPES.contains(&after) || after.starts_with("pg_catalog.");
            found.extend((!is_known).then(|| format!("::{after}")));
        } else if token.starts_with(is_symbol) {
            let is_star = token == "*" && (before == "(" || before.eq_ignore_ascii_case("SELECT"));
            let is_known = is_star || token == "=>" || (is_set && token == "=");
            found.extend((!is_known).then(|| token.clone()));
        } else if COMPARES.contains(&word.as_str()) || (word == "CASE" && after != "WHEN") {
            found.push(token.clone());
        } else if token.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let is_call = after == "("
                && !token.contains('.')
                && !SYNTAX.contains(&word.as_str())
                && !before.eq_ignore_ascii_case("AS");
            let is_of_server = token.starts_with("pg_") && !token.starts_with("pg_catalog.");
            found.extend((is_call || is_of_server).then(|| token.clone()));
        }
    }
    found
}

fn is_symbol(c: char) -> bool {
    "=<>+-*/|&~!@#%^".contains(c)
}

/// The words, symbols and brackets of a statement; its comments and texts are left out.
fn tokens(statement: &str) -> Vec<String> {
    let lines = statement.lines().map(|line| line.split("--").next().unwrap_or(""));
    let text = lines.collect::<Vec<_>>().join("\n");
    // What is between quotes becomes a word.
    let texts = text.split('\'').enumerate();
    let text: String = texts.map(|(n, part)| if n % 2 == 0 { part } else { " $text " }).collect();
    let mut tokens: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in text.chars() {
        let is_word = |c: char| c.is_alphanumeric() || "_.$\"{}".contains(c);
        let joins = (is_word(c) && is_word(last))
            || (is_symbol(c) && is_symbol(last))
            || (":=".contains(c) && last == ':');
        match tokens.last_mut().filter(|_| joins) {
            Some(token) => token.push(c),
            None if c.is_whitespace() => {}
            None => tokens.push(c.into()),
        }
        last = c;
    }
    tokens
}

#[test]
fn what_the_search_path_decides_about_is_found() {
    for (bad, what) in [
        ("SELECT cardinality($1)", "cardinality"),
        ("SELECT 1 WHERE key = $1", "="),
        ("SELECT key FROM {schema}.leases WHERE key IN ($1)", "IN"),
        ("SELECT 1 WHERE a IS DISTINCT FROM b", "DISTINCT"),
        ("SELECT CASE a WHEN 'b' THEN 1 END", "CASE"),
        ("SELECT $1::text", "::text"),
        ("SELECT 1 OPERATOR(public.+) 1", "OPERATOR(public."),
        ("SELECT a || 'b'", "||"),
        ("SELECT pid FROM pg_stat_replication", "pg_stat_replication"),
    ] {
        assert_eq!(unqualified(bad), [what], "{bad}");
    }
}
