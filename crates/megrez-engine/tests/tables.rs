//! What each party sees of a look-up, jointly, at ℓ = 8: the shares of the table and what is
//! opened, beside the party's own.

use crate::common::session::{unpack, zip};
use crate::common::stats::{MANY, View, compare_views};
use crate::views::{N, execute, indistinguishable, opened_columns};
use megrez_kernels::{LookupTables, Memory, Reference};
use megrez_plan::{Lookup, Op};
use megrez_session::Phase::Offline;

const NAMES: [&str; 8] =
    ["c0(0)_j", "c1(0)_j", "c0(1)_j", "c1(1)_j", "c0(2)_j", "c1(2)_j", "c0(3)_j", "c1(3)_j"];

#[test]
fn a_workers_view_of_a_look_up_is_independent_of_the_secret() {
    // A steep function, and one that is constant but for its wrap.
    for pieces in [vec![-90, 3, 17, -5, 60, 1, -128, 127], vec![5, 0, 5, 0, 9, 0, 9, 0]] {
        let f = Lookup { cut: 1, low: 4, degree: 1, pieces, frac: 2 };
        let runs = [0u8, 0x3f, 0xc0, 0xff, 0x15].map(|x| {
            let run = execute(Op::Lookup(f.clone()), 2, &[x]);
            let r = [run.input_mask(0, 0, N), run.input_mask(1, 0, N)];
            let whole = zip(&r[0], &r[1], u8::wrapping_add);
            let tables = Reference.lookup_tables(&f, &Reference.upload(whole).unwrap()).unwrap();
            let tables = Reference.download(tables).unwrap();
            let zero = unpack(run.message(Offline, 2, 0, "op/table"), 8, N * f.pieces.len());
            let one = zip(&tables, &zero, u8::wrapping_sub);
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
