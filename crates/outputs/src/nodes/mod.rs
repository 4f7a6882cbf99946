//! Asks other hosts what this one can be asked: all at once, each for so long at most. A host that cannot be reached, says no
//! or says too much costs its own part of the answer and nobody else's.

mod address;

use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use gpuwhy_questions::units::duration;
use gpuwhy_questions::{Ask, parameters_of};
use rustls_native_certs::load_native_certs;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use ureq::http::Response;
use ureq::{Body, RequestBuilder, Timeout};

pub use address::{Node, PORT};

use crate::client;
use crate::clock::{Clock, now_ns};
use crate::http::Token;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// More are asked as soon as others have answered.
const AT_ONCE: usize = 64;
/// Twice what a server of ours sends at most.
const MOST_ANSWER: u64 = 16 << 20;
const MOST_REFUSAL: u64 = 64 << 10;
const MOST_TRACE: u64 = 1 << 30;
/// For a whole trace.
const FETCHING: Duration = Duration::from_secs(300);

/// Other hosts, and how they are asked.
pub struct Nodes {
    nodes: Vec<Node>,
    token: Option<Token>,
    patience: Duration,
    client: ureq::Agent,
}

/// What came of asking one of them.
#[derive(Debug)]
pub struct Reply<T> {
    pub node: String,
    pub answer: Result<T, NodeError>,
    /// Unknown where there was no answer at all.
    pub clock: Option<Clock>,
}

#[derive(Debug, Error)]
pub enum NodeError {
    #[error("{0}")]
    Unreached(String),
    #[error("it did not answer within {}", duration(.0.as_nanos() as u64))]
    Slow(Duration),
    /// In its own words.
    #[error("{message}")]
    Refused { code: String, message: String, hint: Option<String> },
    #[error("it answers with {0}, as no gpuwhy does")]
    Stranger(String),
    #[error("it sends more than {0} bytes")]
    TooLarge(u64),
    #[error("its trace cannot be kept here: {0}")]
    Unkept(io::Error),
}

impl NodeError {
    /// What kind of error it is, for programs.
    pub fn code(&self) -> &str {
        match self {
            Self::Unreached(_) => "unreached",
            Self::Slow(_) => "timeout",
            Self::Refused { code, .. } => code,
            Self::Stranger(_) => "not_gpuwhy",
            Self::TooLarge(_) => "too_large",
            Self::Unkept(_) => "not_kept",
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreached(_) => {
                Some("does `gpuwhy trace --serve` run there? Without encryption it has to be named as http://HOST")
            }
            Self::Slow(_) => Some("give it longer with --node-timeout"),
            Self::Refused { hint, .. } => hint.as_deref(),
            _ => None,
        }
    }
}

impl Nodes {
    pub fn new(nodes: Vec<Node>, token: Option<Token>, patience: Duration) -> Self {
        Self { nodes, token, patience, client: client::trusting(&load_native_certs().certs) }
    }

    /// Their answers, in the order in which they were named.
    pub fn ask(&self, question: &str, parameters: &Value) -> Vec<Reply<Value>> {
        let body = parameters.to_string();
        self.each(|_, node| {
            let request = self.client.post(format!("{}/api/v1/tools/{question}", node.origin));
            let request = self.prepared(request, self.patience).header(CONTENT_TYPE, "application/json");
            self.heard(node, self.patience, || request.send(&body), json)
        })
    }

    /// The same for a question whose answer is known here.
    pub fn answers<Q: Ask<Answer: DeserializeOwned>>(&self, question: &Q) -> Vec<Reply<Q::Answer>> {
        let typed = |Reply { node, answer, clock }| {
            let stranger = |error| NodeError::Stranger(format!("what gpuwhy {VERSION} cannot read: {error}"));
            let answer = answer.and_then(|answer| serde_json::from_value(answer).map_err(stranger));
            Reply { node, answer, clock }
        };
        self.ask(Q::NAME, &parameters_of(question)).into_iter().map(typed).collect()
    }

