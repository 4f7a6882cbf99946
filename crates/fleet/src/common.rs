//! What those who are late have in common that the others have not: a switch, a rack, a job, a cause.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::cluster::Straggler;

/// Fewer have something in common by chance.
const FEWEST: usize = 3;
/// What tells workers of a job apart is nothing that they have in common.
const OWN: &[&str] = &["rank", "local_rank", "pod", "container", "task"];

/// What at least nine of ten stragglers have.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
pub struct Common {
    /// A label, or `cause`.
    pub key: String,
    pub value: String,
    /// So many stragglers have it, on so many nodes.
    pub stragglers: usize,
    pub nodes: usize,
    /// So many workers of the cluster have it. Unknown of a cause.
    pub workers: Option<usize>,
}

type Labels = BTreeMap<String, String>;

/// What they have in common, given the labels of all workers.
pub fn of<'l>(stragglers: &[Straggler], all: impl Iterator<Item = &'l Labels>) -> Option<Common> {
    if stragglers.len() < FEWEST {
        return None;
    }
    let most = |needed: usize| needed * 10 >= stragglers.len() * 9;
    let mut having: BTreeMap<(&str, &str), Vec<&Straggler>> = BTreeMap::new();
    for straggler in stragglers {
        let labels = straggler.labels.iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
        let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
        let cause = straggler.why.as_ref().map(|why| ("cause", why.cause.as_str()));
        labels.chain(cause).for_each(|pair| having.entry(pair).or_default().push(straggler));
    }
    having.retain(|_, stragglers| most(stragglers.len()));
    let (mut of_label, mut workers) = (BTreeMap::<(&str, &str), usize>::new(), 0);
    for labels in all {
        workers += 1;
        for pair in having.keys().filter(|(key, value)| labels.get(*key).is_some_and(|own| own == value)) {
            *of_label.entry(*pair).or_default() += 1;
        }
    }
    let candidates = having.iter().filter_map(|(pair, stragglers)| {
        let with_it = (pair.0 != "cause").then(|| of_label.get(pair).copied().unwrap_or(0));
        // What half of all workers have says nothing, and so does what most have who are on time.
        let is_special = with_it.is_none_or(|count| count * 2 < workers && stragglers.len() * 2 >= count);
        is_special.then_some((pair, stragglers, with_it))
    });
    // A place says more than a cause, and the smallest place most.
    let best = candidates.min_by_key(|(pair, _, with_it)| (with_it.unwrap_or(usize::MAX), **pair));
    best.map(|((key, value), stragglers, workers)| {
        let nodes: BTreeSet<&str> = stragglers.iter().map(|one| one.node.as_str()).collect();
        let (key, value) = ((*key).to_owned(), (*value).to_owned());
        Common { key, value, stragglers: stragglers.len(), nodes: nodes.len(), workers }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Why;
    use gpuwhy_model::Severity;

    fn labels(switch: u32, rank: u32) -> Labels {
        [("switch", format!("s{switch}")), ("rank", rank.to_string()), ("user", "ada".to_owned())]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }

    fn straggler(switch: u32, rank: u32, cause: Option<&str>) -> Straggler {
        let why = cause.map(|cause| Why {
            at_ns: 0,
            cause: cause.to_owned(),
            severity: Severity::High,
            summary: String::new(),
            culprit: None,
            place: None,
        });
        Straggler {
            node: format!("n{rank}"),
            pid: rank,
            comm: "python".to_owned(),
            labels: labels(switch, rank),
            communicator: None,
            rank: Some(rank),
            ranks: Some(64),
            since_ns: 0,
            share: 0.1,
            at_a_time_ns: None,
            times: None,
            gpus_idle: 1.0,
            why,
        }
    }

    fn cluster() -> Vec<Labels> {
        (0..64).map(|rank| labels(rank / 8, rank)).collect()
    }

    #[test]
    fn a_switch_behind_which_most_are_late_is_told() {
        let late: Vec<Straggler> = (16..22).map(|rank| straggler(2, rank, None)).collect();
        let found = of(&late, cluster().iter()).unwrap();
        assert_eq!((found.key.as_str(), found.value.as_str()), ("switch", "s2"));
        assert_eq!((found.stragglers, found.nodes, found.workers), (6, 6, Some(8)));
    }

    #[test]
    fn a_cause_is_told_where_there_is_no_place() {
        let late: Vec<Straggler> = (0..4).map(|at| straggler(at, 8 * at, Some("cpu-preempted"))).collect();
        let found = of(&late, cluster().iter()).unwrap();
        assert_eq!((found.key.as_str(), found.value.as_str(), found.workers), ("cause", "cpu-preempted", None));
    }

    #[test]
    fn what_everybody_has_and_what_two_have_is_nothing_in_common() {
        let apart: Vec<Straggler> = (0..4).map(|at| straggler(at, 8 * at, None)).collect();
        assert_eq!(of(&apart, cluster().iter()), None);
        let two: Vec<Straggler> = (16..18).map(|rank| straggler(2, rank, None)).collect();
        assert_eq!(of(&two, cluster().iter()), None);
    }
}
