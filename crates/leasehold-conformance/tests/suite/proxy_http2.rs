//! The proxy before a server that speaks HTTP/2: a fault hits a stream, which is a request.
#![expect(clippy::disallowed_methods, reason = "the server's tasks are its own")]

use std::time::Duration;

use leasehold_conformance::{Fault, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;

#[derive(Debug, PartialEq, Eq)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Frame {
    Frame { kind, stream, payload: payload.to_owned() }
}

async fn send(to: &mut TcpStream, frame: &Frame) {
    let length = u32::try_from(frame.payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], frame.kind, 0];
    let bytes = [&head[..], &frame.stream.to_be_bytes(), &frame.payload].concat();
    to.write_all(&bytes).await.unwrap();
}

async fn receive(from: &mut TcpStream) -> Option<Frame> {
    let mut head = [0; 9];
    from.read_exact(&mut head).await.ok()?;
    let [long, middle, short, kind, _, stream @ ..] = head;
    let length = u32::from_be_bytes([0, long, middle, short]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut payload).await.ok()?;
    Some(Frame { kind, stream: u32::from_be_bytes(stream), payload })
}

/// A server that answers the headers of each stream with headers and data of its own, and a client before the proxy.
async fn connected() -> (Proxy, TcpStream, UnboundedReceiver<Frame>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::before_http2(listener.local_addr().unwrap()).await.unwrap();
    let (tell, seen) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut preface = [0; 24];
                if client.read_exact(&mut preface).await.is_err() || preface != *PREFACE {
                    return;
                }
                send(&mut client, &frame(SETTINGS, 0, &[])).await;
                while let Some(seen) = receive(&mut client).await {
                    if seen.kind == HEADERS {
                        send(&mut client, &frame(HEADERS, seen.stream, b"head")).await;
                        send(&mut client, &frame(DATA, seen.stream, b"rest")).await;
                    }
                    tell.send(seen).unwrap();
                }
            });
        }
    });
    let client = connect(&proxy).await;
    (proxy, client, seen)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.set_nodelay(true).unwrap();
    client.write_all(PREFACE).await.unwrap();
    send(&mut client, &frame(SETTINGS, 0, &[0, 3, 0, 0, 0, 9])).await;
    // Nothing of a request is left out of what the server knows of the headers.
    let settings = receive(&mut client).await.unwrap();
    assert_eq!(settings, frame(SETTINGS, 0, &[0, 1, 0, 0, 0, 0]));
    client
}

async fn ask(client: &mut TcpStream, stream: u32) {
    send(client, &frame(HEADERS, stream, b"ask")).await;
    send(client, &frame(DATA, stream, b"body")).await;
}

async fn is_answered(client: &mut TcpStream, stream: u32) {
    assert_eq!(receive(client).await, Some(frame(HEADERS, stream, b"head")));
    assert_eq!(receive(client).await, Some(frame(DATA, stream, b"rest")));
}

#[tokio::test]
async fn a_stream_is_an_exchange_and_what_keeps_the_connection_is_none() {
    let (proxy, mut client, mut seen) = connected().await;
    let settings = seen.recv().await.unwrap();
    assert_eq!(settings.payload, [0, 3, 0, 0, 0, 9, 0, 1, 0, 0, 0, 0]);
    for own in [frame(PING, 0, &[0; 8]), frame(WINDOW_UPDATE, 0, &[0, 0, 0, 1])] {
        send(&mut client, &own).await;
        assert_eq!(seen.recv().await, Some(own));
    }
    assert_eq!(proxy.exchanges(), 0);
    // Two are under way together.
    ask(&mut client, 1).await;
    ask(&mut client, 3).await;
    is_answered(&mut client, 1).await;
    is_answered(&mut client, 3).await;
    assert_eq!(proxy.exchanges(), 2);
    // Trailers open no stream.
    send(&mut client, &frame(HEADERS, 3, b"last")).await;
    is_answered(&mut client, 3).await;
    assert_eq!(proxy.exchanges(), 2);
}

#[tokio::test]
async fn a_fault_of_once_hits_one_stream() {
    let (proxy, mut client, mut seen) = connected().await;
    seen.recv().await.unwrap();
    proxy.once(Fault::BlackHole);
    ask(&mut client, 1).await;
    ask(&mut client, 3).await;
    is_answered(&mut client, 3).await;
    assert_eq!(seen.recv().await, Some(frame(HEADERS, 3, b"ask")));
    seen.recv().await.unwrap();
    proxy.once(Fault::SwallowAnswers);
    ask(&mut client, 5).await;
    ask(&mut client, 7).await;
    is_answered(&mut client, 7).await;
    assert_eq!(seen.recv().await, Some(frame(HEADERS, 5, b"ask")));
    proxy.once(Fault::Stall);
    ask(&mut client, 9).await;
    assert_eq!(receive(&mut client).await, Some(frame(HEADERS, 9, b"head")));
    ask(&mut client, 11).await;
    is_answered(&mut client, 11).await;
    assert_eq!(proxy.exchanges(), 6);
}

#[tokio::test]
async fn a_fault_may_hit_a_later_stream() {
    let (proxy, mut client, _seen) = connected().await;
    proxy.once_after(1, Fault::CutAfter);
    ask(&mut client, 1).await;
    is_answered(&mut client, 1).await;
    ask(&mut client, 3).await;
    assert_eq!(receive(&mut client).await, None);
    // Of the next connection none.
    let mut client = connect(&proxy).await;
    ask(&mut client, 1).await;
    is_answered(&mut client, 1).await;
}

#[tokio::test]
async fn a_cut_before_a_request_hides_it_from_the_server() {
    let (proxy, mut client, mut seen) = connected().await;
    seen.recv().await.unwrap();
    proxy.once(Fault::CutBefore);
    ask(&mut client, 1).await;
    assert_eq!(receive(&mut client).await, None);
    let mut client = connect(&proxy).await;
    ask(&mut client, 1).await;
    is_answered(&mut client, 1).await;
    assert_eq!(seen.recv().await.map(|frame| frame.kind), Some(SETTINGS));
}

#[tokio::test]
async fn a_lasting_fault_hits_every_stream_and_ends_with_it() {
    let (proxy, mut client, _seen) = connected().await;
    proxy.set(Fault::SwallowAnswers);
    ask(&mut client, 1).await;
    let answer = tokio::time::timeout(Duration::from_millis(50), receive(&mut client));
    assert!(answer.await.is_err());
    proxy.set(Fault::None);
    ask(&mut client, 3).await;
    is_answered(&mut client, 3).await;
    proxy.set(Fault::HalfOpen);
    ask(&mut client, 5).await;
    let answer = tokio::time::timeout(Duration::from_millis(50), receive(&mut client));
    assert!(answer.await.is_err(), "the client does not learn that the server is gone");
}
