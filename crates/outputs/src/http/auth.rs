//! Who may enter: the right token, by a name that is this server's, not sent by a page of somebody else.

use std::net::IpAddr;
use std::path::Path;

use axum::http::header::{AUTHORIZATION, AsHeaderName, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri};

use super::SettingsError;
use super::grants::{Grant, Grants, TOLD_AT};
use crate::Refusal;

/// What clients have to know. It is never printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub const LEAST: usize = 16;

    pub fn new(text: &str) -> Result<Self, SettingsError> {
        let text = text.trim();
        match text.len() >= Self::LEAST && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.to_owned())),
            false => Err(SettingsError::BadToken),
        }
    }

    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path);
        Self::new(&text.map_err(|source| SettingsError::TokenFile { path: path.into(), source })?)
    }

    /// As it is shown to another server.
    pub(crate) fn as_header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

pub struct Entrance {
    pub grants: Grants,
    pub allowed_hosts: Vec<String>,
}

impl Entrance {
    /// Whether it may enter: if so, what it may do here.
    pub fn admit(&self, uri: &Uri, headers: &HeaderMap, reached_at: IpAddr) -> Result<Grant, Refusal> {
        refuse_token_in_url(uri)?;
        let host = self.host(uri, headers, reached_at)?;
        self.refuse_foreign_pages(headers, &host)?;
        match self.grants.are_open() || is_open(uri.path()) {
            true => Ok(Grant::everything()),
            false => self.grant(headers),
        }
    }

    /// What the token is good for that it shows.
    fn grant(&self, headers: &HeaderMap) -> Result<Grant, Refusal> {
        if !headers.contains_key(AUTHORIZATION) {
            return Err(Refusal::NoToken);
        }
        let shown = only(headers, AUTHORIZATION).and_then(|value| value.split_once(' '));
        let token = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        token.and_then(|token| self.grants.of(token, headers)).ok_or(Refusal::WrongToken)
    }

    /// The name it is called by. A page that had its own name resolved to this machine still sends its own name.
    fn host(&self, uri: &Uri, headers: &HeaderMap, reached_at: IpAddr) -> Result<Authority, Refusal> {
        let host: Authority = only(headers, HOST).and_then(|host| host.parse().ok()).ok_or(Refusal::ForeignHost)?;
        let named = [Some(&host), uri.authority()];
        let is_ours = |name: &&Authority| self.is_own_name(name.host(), reached_at);
        match named.iter().flatten().all(is_ours) {
            true => Ok(host),
            false => Err(Refusal::ForeignHost),
        }
    }

    /// A number cannot be made to point elsewhere; a name can, so it has to be known.
    fn is_own_name(&self, name: &str, reached_at: IpAddr) -> bool {
        let number: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
        match number.map(|number| number.to_canonical()) {
            Some(number) => number.is_loopback() || number == reached_at.to_canonical() || self.is_allowed(name),
            None => name.eq_ignore_ascii_case("localhost") || self.is_allowed(name),
        }
    }

    fn is_allowed(&self, name: &str) -> bool {
        self.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
    }

    /// Browsers say which page sends a request: only one that came from here may, or from a host that is allowed.
    fn refuse_foreign_pages(&self, headers: &HeaderMap, host: &Authority) -> Result<(), Refusal> {
        if !headers.contains_key(ORIGIN) {
            return Ok(());
        }
        let page = only(headers, ORIGIN).and_then(|origin| {
            let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))?;
            rest.parse::<Authority>().ok()
        });
        match page {
            Some(page) if page == *host || self.is_allowed(page.host()) => Ok(()),
            _ => Err(Refusal::ForeignOrigin),
        }
    }
}

/// The dashboard's files hold no data, and which version this is no secret.
fn is_open(path: &str) -> bool {
    let closed = ["/api", "/mcp"].iter().chain(TOLD_AT);
    path == "/api/versions" || !closed.into_iter().any(|closed| path.starts_with(closed))
}

/// The value of a header that is there once: of two, nobody knows which one another program would believe.
pub(super) fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = std::str::from_utf8(values.next()?.as_bytes()).ok()?;
    values.next().is_none().then_some(value)
}

const TOKEN_NAMES: &[&str] = &["token", "access_token", "auth_token", "api_key", "apikey", "bearer", "authorization"];

fn refuse_token_in_url(uri: &Uri) -> Result<(), Refusal> {
    let names = uri.query().unwrap_or_default().split(['&', ';']).filter_map(|pair| pair.split('=').next());
    match names.map(decoded).any(|name| TOKEN_NAMES.contains(&name.as_str())) {
        true => Err(Refusal::TokenInUrl),
        false => Ok(()),
    }
}

