//! Scripts and commands, each in one exchange with a server.

use leasehold_core::{Effect, Error, Result};
use redis::{Cmd, Pipeline, Value};

use super::exchange::Request;
use super::open::Connected;
use super::{ConnectionOptions, Connections};
use crate::argument::Argument;
use crate::error;
use crate::names::{self, Name};
use crate::scripts::Script;

/// The result of a script.
#[derive(Debug)]
pub(crate) enum ScriptReply {
    /// Its reply.
    Answered(Value),
    /// It did not run: its keys are elsewhere.
    Elsewhere(Redirect),
}

/// Where the slot is, as a cluster node reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// `host:port`; without a host, the host of that node.
    pub(crate) address: String,
    /// For this request only: the slot is being moved there.
    pub(crate) once: bool,
}

impl Redirect {
    pub(crate) fn of(error: &redis::RedisError) -> Option<Self> {
        let (address, _) = error.redirect_node()?;
        Some(Self { address: address.to_owned(), once: error.code() == Some("ASK") })
    }
}

impl Connections {
    /// Runs a script, unless the server reports that the keys are elsewhere. `asking` is for keys that are being
    /// moved to this server.
    pub(crate) async fn run(
        &self,
        script: &Script,
        names: &[Name],
        arguments: &[Argument<'_>],
        asking: bool,
        request: &Request,
    ) -> Result<ScriptReply> {
        let &ConnectionOptions { replicas, timeout, in_cluster, .. } = self.options();
        let mark = match names {
            [name, ..] if script.names_mark => Some(names::mark(in_cluster.then(|| name.slot()))),
            _ => None,
        };
        let mark = &mark;
        let ran = self.exchange(request, move |mut connected| async move {
            let bytes = names.iter().map(Name::len).chain(arguments.iter().map(Argument::len));
            let bytes = bytes.sum::<usize>() + Script::CALL;
            let command = |name: &str, which: &str| {
                let keys = 2 * names.len() + usize::from(mark.is_some());
                let mut command = Cmd::with_capacity(keys + arguments.len() + 3, bytes);
                command.arg(name).arg(which).arg(keys);
                for name in names {
                    command.arg(name.plain()).arg(name.metadata());
                }
                if let Some(mark) = mark {
                    command.arg(&**mark);
                }
                for argument in arguments {
                    match argument {
                        Argument::Bytes(bytes) => command.arg(&**bytes),
                        Argument::Number(number) => command.arg(*number),
                    };
                }
                command
            };
            let mut sent = connected.send(command("EVALSHA", &script.hash), asking).await;
            if sent.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
                let whole = command("EVAL", &script.text);
                sent = Box::pin(connected.send(whole, asking)).await;
            }
            let value = match sent {
                Err(error) => {
                    let elsewhere = Redirect::of(&error).map(ScriptReply::Elsewhere);
                    return elsewhere.map(|ran| (ran, Ok(replicas))).ok_or(error);
                }
                Ok(value) => value,
            };
            // On the connection that wrote, within half of the limit, so that the reply still comes within it.
            let copies = match replicas {
                1.. if makes_a_lease(&value) => {
                    Box::pin(connected.copies(replicas, timeout / 2)).await?
                }
                _ => Ok(replicas),
            };
            Ok((ScriptReply::Answered(value), copies))
        });
        let (ran, copies) = ran.await?;
        let why = match copies {
            Ok(copies) if copies >= replicas => return Ok(ran),
            Ok(copies) => format!("only {copies} have"),
            Err(refusal) => format!("the server replied: {refusal}"),
        };
        Err(Error::unavailable(
            Effect::Unknown,
            format!(
                "fewer than the required {replicas} replicas have what {} wrote; {why}",
                self.server()
            ),
        ))
    }

    /// Sends several commands that change nothing at once; an error is one of the replies.
    pub(crate) async fn query(&self, commands: Vec<Cmd>) -> Result<Vec<Value>> {
        let mut pipeline = Pipeline::with_capacity(commands.len());
        let count = commands.len();
        for command in commands {
            pipeline.add_command(command);
        }
        pipeline.ignore_errors();
        let pipeline = &pipeline;
        let send =
            move |mut connected: Connected| async move { connected.ask_all(pipeline, count).await };
        let replies = self.exchange(&Request::reads(), send).await?;
        if replies.len() == count {
            Ok(replies)
        } else {
            Err(error::unexpected(self.server(), "the number of answers"))
        }
    }
}

/// Whether a caller may trust a lease because of this reply of a script.
fn makes_a_lease(answer: &Value) -> bool {
    let begins = |parts: &[Value], word: &[u8]| matches!(parts.first(), Some(Value::BulkString(first)) if first == word);
    // The token of a lease.
    if let Value::BulkString(_) = answer {
        return true;
    }
    let Value::Array(parts) = answer else { return false };
    begins(parts, b"granted")
        || parts.iter().any(|part| matches!(part, Value::Array(of) if begins(of, b"held")))
}
