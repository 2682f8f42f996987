//! Histories written by hand: correct ones, and for each rule one that breaks it.

use leasehold_core::Claims;

use super::*;
use crate::attempt::{all_of, at_most, key};

/// Writes a history by hand.
#[derive(Default)]
struct Story(History);

const X: Mode = Mode::Exclusive;
const S: Mode = Mode::SHARED;

fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

fn granted(token: u64) -> Answer {
    Answer::Granted { token: FencingToken::new(token).ok(), fresh: true }
}

fn confirmed(token: u64) -> Answer {
    Answer::Granted { token: FencingToken::new(token).ok(), fresh: false }
}

impl Story {
    fn call(mut self, name: &str, mode: Mode, from: u64, to: u64, answer: Answer) -> Self {
        let claims: Claims = all_of(&["job"], mode);
        self.0.calls.push(Call::new(id(name), claims, from, to, answer));
        self
    }

    fn believes(mut self, name: &str, mode: Mode, from: u64, to: u64) -> Self {
        let claims: Claims = all_of(&["job"], mode);
        self.0.beliefs.push(Belief::new(id(name), claims, from, to));
        self
    }

    fn violations(&self) -> Vec<Violation> {
        check(&self.0)
    }

    fn is_fine(&self) {
        assert_eq!(self.violations(), []);
    }

    fn shows(&self, expected: Violation) {
        assert_eq!(self.violations(), [expected]);
    }
}

/// One holder after the other, with a refusal between.
fn two_in_turn() -> Story {
    Story::default()
        .call("a", X, 1, 2, granted(10))
        .believes("a", X, 3, 8)
        .call("b", X, 4, 5, Answer::Refused)
        .call("a", X, 6, 7, Answer::Held)
        .call("a", X, 9, 10, Answer::Released)
        .call("c", X, 11, 12, granted(11))
        .believes("c", X, 13, 14)
        .call("c", X, 15, 16, confirmed(11))
        .call("c", X, 17, 18, Answer::Released)
        .call("c", X, 19, 20, Answer::Ended)
}

#[test]
fn a_correct_history_has_no_violation() {
    two_in_turn().is_fine();
    Story::default()
        .call("a", S, 1, 4, granted(1))
        .call("b", at_most(2), 2, 3, granted(2))
        .believes("a", S, 5, 9)
        .believes("b", at_most(2), 5, 9)
        .call("c", at_most(2), 6, 7, Answer::Refused)
        .call("d", X, 6, 7, Answer::Refused)
        .is_fine();
}

#[test]
fn two_writers_at_once() {
    two_in_turn()
        .believes("d", X, 8, 8)
        .call("d", X, 7, 8, granted(20))
        .violations()
        .iter()
        .find(|found| **found == Violation::Overlap(key("job"), id("a"), id("d")))
        .expect("the overlap is found");
}

#[test]
fn a_writer_beside_a_reader() {
    Story::default().believes("a", S, 1, 5).believes("b", X, 5, 6).shows(Violation::Overlap(
        key("job"),
        id("a"),
        id("b"),
    ));
    Story::default().believes("a", S, 1, 5).believes("b", X, 6, 7).is_fine();
}

#[test]
fn more_readers_than_any_of_them_admits() {
    let two = at_most(2);
    let story = || Story::default().believes("a", two, 1, 9).believes("b", two, 2, 9);
    story().is_fine();
    story().believes("c", two, 9, 9).shows(Violation::TooMany(key("job"), 3));
    // A lease without a limit may have been the last.
    story().believes("c", S, 9, 9).is_fine();
}

#[test]
fn a_token_that_does_not_grow() {
    let grants = |first, second, from| {
        Story::default()
            .call("a", X, 1, 2, granted(first))
            .call("a", X, 3, 4, Answer::Released)
            .call("b", X, from, 9, granted(second))
    };
    grants(5, 6, 5).is_fine();
    let order = Violation::TokenOrder(key("job"), id("a"), id("b"));
    grants(5, 4, 5).shows(order.clone());
    grants(5, 5, 5).shows(order.clone());
    // Requested at the same time, they may come in any order, but are not equal.
    grants(5, 4, 1).is_fine();
    grants(5, 5, 1).shows(order);
}

#[test]
fn a_lease_with_two_tokens() {
    two_in_turn().call("c", X, 15, 16, confirmed(12)).shows(Violation::TokenChanged(id("c")));
}

#[test]
fn an_attempt_granted_twice() {
    Story::default()
        .call("a", X, 1, 2, granted(5))
        .call("a", X, 3, 4, granted(5))
        .shows(Violation::GrantedTwice(id("a")));
}

