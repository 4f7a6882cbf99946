//! The file of tokens (`--tokens`). It is read again when it changes, so that tokens come and go while the server runs. A
//! file that has become wrong changes nothing: a slip locks nobody out.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpuwhy_questions::Granted;
use jiff::Timestamp;
use serde::Deserialize;
use toml::Spanned;

use super::grants::{Grant, Known, Proof, Role, from_hex, sha256};
use super::{SettingsError, Token};

/// How often it is looked at, at most.
const EVERY: Duration = Duration::from_secs(1);

pub struct Tokens {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    read: Read,
    looked: Instant,
    /// Why it could not be read again: told once.
    wrong: Option<String>,
}

/// What is in the files, and how they looked before they were read.
struct Read {
    known: Arc<[Known]>,
    seen: Vec<(PathBuf, Option<Looks>)>,
}

/// The time of the last change, the file and its size: another file can have an older time.
type Looks = (i64, i64, u64, u64);

fn looks(path: &Path) -> Option<Looks> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.mtime(), file.mtime_nsec(), file.ino(), file.size()))
}

impl Tokens {
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let state = State { read: Read::new(path)?, looked: Instant::now(), wrong: None };
        Ok(Self { path: path.into(), state: Mutex::new(state) })
    }

    /// The tokens that are known now.
    pub fn now(&self) -> Arc<[Known]> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= EVERY {
            state.looked = Instant::now();
            state.look(&self.path);
        }
        Arc::clone(&state.read.known)
    }
}

impl State {
    fn look(&mut self, path: &Path) {
        if self.read.seen.iter().all(|(path, before)| looks(path) == *before) {
            self.wrong = None;
            return;
        }
        match Read::new(path) {
            Ok(read) => {
                tracing::info!(tokens = read.known.len(), "tokens were read again");
                (self.read, self.wrong) = (read, None);
            }
            Err(error) => {
                let error = error.to_string();
                if self.wrong.as_ref() != Some(&error) {
                    tracing::error!("tokens stay as they were: {error}");
                }
                self.wrong = Some(error);
            }
        }
    }
}

impl Read {
    fn new(path: &Path) -> Result<Self, SettingsError> {
        let mut seen = Vec::new();
        let mut read = |path: &Path| {
            seen.push((path.to_owned(), looks(path)));
            std::fs::read_to_string(path).map_err(|source| SettingsError::TokenFile { path: path.into(), source })
        };
        let text = read(path)?;
        let secret = |name: &Path| Token::new(&read(&path.parent().unwrap_or(Path::new("")).join(name))?);
        let known = parse(&text, secret).map_err(|(at, message)| located(path, &text, at, message))?;
        Ok(Self { known: known.into(), seen })
    }
}

fn located(path: &Path, text: &str, at: usize, message: String) -> SettingsError {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|one| *one != '\n').count() + 1;
    SettingsError::Tokens { path: path.into(), line, column, message }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Spanned<Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: Spanned<String>,
    token: Option<Spanned<String>>,
    sha256: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    roles: Spanned<Vec<Role>>,
    clusters: Option<Spanned<Vec<String>>>,
    until: Option<Spanned<String>>,
    #[serde(default)]
    per_node: bool,
}

/// A place in the text, and what is wrong there.
type Wrong = (usize, String);

fn wrong<T>(place: &Spanned<T>, message: impl ToString) -> Wrong {
    (place.span().start, message.to_string())
}

