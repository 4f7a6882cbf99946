//! Which job of a batch system the process belongs to.

use super::Surroundings;

pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    let environment = surroundings.environment;
    let job = environment.first_of("job", &["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"]);
    let step = environment.first_of("job_step", &["SLURM_STEP_ID"]);
    job.into_iter().chain(step).collect()
}
