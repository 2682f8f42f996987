//! Gives room back that a peak has left.

use hashbrown::HashTable;

/// A map is made smaller when it has this many times as much room as it needs.
const SPARE: usize = 8;

/// Room for so many is never given back.
const LEAST: usize = 16;

#[inline]
pub(super) fn has_spare_room(used: usize, room: usize) -> bool {
    room > SPARE * used.max(LEAST)
}

/// Gives room back after a peak, so that nothing is kept for keys that nobody holds or waits for.
pub(super) fn trim<T>(map: &mut HashTable<T>, hash: impl Fn(&T) -> u64) {
    if has_spare_room(map.len(), map.capacity()) {
        map.shrink_to(2 * map.len(), hash);
    }
}
