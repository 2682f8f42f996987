use super::sync::AtomicU64;

/// When a store next forgets what it told of ended leases.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    pub(super) due: AtomicU64,
    /// How many shards were looked through.
    pub(super) looked_at: AtomicU64,
}
