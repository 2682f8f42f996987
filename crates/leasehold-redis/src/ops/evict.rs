use std::sync::{MutexGuard, PoisonError};

use leasehold_core::{
    EvictReply, EvictRequest, EvictScope, EvictTarget, Expired, FencingToken, Filter, Record,
    Result, worst,
};

use crate::argument::Argument;
use crate::connection::exchange::Request;
use crate::inner::Inner;
use crate::page::Position;
use crate::scan::{Found, STEPS};
use crate::{scripts, text};

impl Inner {
    pub(crate) async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        match request.scope() {
            EvictScope::Exactly { targets, reason } => {
                self.evict_exactly(request, targets, &text::of_evicted(reason.as_ref())).await
            }
            EvictScope::Expired(filter) => self.purge(filter, request.limit()).await,
        }
    }

    async fn evict_exactly(
        &self,
        request: &EvictRequest,
        targets: &[EvictTarget],
        note: &str,
    ) -> Result<EvictReply> {
        let named = &targets[..targets.len().min(request.limit())];
        let name = |target: &EvictTarget| self.names([&target.key]);
        let evicted =
            self.chunks(named, name, |targets| self.evict_some(targets, note), Err).await?;
        let removed = removed(named, evicted)?;
        Ok(EvictReply::new(removed, 0, named.len() < targets.len()))
    }

    async fn evict_some(
        &self,
        targets: Vec<&EvictTarget>,
        note: &str,
    ) -> Result<Vec<Result<bool>>> {
        let names = self.names(targets.iter().map(|target| &target.key))?;
        let mut arguments = vec![note.into()];
        for target in &targets {
            arguments.extend([
                id_of(target),
                u64::from(target.id.is_some()).into(),
                target.token.map_or(0, FencingToken::get).into(),
            ]);
        }
        self.reader().done(self.run(&scripts::EVICT, &names, &arguments, &acts_on(&targets)).await?)
    }

    async fn purge(&self, filter: &Filter, limit: usize) -> Result<EvictReply> {
        let filter = &filter.clone().with_expired(Expired::Only);
        let mut removed = Vec::new();
        if let Some(keys) = filter.keys() {
            let Found { records: mut over, unreadable } = self.look_up(keys).await?;
            over.retain(|record| filter.matches(record));
            let more = over.len() > limit;
            over.truncate(limit);
            let mut reply = EvictReply::new(self.purge_records(&over).await?, 0, more);
            reply.unreadable = unreadable;
            return Ok(reply);
        }
        let mut at = self.purged_to().clone();
        let mut more = true;
        let mut unreadable = Vec::new();
        for _ in 0..STEPS {
            let (here, next, found) = self.scan(at, filter).await?;
            unreadable.extend(found.unreadable);
            let mut over = found.records;
            over.retain(|record| filter.matches(record));
            let left = limit - removed.len();
            if over.len() >= left {
                over.truncate(left);
                removed.extend(self.purge_records(&over).await?);
                at = here;
                break;
            }
            removed.extend(self.purge_records(&over).await?);
            more = next.is_some();
            at = next.unwrap_or_default();
            if !more {
                break;
            }
        }
        *self.purged_to() = at;
        let mut reply = EvictReply::new(removed, 0, more);
        reply.unreadable = unreadable;
        Ok(reply)
    }

    fn purged_to(&self) -> MutexGuard<'_, Position> {
        self.purged_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn purge_records(&self, over: &[Record]) -> Result<Vec<EvictTarget>> {
        let targets: Vec<_> = over.iter().map(EvictTarget::of).collect();
        if targets.is_empty() {
            return Ok(targets);
        }
        let name = |target: &EvictTarget| self.names([&target.key]);
        let purged = self.chunks(&targets, name, |targets| self.purge_some(targets), Err).await?;
        removed(&targets, purged)
    }

    async fn purge_some(&self, targets: Vec<&EvictTarget>) -> Result<Vec<Result<bool>>> {
        let names = self.names(targets.iter().map(|target| &target.key))?;
        let arguments: Vec<_> = targets.iter().map(|target| id_of(target)).collect();
        self.reader().done(self.run(&scripts::PURGE, &names, &arguments, &acts_on(&targets)).await?)
    }
}

/// Which of `targets` are gone. One failure fails the request only if nothing was removed.
fn removed(targets: &[EvictTarget], done: Vec<Result<bool>>) -> Result<Vec<EvictTarget>> {
    let mut removed = Vec::new();
    let mut failures = Vec::new();
    for (target, done) in targets.iter().zip(done) {
        match done {
            Ok(true) => removed.push(target.clone()),
            Ok(false) => {}
            Err(error) => failures.push(error),
        }
    }
    match worst(failures) {
        Some(error) if removed.is_empty() => Err(error),
        _ => Ok(removed),
    }
}

fn id_of(target: &EvictTarget) -> Argument<'_> {
    target.id.as_ref().map_or_else(|| "".into(), Argument::from)
}

fn acts_on(targets: &[&EvictTarget]) -> Request {
    Request::acts(targets.iter().filter_map(|target| target.id.clone()).collect(), None)
}
