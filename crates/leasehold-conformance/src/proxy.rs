#![expect(clippy::disallowed_methods, reason = "for tests, whose tasks are their own")]

mod http2;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::Result;

/// What a client sends within this time is one request.
const TOGETHER: Duration = Duration::from_millis(20);

/// A TCP proxy in front of a server that injects faults into the traffic. It ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Where new connections lead.
    server: Mutex<SocketAddr>,
    fault: Mutex<Fault>,
    /// A fault of one request, after so many others.
    once: Mutex<Option<(usize, Fault)>>,
    /// The fault of the first so many connections.
    of_first: Mutex<(usize, Fault)>,
    accepted: AtomicUsize,
    exchanges: AtomicUsize,
    /// Whether a driver sends this by itself.
    is_own: Mutex<fn(&[u8]) -> bool>,
    /// Many requests share a connection.
    is_http2: bool,
    /// Sent to cut all connections.
    cuts: watch::Sender<()>,
}

/// A fault in the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Everything passes.
    None,
    /// Each request and answer takes this much longer, and delays nothing behind it.
    Delay(Duration),
    /// A client that sends a request is cut off, and the server never sees the request.
    CutBefore,
    /// The server gets the request and answers; then the connection is cut, and nobody sees the answer.
    CutAfter,
    /// Requests reach the server, answers reach nobody, and connections stay open.
    SwallowAnswers,
    /// Requests reach the server, an answer begins to arrive and never ends, and connections stay open.
    Stall,
    /// Nothing passes, and connections stay open.
    BlackHole,
    /// The server learns that the client went away; the client does not, and what it sends is lost.
    HalfOpen,
    /// New connections are cut at once, existing ones at their next request.
    Refuse,
}

impl Proxy {
    /// Listens in front of `server`, on a free port of this machine.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn before(server: SocketAddr) -> Result<Self> {
        Self::listen(server, false).await
    }

    /// The same before a server that speaks HTTP/2 without TLS: an exchange is a stream that a client opens, and a fault of
    /// [`once`](Self::once) leaves the other requests of its connection alone, unless it cuts the connection.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn before_http2(server: SocketAddr) -> Result<Self> {
        Self::listen(server, true).await
    }

    async fn listen(server: SocketAddr, is_http2: bool) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            fault: Mutex::new(Fault::None),
            once: Mutex::default(),
            of_first: Mutex::new((0, Fault::None)),
            accepted: AtomicUsize::new(0),
            exchanges: AtomicUsize::new(0),
            is_own: Mutex::new(|_| false),
            is_http2,
            cuts: watch::Sender::new(()),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Recognises what a driver sends by itself to learn of its server, on whatever connection: it is no exchange, and uses up
    /// no fault of [`once`](Self::once).
    pub fn ignore(&self, is_own: fn(&[u8]) -> bool) {
        *lock(&self.shared.is_own) = is_own;
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads new connections to another server, as an address does that moves with a fail-over. Those that there are stay
    /// where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        *lock(&self.shared.server) = server;
    }

    /// Sets the fault from now on.
    pub fn set(&self, fault: Fault) {
        *lock(&self.shared.fault) = fault;
    }

    /// Sets the fault of the connections that there are, from now on; later ones have none of it.
    pub fn set_present(&self, fault: Fault) {
        *lock(&self.shared.of_first) = (self.shared.accepted.load(Ordering::SeqCst), fault);
    }

    /// Applies a fault to the next request, or its answer, only.
    pub fn once(&self, fault: Fault) {
        self.once_after(0, fault);
    }

    /// Applies a fault to one request, or its answer, only: the one after so many others.
    pub fn once_after(&self, others: usize, fault: Fault) {
        *lock(&self.shared.once) = Some((others, fault));
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.shared.cuts.send_replace(());
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many times a client has sent something after the server had answered everything before.
    pub fn exchanges(&self) -> usize {
        self.shared.exchanges.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn fault(&self) -> Fault {
        *lock(&self.fault)
    }

    /// The fault of the connection with this number.
    fn fault_of(&self, number: usize) -> Fault {
        match *lock(&self.of_first) {
            (first, fault) if number < first && fault != Fault::None => fault,
            _ => self.fault(),
        }
    }

    /// The fault for a request that arrives on it now.
    fn next(&self, number: usize) -> Fault {
        let mut once = lock(&self.once);
        match &mut *once {
            Some((others @ 1.., _)) => *others -= 1,
            once => {
                if let Some((_, fault)) = once.take() {
                    return fault;
                }
            }
        }
        self.fault_of(number)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.fault() != Fault::Refuse {
            let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(client, number, Arc::clone(&shared)));
        }
    }
}

