//! Which clusters somebody may hear of. A question gets to see no others, so it cannot tell of them by mistake.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard};

use gpuwhy_fleet::{Cluster, Rates, UNNAMED};
use gpuwhy_history::{Gathered, HistoryError, Reading};

/// The clusters that somebody may hear of, or tell of.
#[derive(Clone, Debug)]
pub enum Granted {
    All,
    Only(Arc<BTreeSet<String>>),
}

impl Granted {
    pub fn only(names: impl IntoIterator<Item = String>) -> Self {
        Self::Only(Arc::new(names.into_iter().collect()))
    }

    pub fn has(&self, cluster: &str) -> bool {
        let name = if cluster.is_empty() { UNNAMED } else { cluster };
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// What a fleet knows of the clusters that are granted. The others are as if they were not there.
pub struct GrantedFleet<'a> {
    pub(crate) gathered: MutexGuard<'a, Gathered>,
    pub(crate) granted: Granted,
}

impl GrantedFleet<'_> {
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.gathered.clusters.names().filter(|name| self.granted.has(name))
    }

    /// The one of this name; of no name, the only one there is.
    pub fn find(&self, name: Option<&str>) -> Option<(&str, &Cluster)> {
        let mut known = self.names();
        let name = match name {
            Some(name) => known.find(|known| *known == name)?,
            None => known.next().filter(|_| known.next().is_none())?,
        };
        self.gathered.clusters.find(Some(name))
    }

    /// When ranks were compared last.
    pub fn judged_ns(&self) -> u64 {
        self.gathered.clusters.judged_ns()
    }

    /// What is kept of one of them.
    pub fn read(&self, cluster: &str) -> Result<Reading, HistoryError> {
        let missing = || HistoryError::NotFound { cluster: cluster.to_owned() };
        if self.granted.has(cluster) { self.gathered.read(cluster) } else { Err(missing()) }
    }

    /// Messages that were told and not kept.
    pub fn not_kept(&self) -> u64 {
        self.gathered.not_kept()
    }

    /// What an hour of a GPU costs.
    pub fn rates(&self) -> Option<Rates> {
        self.gathered.rates.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn only(names: &[&str]) -> Granted {
        Granted::only(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn what_is_not_granted_is_not_there() {
        let told = Mutex::new(Gathered::default());
        for name in ["west", "east", ""] {
            told.lock().unwrap().clusters.cluster(name).unwrap();
        }
        let found = |granted, wanted: Option<&str>| {
            let clusters = GrantedFleet { gathered: told.lock().unwrap(), granted };
            let names = clusters.names().collect::<Vec<_>>().join(" ");
            (clusters.find(wanted).map(|(name, _)| name.to_owned()), names)
        };
        assert_eq!(found(Granted::All, None), (None, "default east west".to_owned()));
        assert_eq!(found(Granted::All, Some("east")).0.as_deref(), Some("east"));
        assert_eq!(found(only(&["west", "north"]), None), (Some("west".to_owned()), "west".to_owned()));
        assert_eq!(found(only(&["west"]), Some("east")), (None, "west".to_owned()));
        assert_eq!(found(only(&["west", "east"]), None), (None, "east west".to_owned()));
        assert_eq!(found(only(&[]), None), (None, String::new()));
    }

    #[test]
    fn a_cluster_without_a_name_is_granted_by_the_name_that_it_is_given() {
        assert!(only(&[UNNAMED]).has("") && !only(&["west"]).has(""));
    }
}
