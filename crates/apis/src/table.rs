//! The rows of all libraries in one table.

use gpuwhy_model::{Layer, Meaning};

use crate::{Api, LIBRARIES, Library};

/// A row of the call table with the library it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub library: &'static Library,
    pub api: &'static Api,
}

impl Row {
    pub fn layer(&self) -> Layer {
        self.library.layer
    }

    pub fn meaning(&self) -> Meaning {
        self.api.meaning
    }
}

/// Every row of every library; its position is the cookie of its probes.
pub fn rows() -> impl Iterator<Item = Row> {
    LIBRARIES.iter().flat_map(|library| library.apis.iter().map(move |api| Row { library, api }))
}

pub fn row(index: usize) -> Option<Row> {
    let mut index = index;
    for library in LIBRARIES {
        match library.apis.get(index) {
            Some(api) => return Some(Row { library, api }),
            None => index -= library.apis.len(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_position() {
        for (index, row) in rows().enumerate() {
            assert_eq!(super::row(index).unwrap().api.symbols, row.api.symbols);
        }
        assert!(super::row(rows().count()).is_none());
    }
}
