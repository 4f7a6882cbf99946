//! What the tests of the call tables share.

use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::Path;

/// The names a library exports, without symbol versions.
pub fn exported(library: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    defined.map(|symbol| symbol.name().unwrap().to_owned()).collect()
}
