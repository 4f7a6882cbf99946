//! The rows of all libraries in one table.

use gpuwhy_model::{Layer, Meaning, OwnOperands, OwnValues};

use crate::{Api, LIBRARIES, Library, Operand};

/// What the kernel side says of what it does not know.
const UNKNOWN: u64 = u64::MAX;

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

    /// What the kernel side reads of its own operands, in this order. Constants need not be read.
    pub fn own_reads(&self) -> impl Iterator<Item = Operand> {
        self.api.reads.own.iter().map(|(_, operand)| *operand).filter(|operand| !matches!(operand, Operand::Const(_)))
    }

    pub fn meaning(&self) -> Meaning {
        self.api.meaning
    }

    /// What was read for a call, as its library names it.
    pub fn own_values(&self, read: &[u64]) -> Option<OwnValues> {
        let of = self.library.own?;
        let mut values = vec![None; of.operands.len()];
        let mut read = read.iter().copied();
        for (name, operand) in self.api.reads.own {
            let at = of.operands.iter().position(|operand| operand.column.name == *name)?;
            values[at] = match operand {
                Operand::Const(value) => Some(u64::from(*value)),
                _ => read.next().filter(|&value| value != UNKNOWN),
            };
        }
        Some(OwnValues { of, values })
    }
}

/// What libraries have of their own, each once.
pub fn own_operands() -> Vec<&'static OwnOperands> {
    let mut all: Vec<&OwnOperands> = Vec::new();
    for own in LIBRARIES.iter().filter_map(|library| library.own) {
        if all.iter().all(|known| known.table != own.table) {
            all.push(own);
        }
    }
    all
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
    use crate::Operand::Arg;
    use gpuwhy_model::{OperandKind, OwnOperand};

    #[test]
    fn rows_are_found_by_position() {
        for (index, row) in rows().enumerate() {
            assert_eq!(super::row(index).unwrap().api.symbols, row.api.symbols);
        }
        assert!(super::row(rows().count()).is_none());
    }

    #[test]
    fn a_row_reads_only_what_its_library_declares() {
        for row in rows() {
            let declared = row.library.own.map_or(&[][..], |own| own.operands);
            for (name, _) in row.api.reads.own {
                let found = declared.iter().any(|operand| operand.column.name == *name);
                assert!(found, "{} reads {name}, which {} does not declare", row.api.name, row.library.name);
            }
        }
    }

    #[test]
    fn values_go_to_the_operands_that_their_names_say() {
        const OWN: OwnOperands = OwnOperands {
            table: "fake_operands",
            view: "fake_events",
            description: "One row per call.",
            operands: &[
                OwnOperand::new("comm", OperandKind::Bits, "The communicator."),
                OwnOperand::new("rank", OperandKind::Int, "The rank."),
                OwnOperand::new("count", OperandKind::Count, "How many."),
            ],
        };
        const FAKE: Library = Library {
            name: "fake",
            linked_in: None,
            layer: Layer::Runtime,
            markers: &[],
            apis: apis! { Sync "fakeReduce" ["fakeReduce"] { own: &[("count", Arg(2)), ("comm", Arg(4))] }; },
            own: Some(&OWN),
        };
        let row = Row { library: &FAKE, api: &FAKE.apis[0] };
        let own = row.own_values(&[7, 8, 9, 9, 9, 9]).unwrap();
        assert_eq!(own.values, [Some(8), None, Some(7)]);
    }
}
