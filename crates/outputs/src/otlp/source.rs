//! Who tells: what all that is sent has in common.

use super::messages::{KeyValue, Resource, Scope, attribute};
use super::now_ns;
use super::settings::OtlpSettings;

pub struct Source {
    attributes: Vec<KeyValue>,
    /// When the trace began.
    pub since_ns: u64,
}

impl Source {
    pub fn new(settings: &OtlpSettings) -> Self {
        let read = |file: &str| std::fs::read_to_string(file).map_or(String::new(), |text| text.trim().to_owned());
        let host = read("/proc/sys/kernel/hostname");
        let known = [
            ("service.name", "gpuwhy".to_owned()),
            ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
            // There is one on a host. Receivers that keep nothing else of a resource tell hosts apart by it.
            ("service.instance.id", host.clone()),
            ("host.name", host),
            ("host.id", read("/etc/machine-id")),
            ("os.type", "linux".to_owned()),
        ];
        let is_given = |key: &str| settings.attributes.iter().any(|(given, _)| given == key);
        let own = known.iter().filter(|(key, value)| !value.is_empty() && !is_given(key));
        let own = own.map(|(key, value)| attribute(key, value.as_str()));
        let given = settings.attributes.iter().map(|(key, value)| attribute(key, value.as_str()));
        Self { attributes: own.chain(given).collect(), since_ns: now_ns() }
    }

    pub fn resource(&self) -> Resource {
        Resource { attributes: self.attributes.clone() }
    }

    pub fn scope(&self) -> Scope {
        Scope { name: "gpuwhy".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}