    /// Their traces, each in a file of this folder that has its node's place among all for a name.
    pub fn fetch(&self, folder: &Path) -> Vec<Reply<PathBuf>> {
        self.each(|at, node| {
            let request = self.client.get(format!("{}/api/v1/trace", node.origin));
            let request = self.prepared(request, FETCHING);
            self.heard(node, FETCHING, || request.call(), |answer| saved(answer, folder.join(format!("{at}.db"))))
        })
    }

    /// Nobody is sent elsewhere with a token in hand.
    fn prepared<B>(&self, request: RequestBuilder<B>, patience: Duration) -> RequestBuilder<B> {
        let config = request.config().http_status_as_error(false).max_redirects(0);
        let config = config.timeout_connect(Some(self.patience)).timeout_global(Some(patience));
        match &self.token {
            Some(token) => config.build().header(AUTHORIZATION, token.as_header()),
            None => config.build(),
        }
    }

    fn heard<T>(
        &self,
        node: &Node,
        patience: Duration,
        call: impl FnOnce() -> Result<Response<Body>, ureq::Error>,
        read: impl FnOnce(Response<Body>) -> Result<T, NodeError>,
    ) -> Reply<T> {
        let asked_ns = now_ns();
        let called = call();
        let had_ns = now_ns();
        let clock = called.as_ref().ok().and_then(|answer| Clock::of(answer.headers(), asked_ns, had_ns));
        let answer = match called {
            Ok(answer) if answer.status().is_success() => read(answer),
            Ok(answer) => Err(refused(answer)),
            Err(ureq::Error::Timeout(Timeout::Connect)) => Err(NodeError::Slow(self.patience)),
            Err(ureq::Error::Timeout(_)) => Err(NodeError::Slow(patience)),
            Err(other) => Err(NodeError::Unreached(other.to_string())),
        };
        Reply { node: node.name.clone(), answer, clock }
    }

    fn each<T: Send>(&self, one: impl Fn(usize, &Node) -> Reply<T> + Sync) -> Vec<Reply<T>> {
        let next = AtomicUsize::new(0);
        let some = || {
            let mut replies = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(node) = self.nodes.get(at) else { return replies };
                replies.push((at, one(at, node)));
            }
        };
        let mut replies: Vec<(usize, Reply<T>)> = thread::scope(|threads| {
            let asking: Vec<_> = (0..self.nodes.len().min(AT_ONCE)).map(|_| threads.spawn(some)).collect();
            asking.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        replies.sort_by_key(|(at, _)| *at);
        replies.into_iter().map(|(_, reply)| reply).collect()
    }
}

fn json(answer: Response<Body>) -> Result<Value, NodeError> {
    let read = answer.into_body().into_with_config().limit(MOST_ANSWER).read_to_vec();
    let stranger = || NodeError::Stranger("what is no JSON".to_owned());
    serde_json::from_slice(&read.map_err(|error| broken(error, MOST_ANSWER))?).map_err(|_| stranger())
}

/// Its error, in the shape that all of them have.
fn refused(answer: Response<Body>) -> NodeError {
    let status = answer.status();
    let body = answer.into_body().into_with_config().limit(MOST_REFUSAL).read_to_vec().unwrap_or_default();
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |name: &str| said["error"][name].as_str().map(str::to_owned);
    match (text("code"), text("message")) {
        (Some(code), Some(message)) => NodeError::Refused { code, message, hint: text("hint") },
        _ => NodeError::Stranger(status.to_string()),
    }
}

fn saved(answer: Response<Body>, path: PathBuf) -> Result<PathBuf, NodeError> {
    let mut body = answer.into_body().into_reader().take(MOST_TRACE + 1);
    let mut file = File::create_new(&path).map_err(NodeError::Unkept)?;
    let mut piece = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        match body.read(&mut piece).map_err(|error| broken(error.into(), MOST_TRACE))? {
            0 => return Ok(path),
            read => {
                bytes += read as u64;
                if bytes > MOST_TRACE {
                    return Err(NodeError::TooLarge(MOST_TRACE));
                }
                file.write_all(&piece[..read]).map_err(NodeError::Unkept)?;
            }
        }
    }
}

/// While its answer came.
fn broken(error: ureq::Error, most: u64) -> NodeError {
    match error {
        ureq::Error::BodyExceedsLimit(_) => NodeError::TooLarge(most),
        other => NodeError::Unreached(other.to_string()),
    }
}
