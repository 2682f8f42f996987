use std::sync::Arc;
use std::time::Duration;

use leasehold_core::AnyStore;

use crate::{
    Backing, Forgets, Network, Observation, Reports, Restarted, Result, Subject, Time, WallStep,
};

/// The same subject, whose clients use `AnyStore`.
pub(crate) struct Erased<S>(Arc<S>);

impl<S> Erased<S> {
    pub(crate) fn new(subject: &Arc<S>) -> Self {
        Self(Arc::clone(subject))
    }
}

impl<S: Subject> Subject for Erased<S> {
    type Backing = ErasedBacking<S::Backing>;

    fn name(&self) -> &'static str {
        self.0.name()
    }

    async fn open(&self) -> Result<Self::Backing> {
        Ok(ErasedBacking(self.0.open().await?))
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<Self::Backing>> {
        Ok(match self.0.open_forgetting(forget_after).await? {
            Forgets::After(backing) => Forgets::After(ErasedBacking(backing)),
            Forgets::Never => Forgets::Never,
            Forgets::CannotHere(why) => Forgets::CannotHere(why),
            Forgets::Unknown => Forgets::Unknown,
        })
    }

    fn unavailable(&self) -> Option<String> {
        self.0.unavailable()
    }

    fn reports(&self) -> Reports {
        self.0.reports()
    }

    fn timeout(&self) -> Duration {
        self.0.timeout()
    }

    fn oracle_operations(&self, time: &Time) -> usize {
        self.0.oracle_operations(time)
    }
}

pub(crate) struct ErasedBacking<B>(B);

impl<B: Backing> Backing for ErasedBacking<B> {
    type Store = AnyStore;

    async fn client(&self) -> Result<AnyStore> {
        Ok(AnyStore::new(self.0.client().await?))
    }

    async fn observe(&self) -> Result<Observation> {
        self.0.observe().await
    }

    fn time(&self) -> Time {
        self.0.time()
    }

    fn removes_what_is_over(&self) -> bool {
        self.0.removes_what_is_over()
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    async fn network(&self) -> Result<Network<AnyStore>> {
        Ok(self.0.network().await?.map(AnyStore::new))
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.0.step_wall(step).await
    }

    async fn restart(&self) -> Result<Restarted> {
        self.0.restart().await
    }
}
