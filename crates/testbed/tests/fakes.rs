//! The fake libraries look like the real ones to a tracer.

#![allow(clippy::unwrap_used)]

mod support;

use gpuwhy_apis::{LIBRARIES, Library};
use gpuwhy_model::Layer;
use gpuwhy_testbed::Testbed;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use std::path::Path;
use support::exported;
use tempfile::TempDir;

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RBP: &[u8] = &[0x55];

fn unpacked() -> (TempDir, Testbed) {
    let dir = tempfile::tempdir().unwrap();
    let testbed = Testbed::unpack(dir.path()).unwrap();
    (dir, testbed)
}

fn table(layer: Layer) -> &'static Library {
    LIBRARIES.iter().find(|library| library.layer == layer).unwrap()
}

fn missing_from(library: &Path, layer: Layer) -> Vec<&'static str> {
    let exported = exported(library);
    let table = table(layer);
    let symbols = table.apis.iter().flat_map(|api| api.symbols);
    symbols.chain(table.markers).copied().filter(|symbol| !exported.contains(*symbol)).collect()
}

/// The first bytes of every function with a name that starts like this.
fn entries(library: &Path, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let bytes = std::fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    file.dynamic_symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .filter(|symbol| symbol.name().unwrap().starts_with(prefix))
        .map(|symbol| {
            let code = text.data_range(symbol.address(), 8).unwrap().unwrap();
            (symbol.name().unwrap().to_owned(), code.to_vec())
        })
        .collect()
}

#[test]
fn the_fake_driver_exports_every_symbol_of_the_table() {
    let (_dir, testbed) = unpacked();
    assert_eq!(missing_from(&testbed.libcuda(), Layer::Driver), Vec::<&str>::new());
    assert_eq!(missing_from(&testbed.libcuda_endbr(), Layer::Driver), Vec::<&str>::new());
}

#[test]
fn the_fake_runtime_exports_every_symbol_of_the_table() {
    let (_dir, testbed) = unpacked();
    assert_eq!(missing_from(&testbed.libcudart(), Layer::Runtime), Vec::<&str>::new());
}

#[test]
fn the_static_workload_exports_nothing_of_the_runtime() {
    let (_dir, testbed) = unpacked();
    let exported = exported(&testbed.workload_static());
    assert!(!exported.iter().any(|symbol| symbol.starts_with("cuda")), "{exported:?}");
}

#[test]
fn driver_functions_start_with_push_as_the_real_ones_do() {
    let (_dir, testbed) = unpacked();
    let entries = entries(&testbed.libcuda(), "cu");
    assert!(entries.len() > 150);
    for (symbol, code) in entries {
        assert!(code.starts_with(PUSH_RBP), "{symbol} starts with {code:x?}");
    }
}

#[test]
fn the_endbr_variant_has_an_endbr64_before_the_push() {
    let (_dir, testbed) = unpacked();
    for (symbol, code) in entries(&testbed.libcuda_endbr(), "cu") {
        assert!(code.starts_with(ENDBR64) && code[4..].starts_with(PUSH_RBP), "{symbol} starts with {code:x?}");
    }
}

#[test]
fn runtime_symbols_are_versioned() {
    let (_dir, testbed) = unpacked();
    let bytes = std::fs::read(testbed.libcudart()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    assert!(file.section_by_name(".gnu.version_d").is_some());
}