#[test]
fn a_lease_out_of_nothing() {
    for answer in [Answer::Held, Answer::Released, confirmed(5)] {
        let violations = Story::default().call("a", X, 1, 2, answer).violations();
        assert_eq!(violations, [Violation::Unfounded(id("a"))], "{answer:?}");
    }
    // A lease that was requested without an answer may exist.
    Story::default()
        .call("a", X, 1, 2, Answer::AcquireUnknown)
        .call("a", X, 3, 4, Answer::Released)
        .is_fine();
}

#[test]
fn a_lease_after_its_end() {
    for end in [Answer::Lost, Answer::Released, Answer::Ended] {
        let ended = || Story::default().call("a", X, 1, 2, granted(5)).call("a", X, 3, 4, end);
        ended().is_fine();
        for answer in [Answer::Held, Answer::Released, confirmed(5)] {
            let violations = ended().call("a", X, 5, 6, answer).violations();
            assert_eq!(violations, [Violation::Revived(id("a"))], "{end:?} {answer:?}");
            // At the same time, either may have come first.
            ended().call("a", X, 4, 6, answer).is_fine();
        }
    }
}

#[test]
fn a_refusal_without_a_holder() {
    let nobody = Violation::RefusedByNobody(id("z"));
    Story::default().call("z", X, 1, 2, Answer::Refused).shows(nobody.clone());
    two_in_turn().call("z", X, 21, 22, Answer::Refused).shows(nobody.clone());
    two_in_turn().call("z", X, 18, 22, Answer::Refused).is_fine();
    two_in_turn().call("z", X, 21, 22, Answer::Busy).is_fine();
    // A reader is refused because of a writer, or of as many readers as it admits.
    let reader = Story::default().call("a", S, 1, 2, granted(1));
    reader.call("z", S, 3, 4, Answer::Refused).shows(nobody.clone());
    let reader = Story::default().call("a", S, 1, 2, granted(1));
    reader.call("z", at_most(2), 3, 4, Answer::Refused).shows(nobody.clone());
    let reader = Story::default().call("a", S, 1, 2, granted(1));
    reader.call("z", at_most(1), 3, 4, Answer::Refused).is_fine();
}

#[test]
fn a_limit_of_the_store_counts_for_every_reader() {
    let readers = || {
        Story::default()
            .call("a", S, 1, 2, granted(1))
            .believes("a", S, 2, 9)
            .call("b", S, 3, 4, granted(2))
            .believes("b", S, 4, 9)
            .call("c", S, 5, 6, Answer::Refused)
    };
    readers().shows(Violation::RefusedByNobody(id("c")));
    let mut limited = readers();
    limited.0.max_holders = std::num::NonZeroU32::new(2);
    limited.is_fine();
    limited.0.max_holders = std::num::NonZeroU32::new(1);
    limited.shows(Violation::TooMany(crate::attempt::key("job"), 2));
}

#[test]
fn an_acquire_that_was_refused_may_have_held_until_then() {
    let two =
        || Story::default().call("a", X, 1, 3, Answer::Refused).call("b", X, 2, 4, Answer::Refused);
    assert_eq!(two().violations().len(), 2);
    let mut split = two();
    split.0.withdraws = true;
    split.is_fine();
    // One that met a busy key, too: what it had taken was gone when it looked again.
    let mut busy =
        Story::default().call("a", X, 1, 3, Answer::Busy).call("b", X, 2, 4, Answer::Refused);
    assert_eq!(busy.violations().len(), 1);
    busy.0.withdraws = true;
    busy.is_fine();
    // Once it is answered, a refused acquire holds nothing.
    let mut late = two().call("z", X, 5, 6, Answer::Refused);
    late.0.withdraws = true;
    late.shows(Violation::RefusedByNobody(id("z")));
}

#[test]
fn a_request_without_an_answer_may_or_may_not_have_acted() {
    // An acquire: it may hold from then on, even after a release that found nothing.
    let unknown = || {
        Story::default().call("a", X, 1, 2, Answer::AcquireUnknown).call(
            "a",
            X,
            3,
            4,
            Answer::Ended,
        )
    };
    unknown().call("b", X, 9, 10, Answer::Refused).is_fine();
    unknown().call("b", X, 9, 10, granted(1)).is_fine();
    unknown().call("a", X, 9, 10, granted(1)).is_fine();
    // Before it was sent it cannot.
    Story::default()
        .call("b", X, 1, 2, Answer::Refused)
        .call("a", X, 3, 4, Answer::AcquireUnknown)
        .shows(Violation::RefusedByNobody(id("b")));
    // A release: the lease may live on.
    Story::default()
        .call("a", X, 1, 2, granted(1))
        .call("a", X, 3, 4, Answer::Unknown)
        .call("b", X, 5, 6, Answer::Refused)
        .call("a", X, 7, 8, Answer::Released)
        .is_fine();
}
