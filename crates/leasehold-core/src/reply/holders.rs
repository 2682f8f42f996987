//! Finds the holders of a key in what each node listed.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::tally::{Tally, Verdict, majority};
use crate::{Effect, Error, ListReply, NodeReport, Record, Result, Unreadable};

impl ListReply {
    /// Appends the next page. A node that failed on one page counts as failed.
    pub fn append(&mut self, next: ListReply) {
        self.records.extend(next.records);
        self.unreadable.extend(next.unreadable);
        self.next = next.next;
        if !next.nodes.is_of_quorum() {
            return;
        }
        let mut nodes = self.nodes.to_vec();
        for node in next.nodes.iter() {
            match nodes.iter_mut().find(|known| known.node == node.node) {
                Some(known) => known.error = known.error.take().or(node.error.clone()),
                None => nodes.push(node.clone()),
            }
        }
        self.nodes = nodes.into_iter().collect();
    }

    /// The live holders among all records, one record for each lease and key.
    ///
    /// On a quorum, a lease holds a key if it is live on a majority of the nodes. Its remaining term is the
    /// longest that a majority has; its token is absent unless a majority has the same one.
    ///
    /// # Errors
    /// That of what is [unreadable](ListReply::unreadable), which may hold a key. On a quorum, `Unavailable` if too many
    /// nodes failed, or have something unreadable, to decide whether a lease has a majority.
    pub fn holders(&self) -> Result<Vec<Record>> {
        let live = self.records.iter().filter(|record| record.is_live());
        let nodes = self.nodes.len();
        if !self.nodes.is_of_quorum() {
            return match self.unreadable.first() {
                Some(unreadable) => Err(unreadable.error.clone()),
                None => Ok(live.cloned().collect()),
            };
        }
        let cannot_read = |node: &NodeReport| {
            let of_node = |one: &Unreadable| one.node.as_deref() == Some(node.node.as_str());
            self.unreadable.iter().any(of_node)
        };
        let failed: Vec<_> =
            self.nodes.iter().filter(|node| node.error.is_some() || cannot_read(node)).collect();
        // What a node listed before it failed is incomplete.
        let shown = |record: &&Record| {
            !failed.iter().any(|node| record.node.as_deref() == Some(node.node.as_str()))
        };
        let verdict = |yes| {
            let failed = failed.len();
            Tally { nodes, yes, no: nodes.saturating_sub(failed + yes), failed }.verdict()
        };
        let mut leases: BTreeMap<_, BTreeMap<_, &Record>> = BTreeMap::new();
        let mut unnamed = BTreeMap::<_, u32>::new();
        for record in live.filter(shown) {
            // Two holders without an id on one node are two; the n-th on each node count as one lease.
            let n = match record.id {
                Some(_) => 0,
                None => {
                    let n = unnamed.entry((&record.key, record.mode, &record.node)).or_default();
                    *n += 1;
                    *n
                }
            };
            let lease = leases.entry((&record.key, record.id.as_ref(), n)).or_default();
            // A node that lists a record twice, on two pages, has it once.
            lease.insert(record.node.as_deref(), record);
        }
        // A lease that no node listed may be on every node that failed.
        let counts = leases.values().map(BTreeMap::len).chain([0]);
        if counts.into_iter().any(|count| verdict(count) == Verdict::Undecided) {
            let answered = nodes - failed.len();
            return Err(Error::unavailable(
                Effect::NotApplied,
                format!(
                    "{answered} of {nodes} nodes answered, too few to find the holder of the key"
                ),
            )
            .with_nodes(self.nodes.clone()));
        }
        let held = leases.into_values().filter(|records| verdict(records.len()) == Verdict::Yes);
        Ok(held.map(|records| merged(records.into_values().collect(), majority(nodes))).collect())
    }
}

