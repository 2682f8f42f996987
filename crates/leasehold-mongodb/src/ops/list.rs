use std::convert::identity;

use leasehold_core::{Cursor, Filter, Key, ListReply, ListRequest, Page, Result, Unreadable};
use leasehold_driver::Deadline;
use mongodb::bson::{Bson, Document, doc};

use crate::document::projection;
use crate::error::of_key;
use crate::inner::Inner;

/// The most documents that one command reads.
const STEP: usize = 1_000;

impl Inner {
    pub(crate) async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let until = self.commands.deadline();
        let after = request.cursor().map(Cursor::position).transpose()?;
        let mut from = after.map(|(key, _)| key.as_str().to_owned());
        let mut page = Page::new(request, request.cursor().cloned());
        loop {
            let (found, more) =
                self.documents(request.filter(), from.as_deref(), &[], until).await?;
            for document in &found {
                let name = document.get_str("resource").unwrap_or_default();
                let (key, stored) = match self.read(name, document) {
                    Ok(read) => read,
                    Err(unreadable) => {
                        page.add_unreadable(None, unreadable);
                        continue;
                    }
                };
                let records = stored.entry.holders.iter();
                let mut records: Vec<_> = records
                    .filter_map(|holder| stored.shown(holder, &key, self.skew))
                    .map(|record| (Cursor::after(&record), record))
                    .collect();
                records.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (position, record) in records {
                    if page.add(position, Some(record)).is_break() {
                        return Ok(page.followed(identity));
                    }
                }
            }
            match found.last().filter(|_| more) {
                // The last key again: the comparison of positions passes over what was shown.
                Some(last) => from = last.get_str("resource").ok().map(|name| format!("{name}\0")),
                None => return Ok(page.last()),
            }
        }
    }

    pub(crate) fn read(
        &self,
        name: &str,
        document: &Document,
    ) -> Result<(Key, crate::document::Stored), Unreadable> {
        let unreadable = |error| Unreadable::new(name, error);
        let key = Key::new(name).map_err(|e| unreadable(e.into()))?;
        match self.skew.read(document) {
            Ok(stored) => Ok((key, stored)),
            Err(error) => Err(unreadable(of_key(error, &key))),
        }
    }

    /// Some documents whose keys may match, from a name on, in the order of their names, and whether there may be more.
    pub(crate) async fn documents(
        &self,
        filter: &Filter,
        from: Option<&str>,
        more: &[Document],
        until: Deadline,
    ) -> Result<(Vec<Document>, bool)> {
        let mut stages = vec![doc! { "$match": { "$and": names(filter, from) } }];
        stages.extend(more.iter().cloned());
        stages.extend([
            doc! { "$sort": { "resource": 1 } },
            doc! { "$limit": i64::try_from(STEP).unwrap_or(i64::MAX) },
            doc! { "$project": projection() },
        ]);
        let found = self.commands.aggregate(stages, until, None).await;
        let (found, more) = found.map_err(|failure| self.commands.error(failure, until))?;
        let is_full = found.len() == STEP;
        Ok((found, more || is_full))
    }
}

/// The range of names in which a filter's keys are.
fn names(filter: &Filter, from: Option<&str>) -> Vec<Document> {
    let mut all =
        vec![doc! { "resource": { "$gte": from.unwrap_or_default(), "$type": "string" } }];
    if let Some(keys) = filter.keys() {
        let keys: Vec<_> = keys.iter().map(Key::as_str).collect();
        all.push(doc! { "resource": { "$in": keys } });
    }
    let prefix = filter.key_prefix();
    if !prefix.is_empty() {
        all.push(doc! { "resource": { "$gte": prefix } });
        if let Some(end) = after_prefix(prefix) {
            all.push(doc! { "resource": { "$lt": Bson::from(end) } });
        }
    }
    all
}

/// The least text above all that begin so.
fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}
