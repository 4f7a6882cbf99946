//! What processes belong to: keys and values that their surroundings give them.
//!
//! To add a source, write its file and its line in [`LABELS`]. A key has one value: the first source that knows it wins.

mod given;
mod job;
mod place;
mod pod;
mod rank;
mod slice;
mod user;

use std::path::Path;

use gpuwhy_model::{Label, Process};
use hashbrown::HashMap;

/// Every source of labels. What the user says comes first.
pub const LABELS: &[Source] =
    &[given::labels, place::labels, pod::labels, job::labels, rank::labels, slice::labels, user::labels];

/// Pairs of a key and a value.
type Source = fn(&Surroundings<'_>) -> Vec<(String, String)>;

/// What is known about a process.
pub struct Surroundings<'a> {
    pub process: &'a Process,
    pub environment: &'a Environment,
    /// Labels that the user gives to all processes of the trace.
    pub given: &'a [Label],
    /// Of the file system.
    pub root: &'a Path,
}

/// The variables a process was started with. Hostile input.
#[derive(Default)]
pub struct Environment(HashMap<String, String>);

/// Longer keys and values are cut off: they come from programs that anybody may have written.
const MOST_BYTES: usize = 256;

pub fn labels_of(surroundings: &Surroundings<'_>) -> Vec<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for (key, value) in LABELS.iter().flat_map(|source| source(surroundings)) {
        if !value.is_empty() && !labels.iter().any(|label| label.key == key) {
            labels.push(Label { key: cut(&key), value: cut(&value) });
        }
    }
    labels
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MOST_BYTES)].to_owned()
}

impl Environment {
    /// From the bytes of `/proc/PID/environ`.
    pub fn parse(bytes: &[u8]) -> Self {
        let entries = bytes.split(|&byte| byte == 0).map(String::from_utf8_lossy);
        Self(entries.filter_map(|entry| entry.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The first of these variables that there is, under a key.
    fn first_of(&self, key: &str, names: &[&str]) -> Option<(String, String)> {
        let value = names.iter().find_map(|name| self.get(name))?;
        Some((key.to_owned(), value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(process: &Process, environment: &[u8], given: &[Label]) -> Vec<(String, String)> {
        let environment = Environment::parse(environment);
        let labels = labels_of(&Surroundings { process, environment: &environment, given, root: Path::new("/") });
        labels.into_iter().map(|label| (label.key, label.value)).filter(|(key, _)| key != "user").collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn a_rank_of_a_slurm_job_in_a_pod_says_so() {
        let cgroup = "/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6789_abcd_ef0123456789.slice/cri-containerd-77.scope";
        let container_id = Some("77".to_owned());
        let process = Process { cgroup: cgroup.to_owned(), container_id, ..Process::default() };
        let environment = b"SLURM_JOB_ID=4711\0SLURM_PROCID=5\0RANK=3\0LOCAL_RANK=1\0WORLD_SIZE=8\0EMPTY=\0broken\0";
        assert_eq!(
            labels(&process, environment, &[]),
            pairs(&[
                ("cgroup", cgroup),
                ("container", "77"),
                ("pod_uid", "0a1b2c3d-4e5f-6789-abcd-ef0123456789"),
                ("job", "4711"),
                ("rank", "3"),
                ("local_rank", "1"),
                ("world_size", "8"),
            ])
        );
    }

    #[test]
    fn a_process_in_a_slice_of_a_gpu_says_which() {
        let found = |environment: &[u8]| labels(&Process::default(), environment, &[]);
        let slice = "MIG-00000000-0000-4000-8000-000000000002";
        assert_eq!(found(format!("CUDA_VISIBLE_DEVICES={slice},MIG-3\0").as_bytes()), pairs(&[("gpu_slice", slice)]));
        let both = format!("NVIDIA_VISIBLE_DEVICES={slice}\0CUDA_VISIBLE_DEVICES=0\0");
        assert_eq!(found(both.as_bytes()), pairs(&[("gpu_slice", slice)]));
        assert_eq!(found(b"CUDA_VISIBLE_DEVICES=GPU-aa11,1\0"), []);
    }

    #[test]
    fn what_the_user_says_comes_first() {
        let given = [Label { key: "job".to_owned(), value: "nightly".to_owned() }];
        let found = labels(&Process::default(), b"SLURM_JOB_ID=4711\0", &given);
        assert_eq!(found, pairs(&[("job", "nightly")]));
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let environment = format!("RANK={}", "\u{fc}".repeat(1000));
        let found = labels(&Process::default(), environment.as_bytes(), &[]);
        assert_eq!(found, pairs(&[("rank", &"\u{fc}".repeat(MOST_BYTES / 2))]));
    }
}