/// Serves one client until either side ends the connection or it is cut.
async fn serve(client: TcpStream, number: usize, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let server = *lock(&shared.server);
    let Ok(server) = TcpStream::connect(server).await else { return };
    if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return;
    }
    if shared.is_http2 {
        tokio::select! {
            () = http2::relay(client, server, number, &shared) => {}
            _ = cuts.changed() => {}
        }
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The fault for answers, and whether the client spoke last.
    let link = Arc::new(Mutex::new((Fault::None, false)));
    let (asks, asked) = mpsc::unbounded_channel();
    let (answers, answered) = mpsc::unbounded_channel();
    let there = async {
        tokio::try_join!(
            take_requests(from_client, asks, number, &shared, &link),
            deliver(asked, to_server)
        )
    };
    let back = async {
        tokio::try_join!(
            take_answers(from_server, answers, number, &shared, &link),
            deliver(answered, to_client)
        )
    };
    tokio::select! {
        _ = there => {}
        _ = back => {}
        _ = cuts.changed() => {}
    }
}

type Link = Arc<Mutex<(Fault, bool)>>;

/// Data in transit, and its delay.
type Chunk = (Option<Pin<Box<Sleep>>>, Vec<u8>);

/// The connection is cut, whatever is in transit.
struct Cut;

async fn take_requests(
    mut from: OwnedReadHalf,
    to: UnboundedSender<Chunk>,
    number: usize,
    shared: &Shared,
    link: &Link,
) -> std::result::Result<(), Cut> {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(mut length @ 1..) = from.read(&mut bytes).await {
        let is_own = lock(&shared.is_own)(&bytes[..length]);
        if !is_own && lock(&shared.once).is_some() {
            // A driver may send the head of a request apart: the fault is that of the whole.
            let rest = tokio::time::timeout(TOGETHER, from.read(&mut bytes[length..]));
            length += rest.await.map_or(0, |rest| rest.unwrap_or(0));
        }
        let fault = if is_own { shared.fault_of(number) } else { shared.next(number) };
        {
            let mut link = lock(link);
            if !link.1 && !is_own {
                shared.exchanges.fetch_add(1, Ordering::SeqCst);
            }
            *link = (fault, true);
        }
        match fault {
            Fault::CutBefore | Fault::Refuse => return Err(Cut),
            Fault::BlackHole => {}
            Fault::HalfOpen => {
                drop(to);
                // What the client sends is discarded.
                while let Ok(1..) = from.read(&mut bytes).await {}
                return Ok(());
            }
            Fault::None
            | Fault::Delay(_)
            | Fault::CutAfter
            | Fault::SwallowAnswers
            | Fault::Stall => {
                pass_on(&to, fault, &bytes[..length])?;
            }
        }
    }
    Ok(())
}

async fn take_answers(
    mut from: OwnedReadHalf,
    to: UnboundedSender<Chunk>,
    number: usize,
    shared: &Shared,
    link: &Link,
) -> std::result::Result<(), Cut> {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        let fault = {
            let mut link = lock(link);
            link.1 = false;
            // A fault that began meanwhile applies to answers too.
            if link.0 == Fault::None { shared.fault_of(number) } else { link.0 }
        };
        match fault {
            Fault::CutAfter | Fault::Refuse => return Err(Cut),
            Fault::SwallowAnswers | Fault::BlackHole | Fault::HalfOpen => {}
            Fault::Stall => {
                lock(link).0 = Fault::SwallowAnswers;
                pass_on(&to, fault, &bytes[..length / 2])?;
            }
            Fault::None | Fault::Delay(_) | Fault::CutBefore => {
                pass_on(&to, fault, &bytes[..length])?;
            }
        }
    }
    if lock(link).0 == Fault::HalfOpen {
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn pass_on(
    to: &UnboundedSender<Chunk>,
    fault: Fault,
    bytes: &[u8],
) -> std::result::Result<(), Cut> {
    let pause = match fault {
        Fault::Delay(pause) => Some(Box::pin(tokio::time::sleep(pause))),
        _ => None,
    };
    to.send((pause, bytes.to_owned())).map_err(|_| Cut)
}

/// Delivers in order, each at its time.
async fn deliver(
    mut chunks: UnboundedReceiver<Chunk>,
    mut to: OwnedWriteHalf,
) -> std::result::Result<(), Cut> {
    while let Some((pause, bytes)) = chunks.recv().await {
        if let Some(pause) = pause {
            pause.await;
        }
        to.write_all(&bytes).await.map_err(|_| Cut)?;
    }
    Ok(())
}
