//! How other hosts are named: a name or an address, with a port and how to speak where they are not the usual ones.

use std::net::IpAddr;
use std::str::FromStr;

use axum::http::Uri;

/// Where `trace --serve` listens unless it is told otherwise.
pub const PORT: u16 = 9465;

/// A host that serves its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// As it was named.
    pub name: String,
    /// With neither path nor slash at its end.
    pub(super) origin: String,
}

impl FromStr for Node {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} names no host, as node7, 10.0.0.7:{PORT} or https://node7:{PORT} do");
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (Some(scheme), rest.strip_suffix('/').unwrap_or(rest)),
            Some(_) => return Err(wrong()),
            None => (None, text),
        };
        // An address of IPv6 that stands alone has no brackets.
        let bare = rest.parse::<IpAddr>().ok().filter(IpAddr::is_ipv6).map(|address| format!("[{address}]"));
        let address: Uri = bare.as_deref().unwrap_or(rest).parse().map_err(|_| wrong())?;
        let authority = address.authority().ok_or_else(wrong)?;
        let host = authority.host();
        if host.is_empty() || authority.as_str().contains('@') || address.path_and_query().is_some() {
            return Err(wrong());
        }
        let port = match authority.as_str().len() == host.len() {
            true => PORT,
            false => authority.port_u16().filter(|port| *port > 0).ok_or_else(wrong)?,
        };
        let scheme = scheme.unwrap_or(if is_this_host(host) { "http" } else { "https" });
        Ok(Self { name: rest.to_owned(), origin: format!("{scheme}://{host}:{port}") })
    }
}

/// What does not leave this host needs no encryption.
fn is_this_host(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    address.map_or(host.eq_ignore_ascii_case("localhost"), |address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_usual_port_and_is_spoken_to_in_secret_unless_it_is_this_one() {
        let known = [
            ("node7", "https://node7:9465"),
            ("node7:80", "https://node7:80"),
            ("10.0.0.7", "https://10.0.0.7:9465"),
            ("http://10.0.0.7:1", "http://10.0.0.7:1"),
            ("https://node7.example/", "https://node7.example:9465"),
            ("localhost", "http://localhost:9465"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://localhost", "https://localhost:9465"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("::1", "http://[::1]:9465"),
            ("fe80::7", "https://[fe80::7]:9465"),
        ];
        for (text, origin) in known {
            assert_eq!(text.parse::<Node>().unwrap().origin, origin, "{text}");
        }
        assert_eq!("https://node7:1/".parse::<Node>().unwrap().name, "node7:1");
    }

    #[test]
    fn what_names_no_host_is_refused() {
        let nothing =
            ["", " ", "a b", ":80", "node7:", "node7:0", "node7:99999", "node7/path", "http://", "ftp://node7"];
        let more = ["user@node7", "user:secret@node7", "http://node7/api", "node7?x=1", "node7:80:80", "http://a/b/"];
        for text in nothing.into_iter().chain(more) {
            assert!(text.parse::<Node>().is_err(), "{text}");
        }
    }
}
