//! The Lua scripts, one for each operation.

use std::sync::LazyLock;

/// A script as the server stores it.
#[derive(Debug)]
pub(crate) struct Script {
    /// The whole text.
    pub(crate) text: String,
    /// Its SHA-1 in hexadecimal, by which the server finds it.
    pub(crate) hash: String,
    /// It reads or writes the mark of all tokens.
    pub(crate) names_mark: bool,
}

impl Script {
    /// The length of a call without keys and arguments: the command, the hash and the number of keys.
    pub(crate) const CALL: usize = 64;

    /// The first line makes a server that cannot write, such as a replica, refuse the whole script.
    fn new(flags: &str, (fast, own): (&str, &str), names_mark: bool) -> Self {
        let common = include_str!("scripts/common.lua");
        let text = format!("#!lua{flags}\n{fast}{common}{own}");
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash, names_mark }
    }
}

macro_rules! scripts {
    ($($name:ident: $flags:expr, $text:expr, $names_mark:expr;)*) => {$(
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($flags, $text, $names_mark));
    )*};
}

/// The texts of a script: for the usual case, before anything else is defined, and for every case.
macro_rules! texts {
    ($own:literal) => {
        ("", include_str!(concat!("scripts/", $own, ".lua")))
    };
    ($fast:literal, $own:literal) => {
        (
            include_str!(concat!("scripts/", $fast, ".lua")),
            include_str!(concat!("scripts/", $own, ".lua")),
        )
    };
}

scripts! {
    ACQUIRE: "", texts!("acquire.fast", "acquire"), true;
    RENEW: EVEN_WITHOUT_MEMORY, texts!("renew.fast", "renew"), false;
    RAISE: EVEN_WITHOUT_MEMORY, texts!("renew.fast", "renew"), true;
    RELEASE: EVEN_WITHOUT_MEMORY, texts!("release.fast", "release"), false;
    LIST: EVEN_WITHOUT_MEMORY, texts!("list"), false;
    SCAN: EVEN_WITHOUT_MEMORY, texts!("scan"), false;
    SCAN_NODE: OVER_SLOTS, texts!("scan"), false;
    EVICT: EVEN_WITHOUT_MEMORY, texts!("evict"), false;
    PURGE: EVEN_WITHOUT_MEMORY, texts!("purge"), false;
    CHECK: READ_ONLY, texts!("check"), false;
}

/// Beyond `maxmemory` acquires fail; renewals and releases succeed.
const EVEN_WITHOUT_MEMORY: &str = " flags=allow-oom";
/// Also where nothing can be written.
const READ_ONLY: &str = " flags=no-writes";
/// In a cluster: over all slots of one node.
const OVER_SLOTS: &str = " flags=allow-oom,allow-cross-slot-keys";
