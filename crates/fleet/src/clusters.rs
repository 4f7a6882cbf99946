//! Several clusters that tell the same fleet. They know nothing of each other.

use std::collections::BTreeMap;

use crate::cluster::Cluster;

/// What a cluster is called that says nothing of it.
pub const UNNAMED: &str = "default";

const MOST_CLUSTERS: usize = 64;

#[derive(Default)]
pub struct Clusters {
    by_name: BTreeMap<String, Cluster>,
    judged_ns: u64,
}

impl Clusters {
    /// The one of this name, which is there from now on. `None` where there are too many already.
    pub fn cluster(&mut self, name: &str) -> Option<&mut Cluster> {
        let name = if name.is_empty() { UNNAMED } else { name };
        if !self.by_name.contains_key(name) && self.by_name.len() >= MOST_CLUSTERS {
            return None;
        }
        Some(self.by_name.entry(name.to_owned()).or_default())
    }

    /// The one of this name; of no name, the only one there is.
    pub fn find(&self, name: Option<&str>) -> Option<(&str, &Cluster)> {
        match name {
            Some(name) => self.by_name.get_key_value(name).map(|(name, cluster)| (name.as_str(), cluster)),
            None if self.by_name.len() > 1 => None,
            None => self.by_name.iter().next().map(|(name, cluster)| (name.as_str(), cluster)),
        }
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn all(&self) -> impl Iterator<Item = (&str, &Cluster)> {
        self.by_name.iter().map(|(name, cluster)| (name.as_str(), cluster))
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = (&str, &mut Cluster)> {
        self.by_name.iter_mut().map(|(name, cluster)| (name.as_str(), cluster))
    }

    pub fn judge(&mut self, now_ns: u64) {
        self.judged_ns = now_ns;
        self.by_name.values_mut().for_each(|cluster| cluster.judge(now_ns));
    }

    /// Time has passed in which nobody could tell anything: nobody is gone for that.
    pub fn wake(&mut self, now_ns: u64) {
        self.by_name.values_mut().for_each(|cluster| cluster.wake(now_ns));
    }

    /// When ranks were compared last.
    pub fn judged_ns(&self) -> u64 {
        self.judged_ns
    }
}
