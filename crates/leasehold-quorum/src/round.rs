use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::tally::{Answer, lasting_failure};
use leasehold_core::{Effect, Error, ErrorKind, NodeOutcome, NodeReport, NodeReports, Result};
use tokio::sync::mpsc;

use crate::inner::{Inner, NAME};
use crate::node::Node;

/// One request to all nodes at once, and what they have answered.
pub(crate) struct Round<T> {
    quorum: Arc<Inner>,
    operation: &'static str,
    /// When the nodes' time ends, and how long it is.
    until: Duration,
    limit: Duration,
    pub(crate) answers: Vec<Answer<T>>,
    /// Why no more answers come, once none is awaited.
    pub(crate) missing: Option<Error>,
    replies: mpsc::UnboundedReceiver<(usize, Result<T>)>,
}

/// Reports a node's answer to the round, which may have ended. A node whose reporter is dropped answers no more.
pub(crate) struct Reporter<T> {
    node: usize,
    sender: mpsc::UnboundedSender<(usize, Result<T>)>,
}

impl<T> Reporter<T> {
    /// Replaces the node's earlier answer.
    pub(crate) fn report(&self, answer: Result<T>) {
        // After the quorum has answered nobody receives it.
        self.sender.send((self.node, answer)).unwrap_or_default();
    }
}

impl<T> Round<T> {
    /// The round, and one reporter for each node.
    pub(crate) fn new(
        quorum: &Arc<Inner>,
        operation: &'static str,
        limit: Duration,
    ) -> (Self, Vec<Reporter<T>>) {
        let (sender, replies) = mpsc::unbounded_channel();
        let nodes = 0..quorum.nodes.len();
        let reporters = nodes.map(|node| Reporter { node, sender: sender.clone() }).collect();
        let round = Self {
            quorum: Arc::clone(quorum),
            operation,
            until: quorum.clock.now().saturating_add(limit),
            limit,
            answers: quorum.nodes.iter().map(|_| None).collect(),
            missing: None,
            replies,
        };
        (round, reporters)
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    pub(crate) fn until(&self) -> Duration {
        self.until
    }

    /// Calls `decide` after every answer, and ends when it decides. When the nodes' time ends, or no more answers
    /// can come, each missing answer counts as failed, and `decide` is called a last time.
    ///
    /// # Cancel safety
    /// May be dropped; the nodes' requests continue.
    pub(crate) async fn decide<D>(
        &mut self,
        mut decide: impl FnMut(&[Answer<T>]) -> Option<D>,
    ) -> Option<D> {
        let over = self.quorum.clock.sleep_until(self.until);
        tokio::pin!(over);
        loop {
            let decided = decide(&self.answers);
            if decided.is_some() || self.missing.is_some() {
                return decided;
            }
            let missing = tokio::select! {
                biased;
                reply = self.replies.recv() => match reply {
                    Some((node, answer)) => {
                        self.answers[node] = Some(answer);
                        continue;
                    }
                    None => Error::unexpected("its store panicked, or its runtime ended")
                        .with_effect(Effect::Unknown),
                },
                () = &mut over => {
                    let message = format!("no reply within {:?}", self.limit);
                    Error::unavailable(Effect::Unknown, message)
                }
            };
            for answer in self.answers.iter_mut().filter(|answer| answer.is_none()) {
                *answer = Some(Err(missing.clone()));
            }
            self.missing = Some(missing);
        }
    }

    /// Waits for all nodes until their time ends.
    ///
    /// # Cancel safety
    /// As [`decide`](Round::decide).
    pub(crate) async fn all(&mut self) {
        self.decide(|_| None::<()>).await;
    }

    /// How many nodes answered.
    pub(crate) fn answered(&self) -> usize {
        self.answers.iter().flatten().filter(|answer| answer.is_ok()).count()
    }

    /// What each node has reported so far.
    pub(crate) fn reports(&self, outcomes: impl Fn(&T) -> Vec<NodeOutcome>) -> NodeReports {
        let nodes = self.quorum.nodes.iter().zip(&self.answers);
        let report = |(node, answer): (&Node, &Answer<T>)| match answer {
            None => node.report(),
            Some(Ok(reply)) => node.report().with_leases(outcomes(reply)),
            Some(Err(error)) => NodeReport::failed(node.name.as_str(), error.clone()),
        };
        nodes.map(report).collect()
    }

    /// The failure of the request as a whole: of the kind that no majority can overcome, else `Unavailable`.
    pub(crate) fn failure(&self, effect: Effect, reports: NodeReports) -> Error {
        failure(self.operation, lasting_failure(&self.answers), effect, reports)
    }
}

impl Inner {
    /// Sends every node the same request, and waits for all within the limit.
    pub(crate) async fn ask_all<T, F>(
        self: &Arc<Self>,
        operation: &'static str,
        ask: impl Fn(Node) -> F,
    ) -> Round<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (mut round, reporters) = Round::new(self, operation, self.limits.of_term(None));
        for (node, reporter) in self.nodes.iter().zip(reporters) {
            let asking = ask(node.clone());
            self.spawn(async move { reporter.report(asking.await) });
        }
        round.all().await;
        round
    }
}

/// A failure with what each node reported. Only acquires, renewals and releases end before all nodes have answered.
pub(crate) fn failure(
    operation: &'static str,
    kind: Option<ErrorKind>,
    effect: Effect,
    reports: NodeReports,
) -> Error {
    let (fault, silent) = match operation {
        "acquire" | "renew" | "release" => ("no majority agreed", "no answer yet"),
        "prepare" => ("not every node is ready", "ready"),
        _ => ("no majority answered", "answered"),
    };
    let mut answers: Vec<_> = reports
        .iter()
        .map(|report| match (&report.error, &report.leases[..]) {
            (Some(error), _) => format!("{}: {error}", report.node),
            (None, []) => format!("{}: {silent}", report.node),
            (None, [one]) => format!("{}: {}", report.node, name(one)),
            (None, _) => format!("{}: answered", report.node),
        })
        .collect();
    answers.sort_unstable();
    let message = format!("of {} nodes {fault} ({})", reports.len(), answers.join("; "));
    let error = match kind {
        Some(ErrorKind::InvalidInput) => Error::invalid_input(message),
        Some(ErrorKind::Unsupported) => Error::unsupported(message),
        Some(ErrorKind::Denied) => Error::denied(message),
        Some(ErrorKind::Incompatible) => Error::incompatible(message),
        Some(ErrorKind::Corrupt) => Error::corrupt(message),
        Some(_) => Error::unexpected(message),
        None => Error::unavailable(effect, message),
    };
    let is_refused = matches!(kind, Some(ErrorKind::InvalidInput | ErrorKind::Unsupported));
    let effect = if is_refused { Effect::NotApplied } else { effect };
    error.with_effect(effect).with_nodes(reports).with_context(NAME, operation)
}

fn name(outcome: &NodeOutcome) -> String {
    match outcome {
        NodeOutcome::Failed(error) => error.to_string(),
        other => format!("{other:?}").to_lowercase(),
    }
}
