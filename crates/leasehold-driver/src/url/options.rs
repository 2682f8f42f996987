use super::server::decoded;

/// An option.
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether the name cannot be the rest of a password that has an `&` in it.
    pub(super) is_shown: bool,
}

/// The options of a query, unless one is not UTF-8 once decoded. A `+` stays one: it may be in a password.
pub(super) fn options(query: &str) -> Option<Vec<Setting>> {
    let mut settings = Vec::new();
    let mut follows_a_password = false;
    let mut rest = query;
    while !rest.is_empty() {
        // A password with an `&` in it may end at any `@` that follows.
        let may_be_secret = follows_a_password || rest.contains('@') || rest.contains("%40");
        let (option, others) = rest.split_once('&').unwrap_or((rest, ""));
        rest = others;
        if option.is_empty() {
            continue;
        }
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let (name, value) = (decoded(name)?, decoded(value)?);
        // Such as `password`, or a node's URL with that option.
        follows_a_password |= name.contains("pass") || value.contains("pass");
        let is_shown = option.contains('=') && is_option(&name) && !may_be_secret;
        settings.push(Setting { name, value, is_shown });
    }
    Some(settings)
}

/// Whether text may be the name of an option.
fn is_option(name: &str) -> bool {
    (1..=40).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}
