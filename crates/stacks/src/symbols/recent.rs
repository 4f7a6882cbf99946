//! What was asked for lately, up to a bound.

use std::hash::Hash;

use hashbrown::HashMap;

/// Two halves: what is asked for moves to the younger one, and when that is full, the older one goes as a whole.
pub struct Recent<K, V> {
    half: usize,
    younger: HashMap<K, V>,
    older: HashMap<K, V>,
}

impl<K: Hash + Eq + Copy, V> Recent<K, V> {
    pub fn new(limit: usize) -> Self {
        Self { half: limit.div_ceil(2).max(1), younger: HashMap::new(), older: HashMap::new() }
    }

    pub fn get(&mut self, key: K) -> Option<&V> {
        if let Some(value) = self.older.remove(&key) {
            self.insert(key, value);
        }
        self.younger.get(&key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        if self.younger.len() >= self.half {
            self.older = std::mem::take(&mut self.younger);
        }
        self.younger.insert(key, value);
    }

    pub fn clear(&mut self) {
        self.younger = HashMap::new();
        self.older = HashMap::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes_at_the_bound() {
        let mut recent = Recent::new(10);
        for key in 0..1000 {
            recent.insert(key, key);
            assert_eq!(recent.get(0), Some(&0));
            assert!(recent.younger.len() + recent.older.len() <= 10);
        }
        assert_eq!(recent.get(999), Some(&999));
        assert_eq!(recent.get(500), None);
        recent.clear();
        assert_eq!(recent.get(999), None);
    }
}
