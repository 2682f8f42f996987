use super::*;
use crate::{
    AcquireReply, Granted, Key, Mode, Note, Record, RecordTerm, RefusalReason, Refused, Remaining,
};

const S: Duration = Duration::from_secs(1);

fn report(cause: WaitCause) -> WaitReport {
    WaitReport::new(Key::new("job").unwrap(), S / 2, 3, cause)
}

#[test]
fn every_error_states_its_kind_and_its_effect() {
    let lost = |renewal| Error::lease_lost(LostReason::Expired, renewal);
    for (error, kind) in [
        (Error::invalid_input("x"), ErrorKind::InvalidInput),
        (Error::closed("x"), ErrorKind::Closed),
        (Error::unsupported("x"), ErrorKind::Unsupported),
        (Error::unavailable(Effect::NotApplied, "x"), ErrorKind::Unavailable),
        (Error::denied("x"), ErrorKind::Denied),
        (Error::incompatible("x"), ErrorKind::Incompatible),
        (Error::corrupt("x"), ErrorKind::Corrupt),
        (Error::unexpected("x"), ErrorKind::Unexpected),
        (Error::held(report(WaitCause::Held)), ErrorKind::Held),
        (Error::timed_out(report(WaitCause::Held)), ErrorKind::TimedOut),
        (lost(None), ErrorKind::Lost),
        (lost(Some(Error::unavailable(Effect::Unknown, "x"))), ErrorKind::Lost),
    ] {
        assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied));
        assert_eq!(error.is_retryable(), kind == ErrorKind::Unavailable, "{error}");
        assert_eq!(error.is_held(), kind == ErrorKind::Held, "{error}");
        assert_eq!(error.is_timed_out(), kind == ErrorKind::TimedOut, "{error}");
        assert_eq!(error.is_lost(), kind == ErrorKind::Lost, "{error}");
    }
    assert_eq!(Error::unavailable(Effect::Unknown, "x").effect(), Effect::Unknown);
    assert_eq!(Error::unexpected("x").with_effect(Effect::Unknown).effect(), Effect::Unknown);
}

#[test]
fn context_is_kept_from_the_innermost() {
    let error = Error::unavailable(Effect::Unknown, "no reply within 5s")
        .with_context("sqlite", "acquire")
        .with_context("outer", "lock");
    assert_eq!(error.to_string(), "sqlite acquire: no reply within 5s");
    assert_eq!((error.store(), error.operation()), (Some("sqlite"), Some("acquire")));
}

#[test]
fn an_error_has_what_was_added_to_it() {
    let plain = Error::unavailable(Effect::Unknown, "no reply");
    assert_eq!((plain.store(), plain.operation(), plain.retry_after()), (None, None, None));
    assert!(plain.lost_reason().is_none() && plain.wait_report().is_none());
    assert!(plain.nodes().is_empty() && plain.source().is_none());
    assert_eq!(format!("{plain:?}"), "Unavailable (effect Unknown): no reply");
    let full = plain
        .with_retry_after(S)
        .with_lost_reason(LostReason::StoreReplaced)
        .with_nodes([NodeReport::new("n1")].into_iter().collect())
        .with_source(std::io::Error::other("reset by peer"));
    assert_eq!(full.retry_after(), Some(S));
    assert_eq!(full.lost_reason(), Some(&LostReason::StoreReplaced));
    assert_eq!(full.nodes().len(), 1);
    assert_eq!(full.source().unwrap().to_string(), "reset by peer");
    assert_eq!(full.to_string(), "no reply");
    assert_eq!(format!("{full:?}"), "Unavailable (effect Unknown): no reply: reset by peer");
}

