//! Programs with known sources, and binutils as the second witness.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpuwhy_model::Frame;
use gpuwhy_stacks::symbols::{FileId, Limits, Symbolizer};
use tempfile::TempDir;

pub const C: &str = r#"
static int twice(int value) { return value * 2; }
__attribute__((noinline)) int inner(int value) {
    int sum = 0;
    for (int index = 0; index < value; index++)
        sum += twice(index) ^ value;
    return sum;
}
__attribute__((noinline)) int outer(int value) {
    return inner(value + 1) + 1;
}
int main(int count, char **arguments) { return outer(count) == 77 && arguments; }
"#;

pub const CPP: &str = r#"
#include <cstdio>
#include <string>
#include <vector>
namespace shapes {
template <typename T> inline T square(T side) { return side * side; }
template <typename T> inline T sum(const std::vector<T>& all) {
    T result{};
    for (const T& one : all) result += square(one);
    return result;
}
struct Canvas {
    __attribute__((noinline)) double area(const std::vector<double>& sides) const { return sum(sides) * scale; }
    double scale = 2.0;
};
template <int Times, typename T> __attribute__((noinline)) T repeat(T value) {
    for (int time = 0; time < Times; time++) value = value * 3 + square(value);
    return value;
}
}
namespace { __attribute__((noinline)) int hidden(int value) { return shapes::repeat<3>(value) + 1; } }
int main(int count, char**) {
    std::vector<double> sides(static_cast<size_t>(count), 1.5);
    std::printf("%f %d\n", shapes::Canvas{}.area(sides), hidden(count));
}
"#;

pub const RUST: &str = r#"
mod shapes {
    pub trait Area { fn area(&self) -> f64; }
    pub struct Square(pub f64);
    impl Area for Square { #[inline(never)] fn area(&self) -> f64 { square(self.0) } }
    #[inline(always)] fn square(side: f64) -> f64 { side * side + 1.0 }
    #[inline(never)] pub fn largest<T: Area>(all: &[T]) -> f64 { all.iter().map(Area::area).fold(0.0, f64::max) }
}
fn main() {
    let squares: Vec<_> = std::env::args().map(|text| shapes::Square(text.len() as f64)).collect();
    println!("{}", shapes::largest(&squares));
}
"#;

/// A program built from a source, in a directory of its own.
pub struct Program {
    pub directory: TempDir,
    pub path: PathBuf,
}

impl Program {
    /// `compiler` is called with the source's name, `-o program` and the options.
    pub fn build(compiler: &str, source_name: &str, source: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(source_name), source).unwrap();
        let program = Self { path: directory.path().join("program"), directory };
        program.run(compiler, &[&[source_name, "-o", "program"], options].concat());
        program
    }

    pub fn c(options: &[&str]) -> Self {
        Self::build("gcc", "program.c", C, options)
    }

    /// Runs a tool in the program's directory and returns what it prints.
    pub fn run(&self, tool: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(tool);
        // Only then does a stable compiler mangle names in the way that is not its own.
        command.env("RUSTC_BOOTSTRAP", "1");
        command.args(arguments).current_dir(self.directory.path()).stderr(Stdio::inherit());
        let output = command.output().unwrap_or_else(|error| panic!("{tool} is needed for this test: {error}"));
        assert!(output.status.success(), "{tool} {arguments:?}: {}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The address and the size of the function whose mangled name contains the text.
    pub fn function(&self, name: &str) -> (u64, u64) {
        self.functions()
            .into_iter()
            .find(|(symbol, _, _)| symbol.contains(name))
            .map(|(_, at, size)| (at, size))
            .unwrap()
    }

    /// The mangled names, addresses and sizes of all functions.
    pub fn functions(&self) -> Vec<(String, u64, u64)> {
        let text = self.run("nm", &["-S", "--defined-only", "program"]);
        let functions = text.lines().filter_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let [address, size, "t" | "T" | "w" | "W", name] = words[..] else { return None };
            let number = |text| u64::from_str_radix(text, 16).unwrap();
            Some((name.to_owned(), number(address), number(size)))
        });
        functions.collect()
    }
}

pub fn symbolizer(path: &Path) -> (Symbolizer, FileId) {
    let mut symbolizer = Symbolizer::new(Limits::default());
    let file = symbolizer.file(path, path).unwrap();
    (symbolizer, file)
}

/// What can be compared of a frame: the name without spaces, in which demanglers differ, and where it is.
pub type Place = (String, String, Option<u32>);

pub fn place(frame: &Frame) -> Place {
    let file = frame.file.as_deref().map(plain_path).unwrap_or_default();
    (frame.function.replace(' ', ""), file, frame.line)
}

/// What `addr2line -f -i -C` says of each address.
pub fn addr2line(program: &Program, addresses: &[u64]) -> Vec<Vec<Place>> {
    let mut arguments = vec!["-a".to_owned(), "-f".into(), "-i".into(), "-C".into(), "-e".into(), "program".into()];
    arguments.extend(addresses.iter().map(|address| format!("{address:#x}")));
    let text = program.run("addr2line", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut all: Vec<Vec<Place>> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            all.push(Vec::new());
            continue;
        }
        let location = lines.next().unwrap();
        let location = location.split(" (discriminator").next().unwrap();
        let (file, number) = location.rsplit_once(':').unwrap();
        let known = |text: &str| if text == "??" { String::new() } else { text.to_owned() };
        let number = number.parse().ok().filter(|number| *number > 0);
        all.last_mut().unwrap().push((known(line).replace(' ', ""), plain_path(&known(file)), number));
    }
    assert_eq!(all.len(), addresses.len());
    all
}

fn plain_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}
