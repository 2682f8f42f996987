//! No error shows a part of a password, also of one that is not percent-encoded.

use leasehold::{ErrorKind, Locker};

/// What has a meaning in a URL, in an option, or to some parser of them.
const SPECIAL: &str = "@/?#:&%+,=[]\\\"' \t\n\r\0";

/// URLs whose password is this text as it is, on a port where nothing listens: of each store, and of it as a node.
fn urls(password: &str) -> Vec<String> {
    let schemes = [
        ("mongodb", "/db?timeout=100ms"),
        ("mysql", "/db"),
        ("mariadb", "/db"),
        ("postgres", "/db?sslmode=disable"),
        ("postgresql", "/db?sslmode=disable"),
        ("redis", "/0"),
        ("rediss", "/0"),
        ("redis+cluster", ""),
        ("redis+sentinel", "/job"),
    ];
    let forms = |(scheme, rest)| {
        let url = format!("{scheme}://app:{password}@127.0.0.1:1{rest}");
        let node: String = url.bytes().map(|byte| format!("%{byte:02X}")).collect();
        [format!("quorum:?node={node}"), format!("quorum:?node={url}"), url]
    };
    schemes.into_iter().flat_map(forms).collect()
}

/// What somebody sees of the failure to open it.
async fn refusal(url: &str) -> (ErrorKind, String) {
    let error = Locker::connect_unchecked(url).await.expect_err("nothing listens there");
    let mut shown = format!("{error} {error:?}");
    let mut source = error.cause();
    while let Some(cause) = source {
        shown.push_str(&format!(" {cause} {cause:?}"));
        source = cause.source();
    }
    (error.kind(), shown)
}

/// Opens all URLs with this password, or if they are clear, and a connection is tried, only the `nth`, for the time that
/// takes.
async fn assert_not_shown(password: &str, nth: usize) {
    let mut urls = urls(password);
    let is_ambiguous = password.contains(['@', '/', '?', '#']);
    if !is_ambiguous {
        urls = vec![urls.swap_remove(nth % urls.len())];
    }
    for url in urls {
        let (kind, shown) = refusal(&url).await;
        assert!(!shown.contains("hunter2") && !shown.contains("secret"), "{url:?}: {shown}");
        // An `&` ends a node that is not encoded.
        let is_cut =
            password.contains('&') && url.starts_with("quorum:?node=") && url.contains("://");
        if is_ambiguous && !is_cut {
            assert_eq!(kind, ErrorKind::InvalidInput, "{url:?}: {shown}");
            assert!(shown.contains("percent-encode the password"), "{url:?}: {shown}");
        } else if !is_cut {
            assert_eq!(kind, ErrorKind::Unavailable, "{url:?}: {shown}");
        }
    }
}

#[tokio::test]
async fn no_character_of_a_password_lets_a_part_of_it_be_shown() {
    for byte in 0..=255 {
        let password = format!("hunter2{}secret", char::from(byte));
        assert_not_shown(&password, byte.into()).await;
    }
}

#[tokio::test]
async fn nor_do_two_characters_with_a_meaning() {
    for (nth, first) in SPECIAL.chars().enumerate() {
        assert_not_shown(&format!("{first}hunter2secret"), nth).await;
        assert_not_shown(&format!("hunter2secret{first}"), nth + 1).await;
        for second in ['@', '/', ':', '&', '#'] {
            assert_not_shown(&format!("hunter2{first}{second}secret"), nth + 2).await;
            assert_not_shown(&format!("hunter2{first}a{second}secret"), nth + 3).await;
        }
    }
}
