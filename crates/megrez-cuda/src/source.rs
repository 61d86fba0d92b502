//! The kernel files and the forms in which they are compiled.

use crate::list_shape::ListShape;
use megrez_kernels::{Entries, ListSpec};
use megrez_ring::Prime;
use std::fmt::Write;

const FILES: [(&str, &str); 17] = [
    ("common.cuh", include_str!("../kernels/common.cuh")),
    ("word.cuh", include_str!("../kernels/word.cuh")),
    ("chacha.cuh", include_str!("../kernels/chacha.cuh")),
    ("aes.cuh", include_str!("../kernels/aes.cuh")),
    ("field.cuh", include_str!("../kernels/field.cuh")),
    ("view.cuh", include_str!("../kernels/view.cuh")),
    ("ring.cu", include_str!("../kernels/ring.cu")),
    ("bits.cu", include_str!("../kernels/bits.cu")),
    ("planes.cu", include_str!("../kernels/planes.cu")),
    ("circuit.cu", include_str!("../kernels/circuit.cu")),
    ("variants.cu", include_str!("../kernels/variants.cu")),
    ("unfused.cu", include_str!("../kernels/unfused.cu")),
    ("structure.cu", include_str!("../kernels/structure.cu")),
    ("gemm.cu", include_str!("../kernels/gemm.cu")),
    ("keys.cu", include_str!("../kernels/keys.cu")),
    ("tables.cu", include_str!("../kernels/tables.cu")),
    ("list.cu", include_str!("../kernels/list.cu")),
];

/// Rows, columns, pipeline stages and shared memory of a block of the tensor-core product.
pub(crate) struct GemmTile {
    pub rows: usize,
    pub columns: usize,
    pub stages: usize,
    pub shared: u32,
}

impl GemmTile {
    /// As many stages, up to four, or six where warps multiply in `groups`, as `limit` bytes of
    /// shared memory hold; three fit every device that we take.
    pub(crate) fn of(word: u32, limit: usize, groups: bool) -> Self {
        let limbs = word as usize / 8;
        let (rows, columns) = if word == 64 { (64, 64) } else { (128, 64) };
        let stage = limbs * (rows * 32 + 32 + columns * 32);
        // A convolution holds its windows beside the stages.
        let stages = (limit.saturating_sub(rows * 16) / stage).clamp(3, if groups { 6 } else { 4 });
        GemmTile { rows, columns, stages, shared: (stages * stage) as u32 }
    }
}

/// A kernel file with the constants that it is compiled for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Unit {
    file: &'static str,
    defines: String,
}

impl Unit {
    pub(crate) fn ring(word: u32) -> Self {
        Unit { file: "ring.cu", defines: format!("#define WORD {word}\n") }
    }

    pub(crate) fn bits() -> Self {
        Unit { file: "bits.cu", defines: String::new() }
    }

    pub(crate) fn planes(word: u32) -> Self {
        Unit { file: "planes.cu", defines: format!("#define WORD {word}\n") }
    }

    pub(crate) fn circuit() -> Self {
        Unit { file: "circuit.cu", defines: String::new() }
    }

    pub(crate) fn variants(word: u32) -> Self {
        Unit { file: "variants.cu", defines: format!("#define WORD {word}\n") }
    }

    pub(crate) fn keys(word: u32) -> Self {
        Unit { file: "keys.cu", defines: format!("#define WORD {word}\n") }
    }

    pub(crate) fn tables(word: u32) -> Self {
        Unit { file: "tables.cu", defines: format!("#define WORD {word}\n") }
    }

    pub(crate) fn structure(bytes: usize) -> Self {
        Unit { file: "structure.cu", defines: format!("#define UNIT {bytes}\n") }
    }

    /// Products, for a device with `limit` bytes of shared memory a block, whose warps multiply in
    /// `groups` or each for itself.
    pub(crate) fn gemm(word: u32, limit: usize, groups: bool) -> Self {
        let mut defines = format!("#define WORD {word}\n");
        if word >= 32 {
            let GemmTile { rows, columns, stages, shared } = GemmTile::of(word, limit, groups);
            let _ = write!(
                defines,
                "#define GEMM_ROWS {rows}\n#define GEMM_COLUMNS {columns}\n#define GEMM_STAGES {stages}\n#define GEMM_SHARED {shared}\n#define GEMM_GROUPS {}\n",
                u32::from(groups)
            );
        }
        Unit { file: "gemm.cu", defines }
    }

