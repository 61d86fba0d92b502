//! What each party sees of a look-up, jointly, at ℓ = 8: the shares of the table, or of a key what
//! is closest to the secret, and what is opened, beside the party's own.

use crate::common::session::{unpack, zip};
use crate::common::stats::{MANY, View, compare_views};
use crate::views::{N, execute, indistinguishable, opened_columns};
use megrez_kernels::{LookupTables, Memory, Reference};
use megrez_plan::{Beyond, Lookup, Op, Relu, ReluForm, SignBit};
use megrez_session::Phase::{Offline, Online};

const NAMES: [&str; 8] =
    ["c0(0)_j", "c1(0)_j", "c0(1)_j", "c1(1)_j", "c0(2)_j", "c1(2)_j", "c0(3)_j", "c1(3)_j"];

#[test]
fn a_workers_view_of_a_look_up_is_independent_of_the_secret() {
    // A steep function, and one that is constant but for its wrap.
    for pieces in [vec![-90, 3, 17, -5, 60, 1, -128, 127], vec![5, 0, 5, 0, 9, 0, 9, 0]] {
        let f = Lookup { cut: 1, low: 4, degree: 1, pieces, frac: 2, beyond: None };
        let runs = [0u8, 0x3f, 0xc0, 0xff, 0x15].map(|x| {
            let run = execute(Op::Lookup(f.clone()), 2, &[x]);
            let r = [run.input_mask(0, 0, N), run.input_mask(1, 0, N)];
            let whole = zip(&r[0], &r[1], u8::wrapping_add);
            let tables = Reference.lookup_tables(&f, &Reference.upload(whole).unwrap()).unwrap();
            let tables = Reference.download(tables).unwrap();
            let one = unpack(run.message(Offline, 2, 1, "op/table"), 8, N * f.pieces.len());
            let zero = zip(&tables, &one, u8::wrapping_sub);
            (x, run.masked_input(0), r, [zero, one], run.opened("op/looked-up"))
        });
        for j in 0..2 {
            let views: Vec<(String, View)> = runs
                .iter()
                .map(|(x, m, r, tables, opened)| {
                    let mut view: View = vec![("m", m.clone()), ("r_j", r[j].clone())];
                    let words = tables[j].chunks_exact(N).map(<[u8]>::to_vec);
                    view.extend(NAMES.into_iter().zip(words));
                    view.extend(opened_columns(j, opened));
                    (format!("x = {x:#x}"), view)
                })
                .collect();
            indistinguishable(&format!("worker {j}"), &views);
            // The controls: an opening without the output's mask, and a table whose other half is
            // known.
            let [bare, told] = [0, 1].map(|control| {
                [0, 1].map(|i| {
                    let (_, _, r, tables, opened) = &runs[i];
                    let mut view = views[i].1.clone();
                    if control == 0 {
                        let end = view.len();
                        for column in &mut view[end - 3..end - 1] {
                            column.1 = zip(&column.1, &opened.masks[1 - j], u8::wrapping_sub);
                        }
                    } else {
                        view[2].1 = zip(&tables[0][..N], &tables[1][..N], u8::wrapping_add);
                        view[1].1.clone_from(&r[j]);
                    }
                    view
                })
            });
            for (what, [a, b]) in [("an unmasked opening", bare), ("a table in the clear", told)] {
                assert!(compare_views(&a, &b).0 > 2.0 * MANY, "{what} passes");
            }
        }
    }
}

/// One byte of each seed's correction at a level below the first.
fn corrections(of_key: &[u8], level: usize) -> Vec<u8> {
    of_key[16 * N * (level - 1)..16 * N * level].iter().step_by(16).copied().collect()
}

#[test]
fn a_workers_view_of_a_look_up_by_key_is_independent_of_the_secret() {
    // A steep function of every word, one that is constant, and one with a line beside it.
    let steep = |steep: i64| {
        let pieces = (0..256).map(|h| (h * steep) % 128).collect();
        Lookup { cut: 0, low: 0, degree: 0, pieces, frac: 2, beyond: None }
    };
    let beyond = Some(Beyond { bits: 8, constant: 11, slope: -3 });
    let pieces = vec![-90, 3, 17, -5, 60, 1, -128, 127];
    let beside = Lookup { cut: 0, low: 0, degree: 1, pieces, frac: 2, beyond };
    for f in [steep(83), steep(0), beside] {
        assert!(f.is_keyed(8));
        let runs = [0u8, 0x3f, 0xc0, 0xff].map(|x| {
            let run = execute(Op::Lookup(f.clone()), 2, &[x]);
            let r = [run.input_mask(0, 0, N), run.input_mask(1, 0, N)];
            let seen = [0, 1].map(|j| {
                let of_key = run.message(Offline, 2, j, "op/corrections");
                let mut view: View = vec![("m", run.masked_input(0)), ("r_j", r[j].clone())];
                // The path's lowest bit is that of the first level, the highest that of the last.
                view.push(("CW_2", corrections(of_key, 1)));
                view.push(("CW_8", corrections(of_key, 7)));
                let values = unpack(run.message(Offline, 2, j, "op/values"), 8, N * f.corrected());
                let words = values.chunks_exact(N).map(<[u8]>::to_vec);
                view.extend(
                    ["V(1)", "V(r_l)", "V_0(1)", "V_0(r)", "V_1(1)", "V_1(r)"].into_iter().zip(words),
                );
                if j == 1 {
                    let first = run.message(Offline, 2, 1, "op/first-correction");
                    view.push(("CW_1", first.iter().step_by(16).copied().collect()));
                }
                view
            });
            (x, r, seen, run.opened("op/looked-up"))
        });
        for j in 0..2 {
            let views: Vec<(String, View)> = (runs.iter())
                .map(|(x, _, seen, opened)| {
                    let mut view = seen[j].clone();
                    view.extend(opened_columns(j, opened));
                    (format!("x = {x:#x}"), view)
                })
                .collect();
            indistinguishable(&format!("worker {j} with a key"), &views);
            // The control: a worker that holds the other's half of the mask, and so the path.
            let [a, b] = [0, 1].map(|i| {
                let mut view = views[i].1.clone();
                view[1].1 = zip(&runs[i].1[0], &runs[i].1[1], u8::wrapping_add);
                view
            });
            assert!(compare_views(&a, &b).0 > 2.0 * MANY, "a whole mask passes");
        }
    }
}

