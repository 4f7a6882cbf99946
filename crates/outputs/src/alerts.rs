//! What is done when an alert fires, and when it is over: a line of JSON, a webhook, a command.
//!
//! Each action has a thread and a bounded queue of its own. One that is slow or fails harms nobody else: what it has no room
//! for is lost and counted. A webhook that does not answer is asked again, later and later.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpuwhy_alerts::{Action, Deed, Event, State};

use crate::client::{self, PATIENCE};

/// So many events wait for an action.
const MOST_WAITING: usize = 1_000;
/// How long a webhook is left alone after it failed: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// So soon is noticed that the trace is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Those of a rules file, at work.
pub struct Actions {
    running: Vec<Running>,
    is_over: Arc<AtomicBool>,
}

struct Running {
    name: String,
    queue: Option<SyncSender<Event>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    done: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
}

/// What an action has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub name: String,
    pub done: u64,
    /// Events that nobody was told of.
    pub lost: u64,
    /// Attempts that failed.
    pub failed: u64,
}

impl Actions {
    pub fn start(actions: &[Action]) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let start = |action: &Action| {
            let (queue, events) = sync_channel(MOST_WAITING);
            let (counts, deed) = (Arc::new(Counts::default()), action.deed.clone());
            let (counted, over) = (Arc::clone(&counts), Arc::clone(&is_over));
            let work = move || Worker { deed, events, counts: counted, is_over: over }.work();
            let thread = thread::Builder::new().name(format!("alert {}", action.name)).spawn(work)?;
            Ok(Running { name: action.name.clone(), queue: Some(queue), counts, thread: Some(thread) })
        };
        let running = actions.iter().map(start).collect::<std::io::Result<_>>()?;
        Ok(Self { running, is_over })
    }

    /// Hands an event to the actions that it names. Never waits.
    pub fn tell(&self, event: &Event) {
        for action in self.running.iter().filter(|action| event.actions.contains(&action.name)) {
            let is_taken = action.queue.as_ref().is_some_and(|queue| queue.try_send(event.clone()).is_ok());
            if !is_taken {
                action.counts.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Lets each action try once what still waits, and tells what they have come to.
    pub fn finish(mut self) -> Vec<Done> {
        self.end();
        let done = |action: &Running| {
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            let Counts { done, lost, failed } = &*action.counts;
            Done { name: action.name.clone(), done: read(done), lost: read(lost), failed: read(failed) }
        };
        self.running.iter().map(done).collect()
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.running.iter_mut().for_each(|action| drop(action.queue.take()));
        for thread in self.running.iter_mut().filter_map(|action| action.thread.take()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        self.end();
    }
}

struct Worker {
    deed: Deed,
    events: Receiver<Event>,
    counts: Arc<Counts>,
    is_over: Arc<AtomicBool>,
}

impl Worker {
    fn work(self) {
        let is_webhook = matches!(self.deed, Deed::Webhook(_));
        let client = is_webhook.then(|| client::trusting(&rustls_native_certs::load_native_certs().certs));
        // Once the trace is over, one that does not answer is not asked for each event.
        let mut is_dead = false;
        // Ends when nobody can tell anything any more.
        for event in &self.events {
            let is_done = !is_dead && self.told(&event, client.as_ref());
            is_dead = !is_done && self.is_over();
            let count = if is_done { &self.counts.done } else { &self.counts.lost };
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn told(&self, event: &Event, client: Option<&ureq::Agent>) -> bool {
        let Ok(text) = serde_json::to_string(event) else { return false };
        let mut pause = FIRST_PAUSE;
        loop {
            let result = match &self.deed {
                Deed::Json(file) => add_line(file, &text),
                Deed::Webhook(address) => client.map_or(Ok(()), |client| post(client, address, &text)),
                Deed::Command(command) => run(command, event, &text),
            };
            let Err(why) = result else { return true };
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("{}: {why}", event.alert);
            // What a command has begun is not begun again.
            if matches!(self.deed, Deed::Command(_)) || self.is_over() {
                return false;
            }
            self.rest(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.is_over() {
            thread::sleep(LOOK_EVERY);
        }
    }
}

fn add_line(file: &Path, text: &str) -> Result<(), String> {
    let mut file = OpenOptions::new().create(true).append(true).open(file).map_err(|error| error.to_string())?;
    // In one piece: others may write to it as well.
    file.write_all(format!("{text}\n").as_bytes()).map_err(|error| error.to_string())
}

fn post(client: &ureq::Agent, address: &str, text: &str) -> Result<(), String> {
    let sent = client.post(address).header("Content-Type", "application/json").send(text);
    sent.map(drop).map_err(|error| error.to_string())
}

fn run(command: &[String], event: &Event, text: &str) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let state = if event.state == State::Firing { "firing" } else { "over" };
    let started = Command::new(program)
        .args(arguments)
        .env("GPUWHY_ALERT", &event.alert)
        .env("GPUWHY_STATE", state)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn();
    let mut child = started.map_err(|error| format!("{program}: {error}"))?;
    // One that does not read it may still do what it should.
    let _ = child.stdin.take().map(|mut input| input.write_all(text.as_bytes()));
    ended(&mut child).map_err(|why| format!("{program}: {why}"))
}

/// A command that does not end is ended.
fn ended(child: &mut Child) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if Instant::now() < until => thread::sleep(LOOK_EVERY),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpListener;
    use tokio_rustls::rustls::crypto::ring;

    fn event(actions: &[&str]) -> Event {
        Event {
            alert: "memory".to_owned(),
            state: State::Firing,
            at_ns: 7,
            condition: "process-memory",
            pid: Some(4711),
            comm: "python".to_owned(),
            what: String::new(),
            value: 2.0,
            above: 1.0,
            text: "memory: python (4711) has 2 B of GPU memory, more than 1 B".to_owned(),
            actions: actions.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    fn action(deed: Deed) -> Action {
        Action { name: "it".to_owned(), deed }
    }

    fn done(done: u64, lost: u64, failed: u64) -> Done {
        Done { name: "it".to_owned(), done, lost, failed }
    }

    /// Reads a request and returns its body.
    fn answer(stream: impl Read + Write, status: &str) -> String {
        let mut reader = BufReader::new(stream);
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        write!(reader.get_mut(), "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
        reader.get_mut().flush().unwrap();
        String::from_utf8(body).unwrap()
    }

    #[test]
    fn a_webhook_that_fails_is_asked_again_until_it_takes_the_event() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/hook", server.local_addr().unwrap());
        let actions = Actions::start(&[action(Deed::Webhook(address))]).unwrap();
        actions.tell(&event(&["it"]));
        actions.tell(&event(&["somebody else"]));
        let first = answer(server.accept().unwrap().0, "503 Service Unavailable");
        let second = answer(server.accept().unwrap().0, "200 OK");
        assert_eq!(first, second);
        let told: serde_json::Value = serde_json::from_str(&second).unwrap();
        assert_eq!((told["alert"].as_str(), told["state"].as_str()), (Some("memory"), Some("firing")));
        assert_eq!((told["pid"].as_u64(), told["value"].as_f64()), (Some(4711), Some(2.0)));
        assert_eq!(actions.finish(), [done(1, 0, 1)]);
    }

    #[test]
    fn a_webhook_that_is_down_holds_nobody_up_and_what_is_lost_is_counted() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let actions = Actions::start(&[action(Deed::Webhook(format!("http://{gone}/")))]).unwrap();
        for _ in 0..MOST_WAITING + 500 {
            actions.tell(&event(&["it"]));
        }
        let [Done { done, lost, failed, .. }] = &actions.finish()[..] else { panic!("one action") };
        assert_eq!((*done, *lost), (0, MOST_WAITING as u64 + 500));
        assert!(*failed >= 1);
    }

    #[test]
    fn a_webhook_with_a_certificate_is_told_only_if_that_is_trusted() {
        use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.der().clone(), PrivateKeyDer::try_from(made.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = Arc::new(config.with_single_cert(vec![certificate.clone()], key.unwrap()).unwrap());
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("https://localhost:{}/hook", server.local_addr().unwrap().port());
        let serve = thread::spawn(move || {
            let accept = || {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                StreamOwned::new(connection, server.accept().unwrap().0)
            };
            // The first one goes away without a word.
            let _ = accept().read(&mut [0; 1]);
            answer(accept(), "200 OK")
        });
        let refused = post(&client::trusting(&[]), &address, "{}").unwrap_err();
        assert!(refused.to_lowercase().contains("certificate") || refused.contains("UnknownIssuer"), "{refused}");
        post(&client::trusting(&[certificate]), &address, "{}").unwrap();
        assert_eq!(serve.join().unwrap(), "{}");
    }

    #[test]
    fn lines_are_added_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("alerts.jsonl");
        let actions = Actions::start(&[action(Deed::Json(file.clone()))]).unwrap();
        actions.tell(&event(&["it"]));
        actions.tell(&event(&["it"]));
        assert_eq!(actions.finish(), [done(2, 0, 0)]);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|line| line.starts_with("{\"alert\":\"memory\",\"state\":\"firing\"")), "{text}");
    }

    #[test]
    fn a_command_reads_the_event_and_one_that_fails_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("told");
        let script = format!("cat > {}; echo $GPUWHY_ALERT $GPUWHY_STATE >> {}", file.display(), file.display());
        let command = |script: &str| action(Deed::Command(vec!["sh".into(), "-c".into(), script.into()]));
        let actions = Actions::start(&[command(&script)]).unwrap();
        actions.tell(&event(&["it"]));
        assert_eq!(actions.finish(), [done(1, 0, 0)]);
        let told = std::fs::read_to_string(&file).unwrap();
        assert!(told.contains("\"pid\":4711") && told.ends_with("memory firing\n"), "{told}");
        let actions = Actions::start(&[command("exit 3")]).unwrap();
        actions.tell(&event(&["it"]));
        assert_eq!(actions.finish(), [done(0, 1, 1)]);
    }
}
