//! Which pod it is in, by the names that people know. The kubelet names folders and files of logs after them, so that nobody
//! has to ask the cluster.

use std::path::Path;

use super::{Surroundings, place};
use crate::samplers::names;

/// A folder `NAMESPACE_POD_UID` for each pod.
const PODS: &str = "var/log/pods";
/// A file `POD_NAMESPACE_NAME-ID.log` for each container.
const CONTAINERS: &str = "var/log/containers";

pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    let Surroundings { process, root, .. } = surroundings;
    let Some(uid) = place::pod_uid(&process.cgroup) else { return Vec::new() };
    let (namespace, pod) = pod_of(root, &uid).unzip();
    let container = process.container_id.as_deref().and_then(|id| container_of(root, id));
    let found = [("pod", pod), ("namespace", namespace), ("container_name", container)];
    found.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn pod_of(root: &Path, uid: &str) -> Option<(String, String)> {
    names(&root.join(PODS)).iter().find_map(|folder| {
        let (namespace, pod) = folder.strip_suffix(uid)?.strip_suffix('_')?.split_once('_')?;
        Some((namespace.to_owned(), pod.to_owned()))
    })
}

fn container_of(root: &Path, id: &str) -> Option<String> {
    let ending = format!("-{id}.log");
    let file = names(&root.join(CONTAINERS)).into_iter().find(|file| file.ends_with(&ending))?;
    Some(file.strip_suffix(&ending)?.rsplit_once('_')?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";

    #[test]
    fn the_kubelets_logs_name_pods_and_containers() {
        let root = tempfile::tempdir().unwrap();
        for folder in
            ["kube-system_proxy-x2_1a1b2c3d-4e5f-6789-abcd-ef0123456789".to_owned(), format!("ml_train-0.a_{UID}")]
        {
            std::fs::create_dir_all(root.path().join(PODS).join(folder)).unwrap();
        }
        std::fs::create_dir_all(root.path().join(CONTAINERS)).unwrap();
        for file in ["train-0.a_ml_trainer-77aa.log", "train-0.a_ml_sidecar-78bb.log"] {
            std::fs::write(root.path().join(CONTAINERS).join(file), "").unwrap();
        }
        assert_eq!(pod_of(root.path(), UID), Some(("ml".to_owned(), "train-0.a".to_owned())));
        assert_eq!(container_of(root.path(), "77aa").as_deref(), Some("trainer"));
        let unknown = "ffffffff-4e5f-6789-abcd-ef0123456789";
        assert_eq!((pod_of(root.path(), unknown), container_of(root.path(), "aa")), (None, None));
        assert_eq!(pod_of(Path::new("/no/such/root"), UID), None, "no node of a cluster");
    }
}
