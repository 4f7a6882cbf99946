//! Where it is sent, by which protocol, with which headers and as whose: one address, and what OpenTelemetry's environment
//! variables say.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};

/// The variables that are heeded.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// How the protocols are called there.
const PROTOCOLS: &[(&str, Protocol)] = &[("grpc", Protocol::Grpc), ("http/protobuf", Protocol::Http)];

/// What an address begins with, what that says of the protocol, whether it is with TLS, and the port where none is named.
const SCHEMES: &[(&str, Option<Protocol>, bool, u16)] = &[
    ("http", None, false, 80),
    ("https", None, true, 443),
    ("grpc", Some(Protocol::Grpc), false, 4317),
    ("grpcs", Some(Protocol::Grpc), true, 4317),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Grpc,
}

/// Where it is sent, and as whose.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// Without the part that says what is sent.
    pub(super) endpoint: String,
    pub(super) protocol: Protocol,
    pub(super) is_tls: bool,
    /// Without the brackets around an address of IPv6.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) headers: HeaderMap,
    pub(super) attributes: Vec<(String, String)>,
}

impl OtlpSettings {
    /// `variable` says what an environment variable is set to; nothing where it is not.
    pub fn new(endpoint: &str, variable: impl Fn(&str) -> String) -> Result<Self, String> {
        let endpoint = endpoint.trim_end_matches('/');
        let wrong = || {
            format!("{endpoint} is no address of a receiver, such as http://127.0.0.1:4318 or grpc://127.0.0.1:4317")
        };
        let address: Uri = endpoint.parse().map_err(|_| wrong())?;
        let scheme = SCHEMES.iter().find(|(scheme, ..)| address.scheme_str() == Some(scheme));
        let host = address.host().filter(|host| !host.is_empty());
        let (&(_, told, is_tls, port), host) = scheme.zip(host).ok_or_else(wrong)?;
        let protocol = told.map_or_else(|| protocol(&variable(PROTOCOL)), Ok)?;
        if protocol == Protocol::Grpc && address.path().len() > 1 {
            return Err(format!("{endpoint} has a path, which gRPC does not have: http://127.0.0.1:4317"));
        }
        let mut attributes = pairs(&variable(ATTRIBUTES), ATTRIBUTES)?;
        let service = variable(SERVICE);
        if !service.is_empty() {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.push(("service.name".to_owned(), service));
        }
        Ok(Self {
            endpoint: endpoint.to_owned(),
            protocol,
            is_tls,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: address.port_u16().unwrap_or(port),
            headers: headers(&variable(HEADERS))?,
            attributes,
        })
    }
}

fn protocol(told: &str) -> Result<Protocol, String> {
    let known = PROTOCOLS.iter().find(|(name, _)| *name == told).map(|(_, protocol)| *protocol);
    let wrong = || {
        let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
        format!("{PROTOCOL} is {told}, but can only be {}", names.join(" or "))
    };
    if told.is_empty() { Ok(Protocol::Http) } else { known.ok_or_else(wrong) }
}

fn headers(text: &str) -> Result<HeaderMap, String> {
    let wrong = |what: &str| format!("{HEADERS} has a {what} that no header can have");
    let mut headers = HeaderMap::new();
    for (key, value) in pairs(text, HEADERS)? {
        let name = HeaderName::try_from(key).map_err(|_| wrong("name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong("value"))?;
        // It may be a token.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn pairs(text: &str, variable: &str) -> Result<Vec<(String, String)>, String> {
    let pair = |part: &str| match part.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), decoded(value.trim()))),
        // Values may be secrets: they are not repeated.
        _ => Err(format!("{variable} is not of the form key=value,key=value")),
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

/// A text in which bytes are written as `%20`, as here and in the messages of gRPC.
pub(super) fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut plain, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let written = digits.filter(|_| byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(written.unwrap_or(byte));
        at += if written.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: &str, variables: &[(&str, &str)]) -> Result<OtlpSettings, String> {
        let set = |name: &str| variables.iter().find(|(set, _)| *set == name).map_or("", |(_, value)| value).to_owned();
        OtlpSettings::new(endpoint, set)
    }

    #[test]
    fn the_address_or_the_variable_says_which_protocol_it_is() {
        let grpc = &[(PROTOCOL, "grpc")][..];
        for (endpoint, variables, expected) in [
            ("http://127.0.0.1:4318/", &[][..], (Protocol::Http, false, "127.0.0.1", 4318)),
            ("https://collector/otlp", &[(PROTOCOL, "http/protobuf")], (Protocol::Http, true, "collector", 443)),
            ("http://collector:4317", grpc, (Protocol::Grpc, false, "collector", 4317)),
            ("https://[::1]:4317/", grpc, (Protocol::Grpc, true, "::1", 4317)),
            ("grpc://collector", &[(PROTOCOL, "http/protobuf")], (Protocol::Grpc, false, "collector", 4317)),
            ("grpcs://collector:443", &[], (Protocol::Grpc, true, "collector", 443)),
        ] {
            let found = settings(endpoint, variables).unwrap();
            assert_eq!((found.protocol, found.is_tls, &*found.host, found.port), expected, "{endpoint}");
        }
    }

    #[test]
    fn an_address_that_is_none_and_pairs_that_are_none_are_refused() {
        for endpoint in ["localhost:4318", "ftp://x", "http://", "grpc:", "http://a b", ""] {
            let error = settings(endpoint, &[]).unwrap_err();
            assert!(error.contains("http://127.0.0.1:4318") && error.contains("grpc://127.0.0.1:4317"), "{error}");
        }
        let error = settings("grpc://x/v1/traces", &[]).unwrap_err();
        assert!(error.contains("has a path"), "{error}");
        let error = settings("http://x", &[(PROTOCOL, "http/json")]).unwrap_err();
        assert!(error.contains("http/json") && error.contains("grpc or http/protobuf"), "{error}");
        for wrong in ["authorization: Bearer secret", "author ization=secret", "authorization=secret%0a"] {
            let error = settings("http://x", &[(HEADERS, wrong)]).unwrap_err();
            assert!(error.contains(HEADERS) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn values_are_decoded_and_headers_are_kept_to_oneself() {
        let variables =
            [(HEADERS, "Authorization=Basic%20c2VjcmV0"), (ATTRIBUTES, "service.name=x,a=50%"), (SERVICE, "mine")];
        let settings = settings("http://x", &variables).unwrap();
        assert_eq!(settings.headers["authorization"], "Basic c2VjcmV0");
        assert!(!format!("{settings:?}").contains("c2VjcmV0"));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(settings.attributes, [pair("a", "50%"), pair("service.name", "mine")]);
    }
}
