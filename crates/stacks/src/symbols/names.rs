//! Names as a person reads them: demangled, without hashes, and of bounded length whatever a file says.

use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cpp_demangle::{DemangleOptions, Symbol};

/// No name is longer than this, in bytes.
pub const NAME_LIMIT: usize = 1024;

/// A mangled name that is longer than this is left as it is: reading it may take long, and it would be cut anyway.
const MANGLED_LIMIT: usize = 16 * 1024;

/// What nvcc and clang put before the name of a kernel to name the host function that launches it.
const STUB: &str = "__device_stub_";

/// What nvcc puts before that for a kernel that is a template.
const WRAPPER: &str = "__wrapper";

/// A symbol as it is shown: demangled, and a launch stub as the kernel that it launches.
pub fn readable(symbol: &str) -> String {
    kernel_name(symbol).unwrap_or_else(|| demangled(symbol, DemangleOptions::new()))
}

/// The kernel that a host function launches, if it is a launch stub: `add(float*, float*)` for `__device_stub__Z3addPfS_`.
pub fn kernel_name(symbol: &str) -> Option<String> {
    symbol.contains(STUB).then_some(())?;
    let stub = demangled(symbol, kernel_options());
    let (before, after) = stub.split_once(STUB)?;
    if let Some(scope) = before.strip_suffix(WRAPPER) {
        let bare = demangled(symbol, kernel_options().no_params());
        let name = bare.split_once(STUB).map_or(after, |(_, name)| name);
        return Some(cut(&format!("{scope}{name}")));
    }
    let inner = after.split('(').next().unwrap_or(after);
    if inner.starts_with("_Z") {
        return Some(demangled(inner, kernel_options()));
    }
    Some(cut(&format!("{before}{}", after.strip_prefix('_').unwrap_or(after))))
}

/// Whether a symbol says more than its bare name.
pub fn is_mangled(symbol: &str) -> bool {
    ["_Z", "_R"].iter().any(|prefix| symbol.starts_with(prefix))
}

/// At most [`NAME_LIMIT`] bytes of a text, in whole characters.
pub fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(NAME_LIMIT)].to_owned()
}

fn kernel_options() -> DemangleOptions {
    DemangleOptions::new().no_return_type()
}

fn demangled(symbol: &str, options: DemangleOptions) -> String {
    if symbol.len() > MANGLED_LIMIT {
        return cut(symbol);
    }
    // The demanglers assert things about their input, which is hostile.
    catch_unwind(AssertUnwindSafe(|| rust(symbol).or_else(|| cpp(symbol, options))))
        .ok()
        .flatten()
        .unwrap_or_else(|| cut(symbol))
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut text = Bounded::default();
    // An error says that the name is longer than what is kept of it.
    let _ = write!(text, "{name:#}");
    Some(text.0)
}

fn cpp(symbol: &str, options: DemangleOptions) -> Option<String> {
    symbol.starts_with("_Z").then_some(())?;
    let name = Symbol::new(symbol).ok()?;
    let mut text = Bounded::default();
    match name.structured_demangle(&mut text, &options) {
        Ok(()) => Some(text.0),
        Err(_) => text.is_full().then_some(text.0),
    }
}

/// A text that refuses to grow beyond the limit: a short mangled name can stand for a text without end.
#[derive(Default)]
struct Bounded(String);

impl Bounded {
    fn is_full(&self) -> bool {
        // A character of up to four bytes that did not fit leaves up to three bytes free.
        self.0.len() + 3 >= NAME_LIMIT
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(NAME_LIMIT - self.0.len());
        self.0.push_str(&text[..fits]);
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_each_language_are_readable() {
        for (symbol, expected) in [
            ("main", "main"),
            ("_ZN4core9panicking9panic_fmt17h5f1a6fd39197ad62E", "core::panicking::panic_fmt"),
            ("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"),
            ("_ZN2ns6Widget4drawEi", "ns::Widget::draw(int)"),
            ("_Z7computeIiET_S0_", "int compute<int>(int)"),
            ("_Zwhat is this", "_Zwhat is this"),
            ("", ""),
        ] {
            assert_eq!(readable(symbol), expected, "{symbol}");
        }
    }

    /// A function's mangled name, as a compiler makes it of what nvcc writes.
    fn stub(linkage: &str, name: &str, parameters: &str) -> String {
        format!("_Z{linkage}{}{name}{parameters}", name.len())
    }

    #[test]
    fn a_launch_stub_says_which_kernel_it_launches() {
        for (symbol, expected) in [
            ("__device_stub__Z3addPfS_".to_owned(), "add(float*, float*)"),
            ("__device_stub__Z3addPfS_(float*, float*)".to_owned(), "add(float*, float*)"),
            (stub("", "__device_stub__Z3addPfS_", "PfS_"), "add(float*, float*)"),
            (stub("L", "__device_stub__Z3addPfS_", "PfS_"), "add(float*, float*)"),
            (stub("L", "__device_stub__Z5scaleIfEvPT_S0_", "Pff"), "scale<float>(float*, float)"),
            (stub("L", "__device_stub__ZN2ns5sgemmILi4EEEvPf", "Pf"), "ns::sgemm<4>(float*)"),
            (stub("L", "__wrapper__device_stub_scale", "IfEvRPT_RS0_"), "scale<float>"),
            (stub("", "__device_stub__add", "Pf"), "add(float*)"),
            ("_ZN2ns18__device_stub__addEPf".to_owned(), "ns::add(float*)"),
            ("__device_stub__add".to_owned(), "add"),
        ] {
            assert_eq!(kernel_name(&symbol).as_deref(), Some(expected), "{symbol}");
            assert_eq!(readable(&symbol), expected, "{symbol}");
        }
        for symbol in ["_Z3addPfS_", "cuLaunchKernel", ""] {
            assert_eq!(kernel_name(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn no_name_is_longer_than_the_limit() {
        let long = "é".repeat(NAME_LIMIT);
        assert_eq!(readable(&long).len(), NAME_LIMIT);
        assert_eq!(readable(&format!("x{long}")).len(), NAME_LIMIT - 1);
        // Each argument repeats all that were before it, so that the text doubles with every two bytes.
        let doubling: String = (0..40).map(|index| format!("1AIS{index}_S{index}_E")).collect();
        let name = readable(&format!("_Z1fI1AE{doubling}v"));
        assert!(name.len() <= NAME_LIMIT, "{} bytes", name.len());
        assert!(readable(&format!("_ZN{}1fEv", "9namespace".repeat(1000))).len() <= NAME_LIMIT);
    }
}
