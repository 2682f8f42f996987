use leasehold_core::{Filter, ListReply, ListRequest, MAX_ENTRIES, Record, Result, Store};

use super::Keeper;
use crate::telemetry;

impl Keeper {
    /// The live holders of the keys that the filter names.
    pub(crate) async fn holders(&self, filter: Filter) -> Result<Vec<Record>> {
        self.list_whole(filter).await?.holders()
    }

    /// All pages as one.
    pub(crate) async fn list_whole(&self, filter: Filter) -> Result<ListReply> {
        let mut request = ListRequest::new(filter).with_limit(MAX_ENTRIES);
        let mut whole = self.list_page(&request).await?;
        while let Some(next) = whole.next.take() {
            request = request.with_cursor(next);
            whole.append(self.list_page(&request).await?);
        }
        Ok(whole)
    }

    pub(crate) async fn list_page(&self, request: &ListRequest) -> Result<ListReply> {
        let page = self.limited("list", self.store.list(request)).await?;
        telemetry::unreadable(self.can.name, &page.unreadable);
        Ok(page)
    }
}
