//! The Lua scripts, one for each operation.

use std::sync::LazyLock;

/// A script as the server stores it.
#[derive(Debug)]
pub(crate) struct Script {
    /// The whole text.
    pub(crate) text: String,
    /// Its SHA-1 in hexadecimal, by which the server finds it.
    pub(crate) hash: String,
}

impl Script {
    /// The length of a call without keys and arguments: the command, the hash and the number of keys.
    pub(crate) const CALL: usize = 64;

    /// The first line makes a server that cannot write, such as a replica, refuse the whole script.
    fn new(flags: &str, own: &str) -> Self {
        let text = format!("#!lua{flags}\n{}{own}", include_str!("scripts/common.lua"));
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

macro_rules! scripts {
    ($($name:ident: $file:literal, $flags:expr;)*) => {$(
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($flags, include_str!(concat!("scripts/", $file))));
    )*};
}

scripts! {
    ACQUIRE: "acquire.lua", "";
    RENEW: "renew.lua", EVEN_WITHOUT_MEMORY;
    RELEASE: "release.lua", EVEN_WITHOUT_MEMORY;
    LIST: "list.lua", EVEN_WITHOUT_MEMORY;
    SCAN: "scan.lua", EVEN_WITHOUT_MEMORY;
    SCAN_NODE: "scan.lua", OVER_SLOTS;
    EVICT: "evict.lua", EVEN_WITHOUT_MEMORY;
    PURGE: "purge.lua", EVEN_WITHOUT_MEMORY;
    CHECK: "check.lua", READ_ONLY;
}

/// Beyond `maxmemory` acquires fail; renewals and releases succeed.
const EVEN_WITHOUT_MEMORY: &str = " flags=allow-oom";
/// Also where nothing can be written.
const READ_ONLY: &str = " flags=no-writes";
/// In a cluster: over all slots of one node.
const OVER_SLOTS: &str = " flags=allow-oom,allow-cross-slot-keys";
