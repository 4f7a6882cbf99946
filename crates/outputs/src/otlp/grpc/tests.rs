use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use flate2::read::GzDecoder;
use gpuwhy_metrics::{Shared, families};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Response};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::otlp::messages::{Any, Delay, MetricsRequest, PartialSuccess, Response as Told};
use crate::otlp::queue::METRICS;
use crate::otlp::{Otlp, Sent};

const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// What a receiver was sent, and when.
struct Call {
    path: String,
    headers: HeaderMap,
    message: Vec<u8>,
    at: Instant,
}

impl Call {
    fn times(&self) -> Vec<u64> {
        let request = MetricsRequest::decode(&self.message[..]).unwrap();
        let metrics =
            request.resource_metrics.into_iter().flat_map(|one| one.scope_metrics).flat_map(|one| one.metrics);
        let points = metrics.flat_map(|metric| match metric.data.unwrap() {
            crate::otlp::messages::Data::Sum(sum) => sum.data_points,
            _ => Vec::new(),
        });
        let mut times: Vec<u64> = points.map(|point| point.time_unix_nano).collect();
        times.dedup();
        times
    }
}

/// What it answers.
#[derive(Clone, Default)]
struct Reply {
    http: StatusCode,
    said: Vec<(&'static str, String)>,
    rejected: i64,
}

impl Reply {
    fn code(code: usize) -> Self {
        Self { said: vec![("grpc-status", code.to_string())], ..Self::default() }
    }

    fn with_retry_after(mut self, delay: Duration) -> Self {
        let retry_delay = Some(Delay { seconds: delay.as_secs() as i64, nanos: delay.subsec_nanos() as i32 });
        let other = Any { type_url: "type.googleapis.com/google.rpc.DebugInfo".to_owned(), value: vec![1] };
        let info = Any { type_url: RetryInfo::TYPE.to_owned(), value: RetryInfo { retry_delay }.encode_to_vec() };
        let details = Status { details: vec![other, info] }.encode_to_vec();
        // Without padding, as those who send it leave it away.
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(details);
        self.said.push(("grpc-status-details-bin", text));
        self
    }

    fn answer(&self) -> Response<impl hyper::body::Body<Data = Bytes, Error = Infallible> + use<>> {
        let told = PartialSuccess { rejected: self.rejected, error_message: "no".to_owned() };
        let message = Told { partial_success: (self.rejected > 0).then_some(told) }.encode_to_vec();
        let mut body = vec![0];
        body.extend((message.len() as u32).to_be_bytes());
        body.extend(message);
        let trailers: HeaderMap =
            self.said.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let body = Full::new(Bytes::from(body)).with_trailers(async { Some(Ok(trailers)) });
        Response::builder().status(self.http).header("content-type", "application/grpc").body(body).unwrap()
    }
}

/// A receiver on a thread of its own: it gives these answers one after the other, and then takes everything.
struct Server {
    address: SocketAddr,
    calls: Receiver<Call>,
    over: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start(address: &str, replies: Vec<Reply>) -> Self {
        Self::start_with(address, replies, None)
    }

    fn start_with(address: &str, replies: Vec<Reply>, tls: Option<TlsAcceptor>) -> Self {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = mpsc::channel();
        let (over, is_over) = oneshot::channel();
        let replies = Arc::new(Mutex::new(VecDeque::from(replies)));
        let serve_all = async move {
            let (mut connections, mut is_over) = (JoinSet::new(), is_over);
            loop {
                let accepted = tokio::select! { accepted = listener.accept() => accepted, _ = &mut is_over => break };
                let (stream, sender, replies, tls) =
                    (accepted.unwrap().0, sender.clone(), Arc::clone(&replies), tls.clone());
                connections.spawn(async move {
                    let Some(tls) = tls else { return serve(stream, sender, replies).await };
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, sender, replies).await;
                    }
                });
            }
            drop(listener);
            // Who has been accepted gets an answer.
            connections.join_all().await;
        };
        let work = move || runtime.block_on(serve_all);
        Self { address, calls, over: Some(over), thread: Some(thread::spawn(work)) }
    }

    fn next(&self) -> Call {
        self.calls.recv_timeout(LONG).unwrap()
    }
}

impl Server {
    /// What it was sent that nobody has looked at.
    fn stop(mut self) -> Vec<Call> {
        self.end();
        self.calls.try_iter().collect()
    }

    fn end(&mut self) {
        self.over.take();
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    sender: Sender<Call>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
) {
    let answer = service_fn(|request: Request<Incoming>| {
        let (sender, replies) = (sender.clone(), Arc::clone(&replies));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let (prefix, packed) = body.split_at(PREFIX_BYTES);
            assert_eq!(prefix[0], PACKED);
            assert_eq!(prefix[1..], (packed.len() as u32).to_be_bytes());
            let mut message = Vec::new();
            GzDecoder::new(packed).read_to_end(&mut message).unwrap();
            let path = head.uri.path().to_owned();
            let _ = sender.send(Call { path, headers: head.headers, message, at: Instant::now() });
            let reply = replies.lock().unwrap().pop_front().unwrap_or(Reply::code(OK));
            Ok::<_, hyper::Error>(reply.answer())
        }
    });
    let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), answer).await;
}

fn settings(address: &str) -> OtlpSettings {
    let set = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_HEADERS" => "authorization=Bearer secret,te=gzip".to_owned(),
        _ => String::new(),
    };
    OtlpSettings::new(address, set).unwrap()
}

