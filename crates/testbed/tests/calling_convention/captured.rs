//! Calls as a real compiler makes them: a generated C program passes recognisable values to every function and dumps
//! the registers and the stack that the function finds.

use super::prototypes::{INCLUDES, Parameter, Prototypes, compiler};
use gpuwhy_testbed::CudaRuntime;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Six registers, then the stack.
const SLOTS: usize = 16;

/// Structs that travel by value, with their members in order.
const BY_VALUE: &[(&str, &[(&str, &str)])] = &[
    ("dim3", &[("x", "unsigned int"), ("y", "unsigned int"), ("z", "unsigned int")]),
    ("struct cudaExtent", &[("width", "size_t"), ("height", "size_t"), ("depth", "size_t")]),
    ("struct cudaPitchedPtr", &[("ptr", "void*"), ("pitch", "size_t"), ("xsize", "size_t"), ("ysize", "size_t")]),
    ("CUmemLocation", &[]),
    ("struct cudaMemLocation", &[]),
];

/// Struct members that rows read through a pointer.
const FIELDS: &[(&str, &[&str])] = &[
    ("CUlaunchConfig", &["hStream"]),
    ("cudaLaunchConfig_t", &["stream"]),
    ("CUDA_LAUNCH_PARAMS", &["function"]),
    ("struct cudaLaunchParams", &["func"]),
    ("CUDA_MEMCPY2D", &["WidthInBytes", "Height"]),
    ("CUDA_MEMCPY3D", &["WidthInBytes", "Height", "Depth"]),
    ("CUDA_MEMCPY3D_PEER", &["WidthInBytes", "Height", "Depth"]),
    ("struct cudaMemcpy3DParms", &["kind"]),
];

/// Stands in for every function: keeps what it was called with.
const TRAMPOLINE: &str = r#"
#include <stddef.h>
#include <stdio.h>
unsigned long captured[16];
asm(".text\ncapture_call:\nlea captured(%rip), %rax\n"
    "mov %rdi, (%rax)\nmov %rsi, 8(%rax)\nmov %rdx, 16(%rax)\nmov %rcx, 24(%rax)\nmov %r8, 32(%rax)\nmov %r9, 40(%rax)\n"
    ".set slot, 0\n.rept 10\nmov 8+8*slot(%rsp), %r10\nmov %r10, 48+8*slot(%rax)\n.set slot, slot+1\n.endr\n"
    "xor %eax, %eax\nret\n");
static void dump(const char *symbol)
{
    printf("call %s", symbol);
    for (int i = 0; i < 16; i++) printf(" %lx", captured[i]);
    printf("\n");
}
"#;

/// What was passed: a parameter, or a member of a struct that was passed by value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    pub path: String,
    pub kind: String,
    value: u64,
}

#[derive(Debug)]
pub struct Captured {
    slots: BTreeMap<String, [u64; SLOTS]>,
    passed: BTreeMap<String, Vec<Passed>>,
    /// By struct and offset: the member's name and size.
    fields: BTreeMap<(String, u16), (String, u16)>,
}

impl Captured {
    /// Compiles and runs calls of these functions.
    pub fn calls(release: CudaRuntime, prototypes: &Prototypes, dir: &Path) -> Self {
        std::fs::write(dir.join("calls.c"), program(prototypes)).unwrap();
        let mut build = compiler(release, dir);
        build.args(["-O2", "-w", "-Wa,--noexecstack", "calls.c", "-o", "calls"]);
        assert!(build.status().unwrap().success(), "the calls do not compile");
        let output = Command::new(dir.join("calls")).output().unwrap();
        let mut captured = Self { slots: BTreeMap::new(), passed: BTreeMap::new(), fields: BTreeMap::new() };
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            captured.add(line);
        }
        for (symbol, parameters) in prototypes {
            captured.passed.insert(symbol.clone(), passed(parameters));
        }
        captured
    }

    fn add(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        if words[0] == "call" {
            let values: Vec<_> = words[2..].iter().map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
            self.slots.insert(words[1].to_owned(), values.try_into().unwrap());
        } else {
            let [offset, size] = [words[2], words[3]].map(|word| word.parse().unwrap());
            self.fields.insert((words[4..].join(" "), offset), (words[1].to_owned(), size));
        }
    }

    /// Which parameter of the function a slot holds, taking all of its bits.
    pub fn in_slot(&self, symbol: &str, slot: u8) -> Option<&Passed> {
        let found = self.slots[symbol][slot as usize];
        self.passed[symbol].iter().find(|passed| passed.value == found)
    }

    /// Which 32-bit parameter of the function a slot holds.
    pub fn in_slot_32(&self, symbol: &str, slot: u8) -> Option<&Passed> {
        let found = self.slots[symbol][slot as usize] as u32;
        self.passed[symbol].iter().find(|passed| is_32_bits(&passed.kind) && passed.value as u32 == found)
    }

    /// Name and size of a struct's member.
    pub fn field(&self, kind: &str, offset: u16) -> Option<&(String, u16)> {
        self.fields.get(&(kind.to_owned(), offset))
    }

    pub fn passed(&self, symbol: &str) -> &[Passed] {
        &self.passed[symbol]
    }
}

