//! Where the process runs: its cgroup, container and pod.

use super::Surroundings;

pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    let process = surroundings.process;
    let cgroup = Some(process.cgroup.as_str()).filter(|path| !path.is_empty() && *path != "/");
    let found = [
        ("cgroup", cgroup.map(str::to_owned)),
        ("container", process.container_id.clone()),
        ("pod_uid", cgroup.and_then(pod_uid)),
    ];
    found.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// `pod` and 32 hexadecimal digits in groups. With systemd the groups are joined by `_`, else by `-`.
pub(super) fn pod_uid(cgroup: &str) -> Option<String> {
    const UID_BYTES: usize = 36;
    let starts = cgroup.match_indices("pod").map(|(at, word)| at + word.len());
    let candidates = starts.filter_map(|start| cgroup.get(start..start + UID_BYTES));
    let mut uids = candidates.map(|uid| uid.replace('_', "-")).filter(|uid| is_uid(uid));
    uids.next()
}

fn is_uid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let is_hexadecimal = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(is_hexadecimal)
}