    pub(crate) fn list(spec: &ListSpec, word: u32) -> Self {
        let shape = ListShape::of(spec);
        let mut defines = format!("#define WORD {word}\n");
        for (name, value) in [
            ("PRIME", spec.prime.p() as usize),
            ("WIDTH", spec.width as usize),
            ("LENGTH", spec.length()),
            ("DEALT", spec.dealt()),
            ("DEAL_TILE", shape.deal_tile),
            ("DEAL_SHARED", shape.deal_shared as usize),
            ("LIST_TILE", shape.list_tile),
            ("LIST_SHARED", shape.list_shared as usize),
            ("SCAN_TILE", shape.scan_tile),
        ] {
            let _ = writeln!(defines, "#define {name} {value}");
        }
        if let Entries::Digits(widths) = &spec.entries {
            let widths: Vec<String> = widths.iter().map(u32::to_string).collect();
            let _ = writeln!(defines, "#define DIGITS {}", widths.join(", "));
        }
        Unit { file: "list.cu", defines }
    }

    /// The list without fusion, for benches.
    pub(crate) fn unfused(spec: &ListSpec, word: u32) -> Self {
        let (p, width, length) = (spec.prime.p(), spec.width, spec.length());
        let defines = format!(
            "#define WORD {word}\n#define PRIME {p}\n#define WIDTH {width}\n#define LENGTH {length}\n"
        );
        Unit { file: "unfused.cu", defines }
    }

    /// A name for messages.
    pub(crate) fn name(&self) -> String {
        let defines: Vec<&str> = self.defines.lines().map(|l| l.trim_start_matches("#define ")).collect();
        format!("{} ({})", self.file, defines.join("; "))
    }

    /// The whole source: defines, then the file with its headers in place.
    pub(crate) fn source(&self) -> String {
        let mut out = self.defines.clone();
        let mut seen = Vec::new();
        expand(self.file, &mut seen, &mut out);
        out
    }
}

fn expand(file: &str, seen: &mut Vec<String>, out: &mut String) {
    let Some((_, text)) = FILES.iter().find(|(name, _)| *name == file) else {
        // Only the host's header is not ours to embed; on a device its line is never reached.
        let _ = writeln!(out, "#include \"{file}\"");
        return;
    };
    if seen.iter().any(|s| s == file) {
        return;
    }
    seen.push(file.into());
    for line in text.lines() {
        match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
            Some(header) => expand(header, seen, out),
            None if line == "#pragma once" => {}
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
}

/// Every kernel file in the forms that a check without a GPU compiles: a name and the whole source.
/// Lists are those of the cost tables and the widest and narrowest that plans allow. What ends in
/// `-groups` is for sm_90a alone.
pub fn every_unit() -> Vec<(String, String)> {
    let mut units = vec![("bits".to_string(), Unit::bits()), ("circuit".to_string(), Unit::circuit())];
    units.extend([1, 2, 4, 8, 16].map(|bytes| (format!("structure-{bytes}"), Unit::structure(bytes))));
    for word in [8, 16, 32, 64] {
        units.push((format!("ring-{word}"), Unit::ring(word)));
        units.push((format!("planes-{word}"), Unit::planes(word)));
        units.push((format!("keys-{word}"), Unit::keys(word)));
        units.push((format!("tables-{word}"), Unit::tables(word)));
        units.push((format!("gemm-{word}"), Unit::gemm(word, 227 << 10, false)));
    }
    units.extend([32, 64].map(|word| (format!("variants-{word}"), Unit::variants(word))));
    units.push(("gemm-64-small".to_string(), Unit::gemm(64, 99 << 10, false)));
    units.extend([32, 64].map(|word| (format!("gemm-{word}-groups"), Unit::gemm(word, 227 << 10, true))));
    let bits = |width: u32| ListSpec { cut: 0, width, entries: Entries::Bits, prime: Prime::above(width) };
    units.push(("unfused-64".to_string(), Unit::unfused(&bits(64), 64)));
    let digits = |widths: &[u32]| ListSpec {
        cut: 0,
        width: widths.iter().sum::<u32>() + 1,
        entries: Entries::Digits(widths.to_vec()),
        prime: Prime::above(widths.len() as u32),
    };
    for (word, spec) in [
        (64, bits(64)),
        (64, bits(16)),
        (64, bits(2)),
        (32, bits(32)),
        (16, bits(16)),
        (8, bits(8)),
        (64, digits(&[&[3; 7][..], &[2; 21]].concat())),
        (32, digits(&[&[3; 7][..], &[2; 5]].concat())),
        (64, digits(&[3, 3, 3, 2, 2, 2])),
        (64, digits(&[4, 3])),
        (64, digits(&[8, 8, 8, 8, 8, 8, 8, 7])),
    ] {
        let kind = if spec.entries == Entries::Bits { "bits" } else { "digits" };
        let name = format!("list-{word}-{kind}-{}-{}", spec.width, spec.length());
        units.push((name, Unit::list(&spec, word)));
    }
    units.into_iter().map(|(name, unit)| (name, unit.source())).collect()
}