/// What a file says, and whatever reads the files that it names.
fn parse(text: &str, mut secret: impl FnMut(&Path) -> Result<Token, SettingsError>) -> Result<Vec<Known>, Wrong> {
    let file: File = toml::from_str(text)
        .map_err(|error: toml::de::Error| (error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    if file.token.is_empty() {
        return Err((0, "there is no token in the file; one begins with [[token]]".to_owned()));
    }
    let mut all: Vec<Known> = Vec::with_capacity(file.token.len());
    let mut sums: Vec<([u8; 32], String)> = Vec::new();
    for table in file.token {
        let at = table.span().start;
        let table = table.into_inner();
        let (at, token, sum) = table.secret(at, &mut secret)?;
        if let Some((_, name)) = sums.iter().find(|(known, _)| *known == sum) {
            return Err((at, format!("this is the token of {name:?}; each has its own")));
        }
        sums.push((sum, table.name.get_ref().clone()));
        all.push(table.known(at, token, sum)?);
    }
    Ok(all)
}

impl Table {
    /// Where its token is, the token as far as it is known, and its sum.
    fn secret(
        &self,
        at: usize,
        read: impl FnOnce(&Path) -> Result<Token, SettingsError>,
    ) -> Result<(usize, Option<Token>, [u8; 32]), Wrong> {
        let (place, token) = match (&self.token, &self.sha256, &self.file) {
            (Some(token), None, None) => (token.span(), Token::new(token.get_ref()).map_err(|why| wrong(token, why))?),
            (None, None, Some(file)) => (file.span(), read(file.get_ref()).map_err(|why| wrong(file, why))?),
            (None, Some(sum), None) => {
                let bytes = from_hex(sum.get_ref()).ok_or_else(|| wrong(sum, "a SHA-256 has 64 hexadecimal digits"))?;
                return Ok((sum.span().start, None, bytes));
            }
            _ => return Err((at, "a token has exactly one of token, sha256 and file".to_owned())),
        };
        let sum = sha256(token.as_bytes());
        Ok((place.start, Some(token), sum))
    }

    fn known(self, at: usize, token: Option<Token>, sum: [u8; 32]) -> Result<Known, Wrong> {
        let Self { name, roles, clusters, until, per_node, .. } = self;
        if name.get_ref().is_empty() {
            return Err(wrong(&name, "a token needs a name, by which the record of requests calls it"));
        }
        if roles.get_ref().is_empty() {
            return Err(wrong(&roles, "a token needs a role: \"ask\", \"tell\" or both"));
        }
        let proof = match (per_node, token) {
            (false, _) => Proof::Token(sum),
            (true, None) => {
                return Err((at, "tokens of nodes are made of the secret itself: give token or file".to_owned()));
            }
            (true, Some(_)) if roles.get_ref().contains(&Role::Ask) => {
                return Err(wrong(&roles, "tokens of nodes are for telling alone: roles = [\"tell\"]"));
            }
            (true, Some(token)) => Proof::KeyOfNodes(token.key_of_nodes()),
        };
        let clusters = match clusters {
            Some(names) if names.get_ref().is_empty() || names.get_ref().iter().any(String::is_empty) => {
                return Err(wrong(&names, "name the clusters that it is for, or leave them out for all"));
            }
            Some(names) => Granted::only(names.into_inner()),
            None => Granted::All,
        };
        let moment = |until: &Spanned<String>| {
            let refused = |why| wrong(until, format!("{why}; a time is like \"2026-12-31T00:00:00Z\""));
            until.get_ref().parse::<Timestamp>().map_err(refused)
        };
        let until = until.as_ref().map(moment).transpose()?;
        let grant =
            Grant { token: Some(name.into_inner().into()), roles: roles.into_inner().into(), clusters, node: None };
        Ok(Known { proof, until, grant })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::super::grants::{Grants, NODE};
    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn grants(text: &str) -> Grants {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("secret"), format!("{SECRET}\n")).unwrap();
        Grants::new(None, Some(Tokens::read(&path).unwrap()))
    }

    fn of(grants: &Grants, token: &str, node: Option<&str>) -> Option<Grant> {
        let node = node.map(|node| (NODE.parse().unwrap(), HeaderValue::from_bytes(node.as_bytes()).unwrap()));
        grants.of(token, &node.into_iter().collect::<HeaderMap>())
    }

    #[test]
    fn a_token_is_told_by_itself_by_its_sum_or_by_a_file() {
        let sum = sha256(SECRET.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for secret in [format!("token = {SECRET:?}"), format!("sha256 = {sum:?}"), "file = \"secret\"".to_owned()] {
            let text = format!("[[token]]\nname = \"w\"\n{secret}\nroles = [\"ask\"]\nclusters = [\"west\"]\n");
            let grants = grants(&text);
            let grant = of(&grants, SECRET, Some("a")).unwrap();
            assert_eq!((grant.token.as_deref(), &grant.roles[..]), (Some("w"), &[Role::Ask][..]), "{secret}");
            assert!(grant.clusters.has("west") && !grant.clusters.has("east") && grant.node.is_none(), "{secret}");
            assert!(of(&grants, &sum, None).is_none() && of(&grants, "", None).is_none(), "{secret}");
        }
    }

    #[test]
    fn a_token_is_good_until_its_time_and_the_next_one_may_overlap() {
        let of_time = |name: &str, token: &str, until: &str| {
            format!("[[token]]\nname = {name:?}\ntoken = {token:?}\nroles = [\"ask\"]\nuntil = {until:?}\n")
        };
        let old = of_time("old", "an-old-token-0123", "2001-01-01T00:00:00Z");
        let grants = grants(&(old + &of_time("new", "a-new-token-01234", "2999-01-01T00:00:00+02:00")));
        assert!(of(&grants, "an-old-token-0123", None).is_none());
        assert!(of(&grants, "a-new-token-01234", None).is_some());
    }

    #[test]
    fn a_nodes_token_is_for_this_node_alone_and_the_key_is_no_token() {
        let text = "[[token]]\nname = \"n\"\nfile = \"secret\"\nroles = [\"tell\"]\nper_node = true\n";
        let (grants, key) = (grants(text), Token::new(SECRET).unwrap());
        for node in ["node7", "knoten-ü"] {
            let grant = of(&grants, &key.of_node(node), Some(node)).unwrap();
            assert_eq!(grant.node.as_deref(), Some(node));
        }
        let token = key.of_node("node7");
        for (token, node) in
            [(token.as_str(), Some("node8")), (&token, None), (&token, Some("")), (SECRET, Some("node7"))]
        {
            assert!(of(&grants, token, node).is_none(), "{token} {node:?}");
        }
    }

    #[test]
    fn a_file_is_read_again_when_it_changes_and_a_wrong_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [path, secret] = ["tokens.toml", "secret"].map(|name| folder.path().join(name));
        std::fs::write(&path, "[[token]]\nname = \"a\"\nfile = \"secret\"\nroles = [\"ask\"]\n").unwrap();
        std::fs::write(&secret, "the-first-token-01").unwrap();
        let mut state = State { read: Read::new(&path).unwrap(), looked: Instant::now(), wrong: None };
        let first = Arc::clone(&state.read.known);
        state.look(&path);
        assert!(Arc::ptr_eq(&first, &state.read.known));
        std::fs::write(&secret, "short").unwrap();
        state.look(&path);
        assert!(Arc::ptr_eq(&first, &state.read.known) && state.wrong.is_some());
        std::fs::write(&secret, "the-second-token-012").unwrap();
        state.look(&path);
        assert!(!Arc::ptr_eq(&first, &state.read.known) && state.wrong.is_none());
        let second = Arc::clone(&state.read.known);
        std::fs::remove_file(&path).unwrap();
        state.look(&path);
        assert!(Arc::ptr_eq(&second, &state.read.known) && state.wrong.is_some());
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_column() {
        let begin = "[[token]]\nname = \"a\"\n";
        let whole = format!("{begin}token = {SECRET:?}\nroles = [\"tell\"]\n");
        let sum = "0".repeat(64);
        let cases = [
            ("", (1, 1), "no token in the file"),
            ("[[token]\n", (1, 9), "]"),
            ("[[tokens]]\n", (1, 3), "unknown field `tokens`"),
            (begin, (1, 1), "missing field `roles`"),
            (&format!("{begin}roles = [\"tell\"]\n"), (1, 1), "exactly one"),
            (&format!("{whole}sha256 = {sum:?}\n"), (1, 1), "exactly one"),
            (&format!("{whole}cluster = \"west\"\n"), (5, 1), "unknown field `cluster`"),
            (&format!("{begin}token = \"\"\nroles = [\"ask\"]\n"), (3, 9), "at least 16"),
            (&format!("{begin}token = \"short\"\nroles = [\"ask\"]\n"), (3, 9), "at least 16"),
            (&format!("{begin}sha256 = \"0f\"\nroles = [\"ask\"]\n"), (3, 10), "64 hex"),
            (&format!("{begin}file = \"none\"\nroles = [\"ask\"]\n"), (3, 8), "none"),
            (&format!("{begin}token = {SECRET:?}\nroles = [\"ask\", \"rule\"]\n"), (4, 17), "unknown variant `rule`"),
            (&format!("{begin}token = {SECRET:?}\nroles = []\n"), (4, 9), "needs a role"),
            (&format!("{whole}clusters = []\n"), (5, 12), "leave them out"),
            (&format!("{whole}clusters = [\"\"]\n"), (5, 12), "leave them out"),
            (&format!("{whole}until = \"tomorrow\"\n"), (5, 9), "2026-12-31T00:00:00Z"),
            (&format!("{whole}until = \"2026-12-31\"\n"), (5, 9), "2026-12-31T00:00:00Z"),
            (&format!("{whole}{whole}"), (7, 9), "token of \"a\""),
            (&format!("{begin}sha256 = {sum:?}\nroles = [\"tell\"]\nper_node = true\n"), (3, 10), "secret itself"),
            (
                &format!("{begin}token = {SECRET:?}\nroles = [\"tell\", \"ask\"]\nper_node = true\n"),
                (4, 9),
                "telling alone",
            ),
            (&whole.replace("\"a\"", "\"\""), (2, 8), "needs a name"),
        ];
        for (text, place, what) in cases {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("tokens.toml");
            std::fs::write(&path, text).unwrap();
            let Err(error) = Tokens::read(&path) else { panic!("{text}") };
            let told = error.to_string();
            let SettingsError::Tokens { line, column, .. } = error else { panic!("{text}{told}") };
            assert!(((line, column), told.contains(what)) == (place, true), "{text}{told}");
        }
    }
}
