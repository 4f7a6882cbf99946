//! The slice of a divided GPU that the process was given, by its UUID.

use super::Surroundings;

const VARIABLES: &[&str] = &["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"];
const SLICE: &str = "MIG-";

/// A process that was given several uses the first one.
pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    let first = |name: &&str| surroundings.environment.get(name)?.split(',').next().map(str::trim);
    let slice = VARIABLES.iter().filter_map(first).find(|value| value.starts_with(SLICE));
    slice.map(|uuid| ("gpu_slice".to_owned(), uuid.to_owned())).into_iter().collect()
}
