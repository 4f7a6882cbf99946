//! What the user adds: `trace --label team=vision`.

use super::Surroundings;

pub fn labels(surroundings: &Surroundings<'_>) -> Vec<(String, String)> {
    surroundings.given.iter().map(|label| (label.key.clone(), label.value.clone())).collect()
}