/// Merges what the nodes listed of one lease.
fn merged(mut records: Vec<&Record>, majority: usize) -> Record {
    records.sort_by_key(|record| Reverse(record.remaining()));
    let mut one = records[majority - 1].clone();
    let agree = |token| records.iter().filter(|record| record.token == token).count() >= majority;
    one.token = records.iter().map(|record| record.token).find(|token| agree(*token)).flatten();
    one.kept = records.iter().filter(|record| !record.kept).count() < majority;
    one.age = records.iter().filter_map(|record| record.age).max();
    one.renewed = records.iter().filter_map(|record| record.renewed).min();
    one.node = None;
    one
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Cursor, ErrorKind, FencingToken, Key, LeaseId, Mode, NodeReports, RecordTerm, Remaining,
    };

    /// A page of three nodes: each lists the named leases, or failed.
    fn page(nodes: [Option<&[(&str, u64)]>; 3]) -> ListReply {
        let mut page = ListReply::new(Vec::new(), None);
        let mut reports = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            let name = format!("n{at}");
            let Some(leases) = node else {
                reports.push(NodeReport::failed(name, Error::unexpected("down")));
                continue;
            };
            for (id, secs) in *leases {
                let term = RecordTerm::Live(Remaining::For(Duration::from_secs(*secs)));
                let mut record = Record::new(Key::new("k").unwrap(), Mode::Exclusive, term);
                record.id = Some(LeaseId::foreign(id.as_bytes()).unwrap());
                record.token = FencingToken::new(*secs).ok();
                record.node = Some(name.as_str().into());
                page.records.push(record);
            }
            reports.push(NodeReport::new(name));
        }
        page.nodes = reports.into_iter().collect();
        page
    }

    fn holders(nodes: [Option<&[(&str, u64)]>; 3]) -> Result<Vec<(String, u64)>> {
        let holders = page(nodes).holders()?.into_iter();
        Ok(holders
            .map(|record| {
                let secs = record.remaining().duration().unwrap_or_default().as_secs();
                (record.id.unwrap().to_string(), secs)
            })
            .collect())
    }

    #[test]
    fn a_lease_with_a_majority_holds() {
        let a = |secs| ("a".to_owned(), secs);
        assert_eq!(holders([Some(&[("a", 9)]), Some(&[("a", 7)]), Some(&[])]).unwrap(), [a(7)]);
        assert_eq!(
            holders([Some(&[("a", 9)]), Some(&[("a", 7)]), Some(&[("a", 8)])]).unwrap(),
            [a(8)]
        );
        assert_eq!(holders([Some(&[("a", 9)]), Some(&[("a", 7)]), None]).unwrap(), [a(7)]);
        assert_eq!(holders([Some(&[("a", 9)]), Some(&[("b", 7)]), Some(&[])]).unwrap(), []);
        assert_eq!(holders([Some(&[]), Some(&[]), None]).unwrap(), []);
    }

    #[test]
    fn an_undecidable_holder_is_an_error() {
        for nodes in [
            [Some(&[("a", 9)][..]), Some(&[][..]), None],
            [Some(&[("a", 9)][..]), Some(&[("b", 9)][..]), None],
            [Some(&[("a", 9)][..]), None, None],
            [Some(&[][..]), None, None],
            [None, None, None],
        ] {
            let error = page(nodes).holders().unwrap_err();
            assert_eq!((error.kind(), error.nodes().len()), (ErrorKind::Unavailable, 3));
        }
    }

    #[test]
    fn a_token_is_shown_if_a_majority_has_it() {
        let token = |nodes| page(nodes).holders().unwrap()[0].token.map(FencingToken::get);
        assert_eq!(token([Some(&[("a", 5)]), Some(&[("a", 5)]), Some(&[("a", 9)])]), Some(5));
        assert_eq!(token([Some(&[("a", 5)]), Some(&[("a", 6)]), Some(&[("a", 7)])]), None);
    }

    #[test]
    fn on_a_single_store_every_live_record_is_a_holder() {
        let mut page = page([Some(&[("a", 9)]), Some(&[("b", 9)]), Some(&[])]);
        page.nodes = NodeReports::default();
        page.records[0].term = RecordTerm::Expired(None);
        assert_eq!(page.holders().unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_neither_held_nor_free() {
        let mut page = page([Some(&[("a", 9)]), Some(&[("a", 9)]), Some(&[])]);
        let at = |node: Option<&str>| {
            let mut unreadable = Unreadable::new("k", Error::corrupt("damaged"));
            unreadable.node = node.map(Into::into);
            unreadable
        };
        page.unreadable = vec![at(Some("n2"))];
        assert_eq!(page.holders().unwrap().len(), 1);
        page.unreadable.push(at(Some("n1")));
        assert_eq!(page.holders().unwrap_err().kind(), ErrorKind::Unavailable);
        page.nodes = NodeReports::default();
        page.unreadable = vec![at(None)];
        assert_eq!(page.holders().unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_record_that_a_node_lists_twice_counts_once() {
        let twice = [("a", 9), ("a", 9)];
        assert_eq!(holders([Some(&twice), Some(&[]), Some(&[])]).unwrap(), []);
        assert_eq!(holders([Some(&twice), Some(&twice), Some(&[])]).unwrap().len(), 1);
        let error = page([Some(&twice), Some(&[]), None]).holders().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn holders_without_an_id_are_as_many_as_a_majority_has() {
        let two = [("a", 9), ("b", 9)];
        for (nodes, expected) in [
            ([Some(&two[..]), Some(&two[..]), Some(&two[..])], 2),
            ([Some(&two[..]), Some(&two[..]), Some(&[][..])], 2),
            ([Some(&two[..]), Some(&two[..1]), Some(&two[1..])], 1),
            ([Some(&two[..]), Some(&[][..]), Some(&[][..])], 0),
        ] {
            let mut page = page(nodes);
            for record in &mut page.records {
                record.id = None;
                record.mode = Mode::Shared { max: None };
            }
            assert_eq!(page.holders().unwrap().len(), expected, "{nodes:?}");
        }
    }

    #[test]
    fn a_node_that_fails_on_a_later_page_has_failed() {
        let mut whole = page([Some(&[("a", 9)]), Some(&[("a", 9)]), Some(&[])]);
        whole.append(page([Some(&[]), None, Some(&[])]));
        assert_eq!((whole.records.len(), whole.nodes.len()), (2, 3));
        assert!(whole.nodes[1].error.is_some());
        whole.append(page([Some(&[]), Some(&[]), Some(&[])]));
        assert!(whole.nodes[1].error.is_some());
        assert_eq!(whole.holders().unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn a_merged_holder_shows_what_a_majority_has() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let lease = [("a", 9)];
        for (kept, expected) in [(0, false), (1, false), (2, true), (3, true)] {
            let mut page = page([Some(&lease), Some(&lease), Some(&lease)]);
            for (record, age) in page.records.iter_mut().zip(1..) {
                (record.age, record.renewed) = (seconds(age), seconds(age + 3));
                record.kept = age <= kept;
            }
            let holders = page.holders().unwrap();
            let [one] = &holders[..] else { panic!("{holders:?}") };
            assert_eq!((one.age, one.renewed, &one.node), (seconds(3), seconds(4), &None));
            assert_eq!(one.kept, expected, "{kept}");
        }
    }

    #[test]
    fn an_undecidable_holder_is_told_with_the_count_of_answers() {
        let error = page([Some(&[("a", 9)]), Some(&[]), None]).holders().unwrap_err();
        assert!(error.to_string().starts_with("2 of 3 nodes answered"), "{error}");
    }

    #[test]
    fn pages_of_a_single_store_make_one_list() {
        let mut list = page([Some(&[("a", 9)]), Some(&[]), Some(&[])]);
        let mut next = page([Some(&[("b", 9)]), Some(&[]), Some(&[])]);
        for page in [&mut list, &mut next] {
            page.nodes = NodeReports::default();
            page.unreadable = vec![Unreadable::new("k", Error::corrupt("damaged"))];
        }
        next.next = Some(Cursor::new(vec![1]));
        list.append(next);
        assert_eq!((list.records.len(), list.unreadable.len()), (2, 2));
        assert_eq!((list.next, list.nodes.is_of_quorum()), (Some(Cursor::new(vec![1])), false));
    }
}
