//! HTTP/2: requests are streams of one connection, and a fault hits one of them.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{Chunk, Cut, Fault, Shared, deliver, lock, pass_on};

/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// The setting by which a peer encodes headers without those of earlier requests, which may be lost: a table of no entry.
const NO_HEADER_TABLE: [u8; 6] = [0, 1, 0, 0, 0, 0];

/// The faults of the streams of a connection.
#[derive(Debug, Default)]
struct Streams {
    faults: HashMap<u32, Fault>,
    newest: u32,
    is_half_open: bool,
}

impl Streams {
    fn fault(&self, stream: u32) -> Fault {
        self.faults.get(&stream).copied().unwrap_or(Fault::None)
    }
}

/// Passes on a connection's traffic until either side ends it.
pub(super) async fn relay(client: TcpStream, server: TcpStream, number: usize, shared: &Shared) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let streams = Arc::new(Mutex::new(Streams::default()));
    let (asks, asked) = mpsc::unbounded_channel();
    let (answers, answered) = mpsc::unbounded_channel();
    let there = async {
        tokio::try_join!(
            take_requests(from_client, asks, number, shared, &streams),
            deliver(asked, to_server)
        )
    };
    let back = async {
        tokio::try_join!(
            take_answers(from_server, answers, number, shared, &streams),
            deliver(answered, to_client)
        )
    };
    tokio::select! {
        _ = there => {}
        _ = back => {}
    }
}

async fn take_requests(
    mut from: OwnedReadHalf,
    to: UnboundedSender<Chunk>,
    number: usize,
    shared: &Shared,
    streams: &Mutex<Streams>,
) -> Result<(), Cut> {
    let mut frames = Frames::of_client();
    while let Some(frame) = frames.next(&mut from).await {
        let fault = if frame.stream == 0 {
            shared.fault_of(number)
        } else {
            let mut streams = lock(streams);
            if frame.kind == HEADERS && frame.stream > streams.newest {
                shared.exchanges.fetch_add(1, Ordering::SeqCst);
                let fault = shared.next(number);
                streams.newest = frame.stream;
                streams.faults.insert(frame.stream, fault);
            }
            streams.fault(frame.stream)
        };
        match fault {
            Fault::CutBefore | Fault::Refuse if frame.stream > 0 => return Err(Cut),
            Fault::BlackHole => {}
            Fault::HalfOpen => {
                lock(streams).is_half_open = true;
                drop(to);
                while frames.next(&mut from).await.is_some() {}
                return Ok(());
            }
            _ => pass_on(&to, fault, &frame.bytes)?,
        }
    }
    Ok(())
}

async fn take_answers(
    mut from: OwnedReadHalf,
    to: UnboundedSender<Chunk>,
    number: usize,
    shared: &Shared,
    streams: &Mutex<Streams>,
) -> Result<(), Cut> {
    let mut frames = Frames::default();
    while let Some(frame) = frames.next(&mut from).await {
        // A fault that began meanwhile applies to answers too.
        let fault = match lock(streams).fault(frame.stream) {
            Fault::None => shared.fault_of(number),
            fault => fault,
        };
        match fault {
            Fault::CutAfter | Fault::Refuse if frame.stream > 0 => return Err(Cut),
            Fault::SwallowAnswers | Fault::BlackHole | Fault::HalfOpen => {}
            Fault::Stall if frame.stream > 0 => {
                lock(streams).faults.insert(frame.stream, Fault::SwallowAnswers);
                pass_on(&to, fault, &frame.bytes)?;
            }
            _ => pass_on(&to, fault, &frame.bytes)?,
        }
    }
    if lock(streams).is_half_open {
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// A frame, or what comes before the first one; stream 0 is the connection.
#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    bytes: Vec<u8>,
}

/// Splits what one side sends.
#[derive(Debug, Default)]
struct Frames {
    read: Vec<u8>,
    is_before_preface: bool,
    has_settings: bool,
}

impl Frames {
    fn of_client() -> Self {
        Self { is_before_preface: true, ..Self::default() }
    }

    /// The next one; `None` if the side has ended.
    async fn next(&mut self, from: &mut OwnedReadHalf) -> Option<Frame> {
        loop {
            if let Some(frame) = self.split() {
                return Some(frame);
            }
            let mut bytes = vec![0; 64 * 1024];
            let length = from.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
            self.read.extend_from_slice(&bytes[..length]);
        }
    }

    fn split(&mut self) -> Option<Frame> {
        if self.is_before_preface {
            let bytes = self.take(PREFACE.len())?;
            self.is_before_preface = false;
            return Some(Frame { kind: 0, stream: 0, bytes });
        }
        let head = self.read.first_chunk::<HEAD>()?;
        let [long, middle, short, kind, _, stream @ ..] = *head;
        let length = u32::from_be_bytes([0, long, middle, short]);
        let mut bytes = self.take(HEAD + usize::try_from(length).ok()?)?;
        if kind == SETTINGS && !self.has_settings {
            self.has_settings = true;
            bytes.extend(NO_HEADER_TABLE);
            bytes[..3].copy_from_slice(&(length + 6).to_be_bytes()[1..]);
        }
        Some(Frame { kind, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, bytes })
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        (self.read.len() >= length).then(|| self.read.drain(..length).collect())
    }
}
