//! What somebody who enters may do: ask or tell, of which clusters, as which node. That follows from the token that is shown, and
//! how long it takes to know a token tells nothing of it.

use std::sync::Arc;

use axum::http::HeaderMap;
use gpuwhy_questions::Granted;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde::Deserialize;
use subtle::ConstantTimeEq;

use super::Token;
use super::auth::only;
use super::tokens::Tokens;
use crate::Refusal;

/// The header in which an agent says which node it tells of.
pub const NODE: &str = "gpuwhy-node";
/// Where paths begin at which a fleet is told, over HTTP and over gRPC.
pub const TOLD_AT: &[&str] = &["/v1/", "/opentelemetry."];
/// What the token is called that is not of a file of tokens.
const DEFAULT: &str = "default";

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Asks questions.
    Ask,
    /// Tells of a node.
    Tell,
}

impl Role {
    const ALL: [Self; 2] = [Self::Ask, Self::Tell];

    /// What somebody does who wants this path.
    pub fn of(path: &str) -> Self {
        if TOLD_AT.iter().any(|told| path.starts_with(told)) { Self::Tell } else { Self::Ask }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Tell => "tell",
        }
    }
}

/// What somebody who has entered may do.
#[derive(Clone, Debug)]
pub struct Grant {
    /// What the token is called that was shown.
    pub token: Option<Arc<str>>,
    pub roles: Arc<[Role]>,
    pub clusters: Granted,
    /// The only node as which it tells.
    pub node: Option<Arc<str>>,
}

impl Grant {
    /// Where nothing has to be shown.
    pub fn everything() -> Self {
        Self { token: None, roles: Role::ALL.into(), clusters: Granted::All, node: None }
    }

    pub fn permit(&self, role: Role) -> Result<(), Refusal> {
        if self.roles.contains(&role) { Ok(()) } else { Err(Refusal::WrongRole { role: role.as_str() }) }
    }

    /// Whether it may tell of this node of this cluster.
    pub fn permit_telling(&self, cluster: &str, node: Option<&str>) -> Result<(), Refusal> {
        self.permit(Role::Tell)?;
        if !self.clusters.has(cluster) {
            return Err(Refusal::ForeignCluster { cluster: cluster.to_owned() });
        }
        match &self.node {
            Some(own) if node != Some(own) => Err(Refusal::ForeignNode { own: own.to_string() }),
            _ => Ok(()),
        }
    }
}

/// A token that is known, or what the tokens of nodes are made of.
pub struct Known {
    pub proof: Proof,
    /// From when on it is good for nothing.
    pub until: Option<Timestamp>,
    pub grant: Grant,
}

pub enum Proof {
    /// The SHA-256 of the token.
    Token([u8; 32]),
    /// A node's token is the HMAC of its name under this key.
    KeyOfNodes(hmac::Key),
}

impl Known {
    /// What is granted to somebody who shows this.
    fn grant(&self, shown: &Shown<'_>) -> Option<Grant> {
        match &self.proof {
            Proof::Token(sha256) => bool::from(sha256.ct_eq(&shown.sha256)).then(|| self.grant.clone()),
            Proof::KeyOfNodes(key) => {
                let (node, code) = shown.node.zip(shown.code)?;
                hmac::verify(key, node.as_bytes(), &code).ok()?;
                Some(Grant { node: Some(node.into()), ..self.grant.clone() })
            }
        }
    }
}

/// What somebody shows who wants to enter.
struct Shown<'a> {
    sha256: [u8; 32],
    node: Option<&'a str>,
    /// The token as the bytes that a node's token stands for.
    code: Option<[u8; 32]>,
}

/// All tokens with which one may enter.
pub struct Grants {
    tokens: Option<Tokens>,
    default: Option<Known>,
}

impl Grants {
    pub fn new(token: Option<&Token>, tokens: Option<Tokens>) -> Self {
        let default = token.map(|token| Known {
            proof: Proof::Token(sha256(token.as_bytes())),
            until: None,
            grant: Grant { token: Some(DEFAULT.into()), ..Grant::everything() },
        });
        Self { tokens, default }
    }

    /// Whether nobody has to show anything.
    pub fn are_open(&self) -> bool {
        self.tokens.is_none() && self.default.is_none()
    }

    /// What this token is good for now. One that a file restricts is restricted, also where it is the default one.
    pub fn of(&self, token: &str, headers: &HeaderMap) -> Option<Grant> {
        let (now, node) = (Timestamp::now(), only(headers, NODE));
        let shown = Shown { sha256: sha256(token.as_bytes()), node, code: from_hex(token) };
        let of_file = self.tokens.as_ref().map(Tokens::now);
        let all = of_file.iter().flat_map(|known| known.iter()).chain(&self.default);
        let good = all.filter(|known| known.until.is_none_or(|until| now < until));
        good.filter_map(|known| known.grant(&shown)).next()
    }
}

impl Token {
    /// The token with which an agent tells as this node, where this one is the key.
    pub fn of_node(&self, node: &str) -> String {
        let code = hmac::sign(&self.key_of_nodes(), node.as_bytes());
        code.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn key_of_nodes(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.as_bytes())
    }
}

pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}

/// 32 bytes as 64 digits.
pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 2 * bytes.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(refused: Result<(), Refusal>) -> Option<&'static str> {
        refused.err().map(|refusal| refusal.code())
    }

    #[test]
    fn a_path_wants_one_role_and_no_other() {
        assert_eq!(["/v1/metrics", "/v1/logs"].map(Role::of), [Role::Tell; 2]);
        assert_eq!(["/mcp", "/api/v1/health", "/", "/v1"].map(Role::of), [Role::Ask; 4]);
    }

    #[test]
    fn nobody_tells_of_another_cluster_or_as_another_node() {
        let everything = Grant::everything();
        assert_eq!(told(everything.permit_telling("", None)), None);
        let teller = Grant { roles: [Role::Tell].into(), clusters: Granted::only(["west".to_owned()]), ..everything };
        assert_eq!(told(teller.permit_telling("west", Some("a"))), None);
        assert_eq!(told(teller.permit_telling("east", Some("a"))), Some("foreign_cluster"));
        assert_eq!(told(teller.permit_telling("", Some("a"))), Some("foreign_cluster"));
        assert_eq!(told(teller.permit(Role::Ask)), Some("wrong_role"));
        let of_node = Grant { node: Some("a".into()), ..teller.clone() };
        assert_eq!(told(of_node.permit_telling("west", Some("a"))), None);
        for node in [None, Some(""), Some("b"), Some("A")] {
            assert_eq!(told(of_node.permit_telling("west", node)), Some("foreign_node"), "{node:?}");
        }
        let asker = Grant { roles: [Role::Ask].into(), ..teller };
        assert_eq!(told(asker.permit_telling("west", Some("a"))), Some("wrong_role"));
    }

    /// By `printf %s node7 | openssl dgst -sha256 -hmac 0123456789abcdef`.
    #[test]
    fn a_nodes_token_is_one_that_anybody_can_compute() {
        let token = Token::new("0123456789abcdef\n").unwrap().of_node("node7");
        assert_eq!(token, "8c8fd43193d25ee9692ccbf6db19b32b908057a7e5bcea8dbb9ab4038781a833");
    }

    #[test]
    fn digits_are_32_bytes_or_nothing() {
        assert_eq!(from_hex(&"0fF0".repeat(16)), Some([0x0f, 0xf0].repeat(16).try_into().unwrap()));
        for text in ["", "0f", &"+f".repeat(32), &"é".repeat(32), &"0".repeat(63), &"0".repeat(65)] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