/// No two values share their low 32 bits.
fn value(parameter: usize, member: usize) -> u64 {
    0x7a11_0000_5000_0000 + ((parameter as u64) << 8) + member as u64
}

fn is_32_bits(kind: &str) -> bool {
    let words = ["int", "unsigned int", "unsigned", "CUdevice", "CUjitInputType", "CUstreamCaptureMode"];
    words.contains(&kind) || kind.starts_with("enum ") && !kind.ends_with('*')
}

fn members(kind: &str) -> Option<&'static [(&'static str, &'static str)]> {
    BY_VALUE.iter().find(|(name, _)| *name == kind).map(|(_, members)| *members)
}

fn passed(parameters: &[Parameter]) -> Vec<Passed> {
    let passed = |path: String, kind: &str, value: u64| {
        let value = if is_32_bits(kind) { value as u32 as u64 } else { value };
        Passed { path, kind: kind.to_owned(), value }
    };
    let one = |(index, parameter): (usize, &Parameter)| match members(&parameter.kind) {
        None => vec![passed(parameter.name.clone(), &parameter.kind, value(index, 0))],
        Some(members) => (members.iter().enumerate())
            .map(|(at, (name, kind))| passed(format!("{}.{name}", parameter.name), kind, value(index, at)))
            .collect(),
    };
    parameters.iter().enumerate().flat_map(one).collect()
}

fn program(prototypes: &Prototypes) -> String {
    let mut text = format!("{INCLUDES}{TRAMPOLINE}");
    for symbol in prototypes.keys() {
        writeln!(text, r#"asm(".globl {symbol}\n.set {symbol}, capture_call\n");"#).unwrap();
    }
    text += "int main(void)\n{\n";
    for (symbol, parameters) in prototypes {
        let arguments: Vec<_> = parameters.iter().enumerate().map(argument).collect();
        writeln!(text, r#"{symbol}({}); dump("{symbol}");"#, arguments.join(", ")).unwrap();
    }
    for (kind, field) in fields_used_by(prototypes) {
        let size = format!("sizeof((({kind} *)0)->{field})");
        writeln!(text, r#"printf("field {field} %zu %zu {kind}\n", offsetof({kind}, {field}), {size});"#).unwrap();
    }
    text + "}\n"
}

/// The fields of structs that these functions take; a release need not have the others.
fn fields_used_by(prototypes: &Prototypes) -> impl Iterator<Item = (&'static str, &'static str)> {
    let takes = |kind: &str| {
        let pointer = format!("{kind}*");
        prototypes.values().flatten().any(|parameter| parameter.kind == pointer)
    };
    let used = FIELDS.iter().filter(move |(kind, _)| takes(kind));
    used.flat_map(|(kind, fields)| fields.iter().map(move |field| (*kind, *field)))
}

fn argument((index, parameter): (usize, &Parameter)) -> String {
    let kind = &parameter.kind;
    match members(kind) {
        None => format!("({kind}){:#x}ul", value(index, 0)),
        Some([]) => format!("({kind}){{0}}"),
        Some(members) => {
            let value = |(at, (_, kind)): (usize, &(&str, &str))| format!("({kind}){:#x}ul", value(index, at));
            let values: Vec<_> = members.iter().enumerate().map(value).collect();
            format!("({kind}){{{}}}", values.join(", "))
        }
    }
}
