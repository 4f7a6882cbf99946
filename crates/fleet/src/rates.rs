//! What an hour of a GPU costs, as the operator says.

use std::collections::BTreeMap;

/// Prices of an hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// What they are in: `USD`.
    pub currency: String,
    /// By the GPU's name, as it calls itself or a part of that.
    pub gpus: BTreeMap<String, f64>,
    /// Of all others.
    pub other: Option<f64>,
}

impl Rates {
    /// The price of this kind of GPU: of the longest name that is a part of its own.
    pub fn of(&self, gpu: Option<&str>) -> Option<f64> {
        let own = gpu.unwrap_or_default().to_lowercase();
        let named = self.gpus.iter().filter(|(name, _)| !own.is_empty() && own.contains(&name.to_lowercase()));
        named.max_by_key(|(name, _)| name.len()).map(|(_, rate)| *rate).or(self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_that_fits_tells_the_price() {
        let gpus = [("H100", 3.0), ("h100 nvl", 2.5), ("L4", 0.5)].map(|(name, rate)| (name.to_owned(), rate));
        let rates = Rates { currency: "USD".to_owned(), gpus: gpus.into(), other: Some(1.0) };
        let all = ["NVIDIA H100 80GB", "NVIDIA H100 NVL", "NVIDIA L4", "AMD MI300X"].map(|gpu| rates.of(Some(gpu)));
        assert_eq!(all, [Some(3.0), Some(2.5), Some(0.5), Some(1.0)]);
        assert_eq!((rates.of(None), Rates::default().of(Some("NVIDIA H100"))), (Some(1.0), None));
    }
}