/// Bit planes of a message, `N` bits each.
fn planes(message: &[u8]) -> Vec<Vec<u8>> {
    let count = message.len() * 8 / N;
    unpack(message, 1, count * N).chunks_exact(N).map(<[u8]>::to_vec).collect()
}

#[test]
fn a_workers_view_of_a_relu_by_tables_of_digits_is_independent_of_the_secret() {
    let relu = Relu { sign: SignBit::FULL, form: ReluForm::DigitTables, truncate: 0 };
    let runs = [0u8, 1, 0x3f, 0x80, 0xff].map(|x| {
        let run = execute(Op::Relu(relu.clone()), 2, &[x]);
        let (m, r) = (run.masked_input(0), [0, 1].map(|j| run.input_mask(j, 0, N)));
        let opened = run.opened("op/selected");
        for (m, [a, b]) in opened.m.iter().zip(zip_pairs(&opened.masks)) {
            assert_eq!(m.wrapping_sub(a).wrapping_sub(b) as i8, (x as i8).max(0), "{x:#x}");
        }
        let bits = [0, 1].map(|j| planes(run.message(Online, j, 1 - j, "op/level0")));
        // Two digits: G of the lower, and G and P of the higher one.
        assert_eq!(bits.each_ref().map(Vec::len), [3, 3]);
        let both: Vec<Vec<u8>> = bits[0].iter().zip(&bits[1]).map(|(a, b)| zip(a, b, |a, b| a ^ b)).collect();
        let seen = [0, 1].map(|j| {
            let mut view: View = vec![("m", m.clone()), ("r_j", r[j].clone())];
            // Which of the thresholds it is sent says the balance of links.
            let thresholds = planes(run.message(Offline, 2, j, "op/v"));
            view.push(("first threshold", thresholds[0].clone()));
            view.push(("last threshold", thresholds[thresholds.len() - 1].clone()));
            let words =
                unpack(run.message(Offline, 2, j, ["op/digits-bit", "op/digits-mask-bit"][j]), 8, 4 * N);
            view.push(("a product", words[..N].to_vec()));
            view.push(("the last product", words[3 * N..].to_vec()));
            let names = ["opened G of the low digit", "opened G or P of the high", "the other of these"];
            view.extend(names.into_iter().zip(both.clone()));
            view.extend(["its share", "and", "and"].into_iter().zip(bits[1 - j].clone()));
            view
        });
        (x, m, r, seen, opened)
    });
    for j in 0..2 {
        let views: Vec<(String, View)> = (runs.iter())
            .map(|(x, .., seen, opened)| {
                let mut view = seen[j].clone();
                view.extend(opened_columns(j, opened));
                (format!("x = {x:#x}"), view)
            })
            .collect();
        indistinguishable(&format!("worker {j} with tables of digits"), &views);
        // The controls: a signal that is opened without its mask, and an opening without the
        // output's.
        let [clear, bare] = [0, 1].map(|control| {
            [0, 2].map(|i| {
                let (_, m, r, _, opened) = &runs[i];
                let mut view = views[i].1.clone();
                if control == 0 {
                    // P of the high digit, of bits 4 to 6.
                    let whole = zip(&r[0], &r[1], u8::wrapping_add);
                    let high = |x: u8| x >> 4 & 7;
                    view[7].1 = zip(m, &whole, |m, r| u8::from(high(!m) + high(r) == 7));
                } else {
                    let end = view.len();
                    for column in &mut view[end - 3..end - 1] {
                        column.1 = zip(&column.1, &opened.masks[1 - j], u8::wrapping_sub);
                    }
                }
                view
            })
        });
        for (what, [a, b]) in [("a signal in the clear", clear), ("an unmasked opening", bare)] {
            assert!(compare_views(&a, &b).0 > 2.0 * MANY, "{what} passes");
        }
    }
}

/// Both workers' parts, element by element.
fn zip_pairs(parts: &[Vec<u8>; 2]) -> Vec<[u8; 2]> {
    parts[0].iter().zip(&parts[1]).map(|(&a, &b)| [a, b]).collect()
}