/// Percent-encoding taken off, in lower case.
fn decoded(name: &str) -> String {
    let bytes = name.as_bytes();
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = name.get(at + 1..at + 3).filter(|_| byte == b'%');
        let encoded = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        text.push(encoded.unwrap_or(byte));
        at += if encoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;
    use crate::otlp::LOGS;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn admit(uri: &str, headers: &[(HeaderName, &str)]) -> Result<bool, &'static str> {
        let entrance = Entrance {
            grants: Grants::new(Some(&Token::new(TOKEN).unwrap()), None),
            allowed_hosts: vec!["gpu7.example".to_owned()],
        };
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(name, HeaderValue::from_str(value).unwrap());
        }
        let reached_at = "10.0.0.7".parse().unwrap();
        let admitted = entrance.admit(&uri.parse().unwrap(), &all, reached_at);
        admitted.map(|grant| grant.token.is_some()).map_err(|refusal| refusal.code())
    }

    fn with_token(uri: &str, headers: &[(HeaderName, &str)]) -> Result<bool, &'static str> {
        let bearer = format!("Bearer {TOKEN}");
        admit(uri, &[headers, &[(AUTHORIZATION, bearer.as_str())]].concat())
    }

    #[test]
    fn the_server_goes_by_loopback_names_its_address_and_what_is_allowed() {
        for host in ["localhost:1", "LOCALHOST", "127.0.0.1:9", "127.3.2.1", "[::1]:8", "10.0.0.7:8080", "gpu7.example"]
        {
            assert_eq!(with_token("/api/v1/health", &[(HOST, host)]), Ok(true), "{host}");
        }
        let foreign = ["evil.example", "10.0.0.8", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "", "@"];
        for host in foreign {
            assert_eq!(with_token("/api/v1/health", &[(HOST, host)]), Err("foreign_host"), "{host}");
        }
        assert_eq!(with_token("/api/v1/health", &[]), Err("foreign_host"));
        assert_eq!(with_token("/api/v1/health", &[(HOST, "localhost"), (HOST, "localhost")]), Err("foreign_host"));
        assert_eq!(with_token("http://evil.example/api/v1/health", &[(HOST, "localhost")]), Err("foreign_host"));
    }

    #[test]
    fn only_pages_of_this_very_port_may_ask() {
        let from = |origin| with_token("/mcp", &[(HOST, "localhost:8080"), (ORIGIN, origin)]);
        assert_eq!(from("http://localhost:8080"), Ok(true));
        assert_eq!(from("https://gpu7.example"), Ok(true));
        for origin in ["http://localhost:3000", "http://localhost", "null", "http://evil.example", "file://", ""] {
            assert_eq!(from(origin), Err("foreign_origin"), "{origin}");
        }
    }

    #[test]
    fn a_token_is_shown_in_its_header_once_and_right() {
        let health = |value: &str| admit("/api/v1/health", &[(HOST, "localhost"), (AUTHORIZATION, value)]);
        assert_eq!(health(&format!("bearer {TOKEN}")), Ok(true));
        let prefix = format!("Bearer {}", &TOKEN[..31]);
        for wrong in [TOKEN, "Bearer ", "Bearer x", prefix.as_str(), "Basic abc"] {
            assert_eq!(health(wrong), Err("wrong_token"), "{wrong}");
        }
        assert_eq!(admit("/api/v1/health", &[(HOST, "localhost")]), Err("no_token"));
        assert_eq!(admit("/api", &[(HOST, "localhost")]), Err("no_token"));
        assert_eq!(admit("/mcp/x", &[(HOST, "localhost")]), Err("no_token"));
        assert_eq!(admit("/v1/logs", &[(HOST, "localhost")]), Err("no_token"));
        assert_eq!(admit(LOGS.method, &[(HOST, "localhost")]), Err("no_token"));
        assert_eq!(admit("/api/versions", &[(HOST, "localhost")]), Ok(false));
        assert_eq!(admit("/", &[(HOST, "localhost")]), Ok(false));
    }

    #[test]
    fn a_token_in_a_url_is_refused_however_it_is_spelt() {
        for query in ["token=a", "x=1&access_token=b", "TOKEN=a", "%74oken=a", "to%6Ben=a", "token", "a;token=b"] {
            let asked = with_token(&format!("/api/v1/health?{query}"), &[(HOST, "localhost")]);
            assert_eq!(asked, Err("token_in_url"), "{query}");
        }
        assert_eq!(with_token("/api/v1/health?tokens=a&x=token", &[(HOST, "localhost")]), Ok(true));
    }

    #[test]
    fn a_short_token_is_no_token() {
        assert!(Token::new("0123456789abcde").is_err());
        assert!(Token::new("0123456789abcdef\n").is_ok());
        assert!(Token::new("0123456789 abcdef").is_err());
        assert!(Token::new("").is_err());
    }
}
