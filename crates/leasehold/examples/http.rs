//! A web service in which one user at a time edits a document. Another one gets the answer 409 with the editor's name.
//!
//! ```sh
//! cargo run -p leasehold --example http
//! curl -X POST localhost:3000/documents/7/edit -H 'user: alice'    # 200, for ten seconds
//! curl -X POST localhost:3000/documents/7/edit -H 'user: bob'      # 409: alice is editing
//! ```

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use axum::response::{IntoResponse as _, Response};
use axum::{Router, routing::post};
use leasehold::{Error, Locker, Result, Wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let locks = Locker::connect("local:").await?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    Ok(axum::serve(listener, service(locks)).await?)
}

/// One `Locker` for the whole service: its clones share it.
pub(crate) fn service(locks: Locker) -> Router {
    Router::new().route("/documents/{id}/edit", post(edit)).with_state(locks)
}

async fn edit(State(locks): State<Locker>, Path(id): Path<u32>, headers: HeaderMap) -> Response {
    let user = headers.get("user").and_then(|name| name.to_str().ok()).unwrap_or("somebody");
    match begin(&locks, id, user).await {
        Ok(()) => format!("you edit document {id}\n").into_response(),
        Err(error) => refused(&error),
    }
}

async fn begin(locks: &Locker, id: u32, user: &str) -> Result<()> {
    let ttl = Duration::from_secs(10);
    let request = locks.lock(format!("document:{id}")).ttl(ttl).wait(Wait::No).comment(user);
    // No guard outlives the request: the lease ends with its term.
    request.await?.detach();
    Ok(())
}

fn refused(error: &Error) -> Response {
    if !error.is_held() {
        eprintln!("{error}"); // it may name hosts, which are nobody's business
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    // Of the holder only the comment, which this service has set: its host and process are internal.
    let holder = error.wait_report().and_then(|report| report.holder.as_ref());
    let user = holder.and_then(|record| record.note.comment()).unwrap_or("another user");
    let seconds = error.retry_after().map_or(1, |left| left.as_secs() + 1);
    let retry = [(RETRY_AFTER, seconds.to_string())];
    (StatusCode::CONFLICT, retry, format!("{user} is editing\n")).into_response()
}
