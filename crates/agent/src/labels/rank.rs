//! Which part of a distributed program the process is: torchrun's words, then MPI's, then Slurm's.

use super::Surroundings;

const RANK: &[&str] = &["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
const LOCAL_RANK: &[&str] = &["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
const WORLD_SIZE: &[&str] = &["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];

pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    let keys = [("rank", RANK), ("local_rank", LOCAL_RANK), ("world_size", WORLD_SIZE)];
    keys.iter().filter_map(|(key, names)| surroundings.environment.first_of(key, names)).collect()
}