#[test]
fn a_cause_that_the_text_quotes_is_not_repeated() {
    #[derive(Debug)]
    struct Cause(&'static str, Option<Box<Cause>>);
    impl std::fmt::Display for Cause {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl StdError for Cause {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }
    let text = "the server reported: no table \"locks\" here (error 1146)";
    let told = |cause: Cause| {
        let error = Error::incompatible(text).with_source(cause);
        error.source().map(ToString::to_string)
    };
    assert_eq!(told(Cause("Server error: `ERROR 1146: no table \"locks\" here'", None)), None);
    let server = || Some(Box::new(Cause("ERROR: no table \"locks\" here", None)));
    assert_eq!(told(Cause("db error", server())), None);
    assert_eq!(told(Cause("handshake: here", None)), Some("handshake: here".to_owned()));
}

#[test]
fn a_lost_lease_states_why_and_how_its_last_renewal_failed() {
    let plain = Error::lease_lost(LostReason::MaxHold, None);
    assert_eq!(plain.to_string(), "the lease is lost: it was held for its longest allowed time");
    assert!(plain.source().is_none());
    let renewal = Error::unavailable(Effect::Unknown, "no reply").with_context("redis", "renew");
    let error = Error::lease_lost(LostReason::StoreUnreachable, Some(renewal));
    let expected = "the lease is lost: its term ended while renewals failed or were not answered; the \
                    last: redis renew: no reply";
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.lost_reason(), Some(&LostReason::StoreUnreachable));
    assert_eq!(error.cause().unwrap().to_string(), "redis renew: no reply");
    assert!(error.source().is_none(), "the text has it");
}

#[test]
fn a_wait_that_ended_has_the_effect_of_its_last_try_and_a_report() {
    let unknown = || Error::unavailable(Effect::Unknown, "no reply");
    for (cause, effect, part) in [
        (WaitCause::Held, Effect::NotApplied, "it is held"),
        (WaitCause::GrantedTooLate, Effect::NotApplied, "the grant came too late"),
        (WaitCause::Exhausted, Effect::NotApplied, "the back-off ended the wait"),
        (WaitCause::Store(unknown()), Effect::Unknown, "no reply"),
    ] {
        let error = Error::timed_out(report(cause));
        assert_eq!(error.effect(), effect);
        let text = error.to_string();
        assert!(text.starts_with("\"job\" was not free after 3 tries in 0.500 s: "), "{text}");
        assert!(text.contains(part), "{text}");
        assert_eq!(error.wait_report().unwrap().tries, 3);
    }
    let held = Error::held(WaitReport { tries: 1, ..report(WaitCause::Held) });
    assert_eq!(held.to_string(), "\"job\" was not free after 1 try in 0.500 s: it is held");
    assert_eq!(held.wait_report().unwrap().waited, S / 2);
}

#[test]
fn a_report_names_the_holder() {
    let live = RecordTerm::Live(Remaining::Never);
    let mut holder = Record::new(Key::new("job").unwrap(), Mode::Exclusive, live);
    holder.note = Note::default().with_host("db-3").unwrap();
    let text = |is_here| {
        report(WaitCause::Held).with_holder(Some(Box::new(holder.clone())), is_here).to_string()
    };
    assert!(text(false).ends_with("is held; its holder is a client without an id on db-3"));
    let here = "; its holder, of this very process, is a client without an id on db-3";
    assert!(text(true).ends_with(here), "{}", text(true));
}

#[test]
fn reports_of_nodes_are_those_of_a_quorum() {
    let none = NodeReports::default();
    assert!(!none.is_of_quorum() && none.is_empty());
    assert!(!none.of_lease(0).is_of_quorum());
    let answered = vec![NodeOutcome::Renewed, NodeOutcome::Lost];
    let nodes = [
        NodeReport::new("n1").with_leases(answered),
        NodeReport::failed("n2", Error::denied("no")),
    ];
    let reports: NodeReports = nodes.into_iter().collect();
    assert!(reports.is_of_quorum());
    assert!(NodeReports::from_iter([]).is_of_quorum());
    let of_second = reports.of_lease(1);
    let [first, second] = &of_second[..] else { panic!("{of_second:?}") };
    assert_eq!((&*first.node, &*second.node), ("n1", "n2"));
    assert!(matches!(first.leases[..], [NodeOutcome::Lost]) && first.error.is_none());
    assert_eq!(second.error.as_ref().unwrap().kind(), ErrorKind::Denied);
    assert!(second.leases.is_empty());
    assert!(format!("{reports:?}").contains("Renewed"));
    let mut granted = Granted::new(None, Remaining::Never, true);
    granted.nodes = reports.clone();
    assert_eq!(AcquireReply::Granted(granted).nodes().len(), 2);
    let mut refused = Refused::new(Key::new("k").unwrap(), RefusalReason::Busy, None);
    refused.nodes = reports;
    assert_eq!(AcquireReply::Refused(refused).nodes().len(), 2);
}