fn registry() -> Shared {
    let registry = Shared::default();
    registry.lock().add(&families::CALLS, &["7", "python", "cuLaunchKernel"], 3.0);
    registry
}

fn batch() -> Batch {
    Batch::new(METRICS, 100, &MetricsRequest { resource_metrics: Vec::new() })
}

/// What comes of it when a receiver answers this.
fn sent(reply: Reply) -> Result<u64, Failure> {
    let server = Server::start("127.0.0.1:0", vec![reply]);
    Grpc::new(settings(&format!("grpc://{}", server.address))).unwrap().send(&batch())
}

#[test]
fn a_call_is_what_grpc_calls_one() {
    let server = Server::start("127.0.0.1:0", Vec::new());
    let otlp = Otlp::start_every(settings(&format!("grpc://{}", server.address)), registry(), SOON).unwrap();
    let call = server.next();
    assert_eq!(call.path, "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export");
    for (name, expected) in [
        ("authorization", "Bearer secret"),
        ("content-type", "application/grpc"),
        ("grpc-encoding", "gzip"),
        ("grpc-timeout", "5000m"),
        ("te", "trailers"),
    ] {
        assert_eq!(call.headers.get_all(name).iter().collect::<Vec<_>>(), [expected]);
    }
    assert!(!call.times().is_empty());
    let Sent { sent, lost, failed } = otlp.finish();
    assert!(sent > 0 && lost == 0 && failed == 0, "{sent} {lost} {failed}");
}

#[test]
fn a_receiver_that_starts_again_gets_every_batch_once_and_in_order() {
    let server = Server::start("127.0.0.1:0", Vec::new());
    let address = server.address;
    let otlp = Otlp::start_every(settings(&format!("grpc://{address}")), registry(), SOON).unwrap();
    let mut all = server.next().times();
    server.stop().iter().for_each(|call| all.extend(call.times()));
    let end = Instant::now() + LONG;
    while otlp.shared.counts.failed.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "it does not notice that nobody is there");
        thread::sleep(Duration::from_millis(5));
    }
    let unavailable = 14;
    let server = Server::start(&address.to_string(), vec![Reply::code(unavailable)]);
    let refused = server.next().times();
    for _ in 0..5 {
        all.extend(server.next().times());
    }
    assert!(!refused.is_empty() && refused.iter().all(|time| all.contains(time)));
    let mut in_order = all.clone();
    in_order.sort_unstable();
    in_order.dedup();
    assert_eq!(all, in_order);
}

#[test]
fn what_may_be_sent_again_is_what_the_protocol_says() {
    for code in 1..=17 {
        let is_later = matches!(sent(Reply::code(code)), Err(Failure::Later(_, None)));
        assert_eq!(is_later, [1, 4, 10, 11, 14, 15].contains(&code), "{code}");
    }
    let nothing = Reply { said: Vec::new(), ..Reply::default() };
    assert!(matches!(sent(nothing), Err(Failure::Never(_))));
    for (http, expected) in [(503, true), (429, true), (404, false)] {
        let failed = sent(Reply { http: StatusCode::from_u16(http).unwrap(), ..Reply::code(OK) });
        assert_eq!(matches!(failed, Err(Failure::Later(..))), expected, "{http} {failed:?}");
    }
}

#[test]
fn a_receiver_says_when_to_come_again() {
    let exhausted = || Reply::code(8);
    let mut told = exhausted();
    told.said.push(("grpc-message", "too%20much".to_owned()));
    assert_eq!(sent(told), Err(Failure::Never("RESOURCE_EXHAUSTED: too much".to_owned())));
    let delay = Duration::from_millis(1_300);
    let expected = Failure::Later("RESOURCE_EXHAUSTED".to_owned(), Some(delay));
    assert_eq!(sent(exhausted().with_retry_after(delay)), Err(expected));
    // It is heeded: nothing comes earlier, and the same comes then.
    let server = Server::start("127.0.0.1:0", vec![exhausted().with_retry_after(delay)]);
    let _otlp = Otlp::start_every(settings(&format!("grpc://{}", server.address)), registry(), SOON).unwrap();
    let (refused, again) = (server.next(), server.next());
    assert_eq!(refused.times(), again.times());
    assert!(again.at.duration_since(refused.at) >= delay);
}

#[test]
fn what_a_receiver_does_not_want_of_a_batch_is_counted() {
    assert_eq!(sent(Reply { rejected: 3, ..Reply::code(OK) }), Ok(3));
    assert_eq!(sent(Reply::code(OK)), Ok(0));
}

#[test]
fn a_receiver_has_to_show_a_certificate_that_is_trusted() {
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = key.cert.der().clone();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap());
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let server = Server::start_with("127.0.0.1:0", Vec::new(), Some(acceptor));
    let address = format!("grpcs://localhost:{}", server.address.port());
    let send = |trusted: &[CertificateDer<'_>]| Grpc::trusting(settings(&address), trusted).unwrap().send(&batch());
    assert_eq!(send(&[certificate]), Ok(0));
    let Err(Failure::Later(why, None)) = send(&[]) else { panic!("it trusts anybody") };
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn a_receiver_that_does_not_answer_has_failed() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("grpc://{}", silent.local_addr().unwrap());
    let begun = Instant::now();
    let failed = Grpc::new(settings(&address)).unwrap().send(&batch());
    assert!(matches!(failed, Err(Failure::Later(_, None))), "{failed:?}");
    assert!(begun.elapsed() >= PATIENCE);
}
