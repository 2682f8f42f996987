//! The program in `examples/`.

#[path = "../../examples/cache.rs"]
#[allow(dead_code, reason = "its main is the example's")]
mod cache;

use cache::{Cache, both_ways};

#[test]
fn cache_transactions_with_a_key_in_common_run_one_after_the_other() {
    let cache = Cache::default();
    both_ways(&cache, 1_000);
    assert_eq!((cache.get("a"), cache.get("b")), (Some(0), Some(0)));
}
