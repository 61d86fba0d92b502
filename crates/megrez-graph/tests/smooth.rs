//! Smooth functions by splines and by tables: as near to the function as they say.

use crate::common::small::{graph, none, one, tensor};
use crate::common::{check, decode, interpret, noise, run};
use megrez_graph::layers::spline_error;
use megrez_graph::{Activations, CompileOptions, RangePolicy, Tensor, compile};
/// The activations that are splines, with the errors that their files state.
const SPLINES: [(&str, f64); 4] =
    [("Sigmoid", 0.0032), ("Tanh", 0.0067), ("Gelu", 0.0021), ("Swish", 0.0078)];

/// Numbers from −`end` to `end`, dense around 0.
fn dense(end: f32, n: usize) -> Tensor {
    let at = |i: usize| (2 * i) as f32 / (n - 1) as f32 - 1.0;
    tensor([1, n], &(0..n).map(|i| end * at(i).powi(3)).collect::<Vec<_>>())
}

#[test]
fn splines_are_as_near_as_they_say() {
    let x = dense(40.0, 40_001);
    for (op, error) in SPLINES {
        let g = one(&[1, 40_001], op, &[], none());
        for (ring, frac, rounding) in [(64, 16, 3e-4), (64, 24, 3e-6), (32, 10, 0.02), (32, 12, 0.005)] {
            let input_range = megrez_graph::Interval::abs(40.0);
            let options = CompileOptions { ring, frac, input_range, ..CompileOptions::default() };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
            assert!(compiled.ranges[0].proven);
            check(&compiled, std::slice::from_ref(&x), error + rounding);
            assert_eq!(
                crate::common::elements(&compiled.plan, |op| matches!(op, megrez_plan::Op::Select { .. })),
                3 * 40_001
            );
        }
    }
}

#[test]
fn finer_splines_are_as_near_as_they_say() {
    let x = dense(40.0, 40_001);
    let functions = [
        ("Sigmoid", [0.00017, 0.000008]),
        ("Tanh", [0.00034, 0.000016]),
        ("Erf", [0.00006, 0.0000002]),
        ("Gelu", [0.00017, 0.00007]),
        ("Swish", [0.0015, 0.00008]),
    ];
    for (op, errors) in functions {
        let g = one(&[1, 40_001], op, &[], none());
        for (frac, rounding) in [(12, 2e-3), (16, 1.5e-4), (18, 5e-5), (20, 3e-5), (24, 3e-5)] {
            let error = errors[usize::from(frac > 16)];
            assert_eq!(spline_error(op, Activations::Fine, frac), Some(f64::from(error as f32)));
            let input_range = megrez_graph::Interval::abs(40.0);
            let activations = Activations::Fine;
            let options = CompileOptions { frac, input_range, activations, ..CompileOptions::default() };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
            assert!(compiled.ranges[0].proven);
            check(&compiled, std::slice::from_ref(&x), error + rounding);
        }
        let options = CompileOptions {
            ring: 32,
            frac: 10,
            activations: Activations::Fine,
            ..CompileOptions::default()
        };
        assert!(compile(&g, &options).unwrap_err().to_string().contains("64-bit ring"));
    }
}

#[test]
fn tables_are_as_near_as_they_say() {
    let lookups = |plan: &megrez_plan::Plan| {
        let tables = plan.steps.iter().filter_map(|s| match &s.op {
            megrez_plan::Op::Lookup(lookup) => Some(lookup.pieces.len()),
            _ => None,
        });
        tables.collect::<Vec<_>>()
    };
    for op in ["Sigmoid", "Tanh", "Erf", "Gelu", "Swish"] {
        assert_eq!(spline_error(op, Activations::Lookup, 16), Some(1.0 / 4096.0));
        // Narrow: a table and a truncation. Wide: a comparison beside it.
        for (bound, steps) in [(8.0f32, 0), (40.0, 1)] {
            let x = dense(bound, 40_001);
            let g = one(&[1, 40_001], op, &[], none());
            for (ring, frac, error) in [(64, 16, 1.0 / 4096.0), (64, 20, 1.0 / 4096.0), (32, 10, 0.006)] {
                let input_range = megrez_graph::Interval::abs(bound.into());
                let activations = Activations::Lookup;
                let options =
                    CompileOptions { ring, frac, input_range, activations, ..CompileOptions::default() };
                let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
                assert!(compiled.ranges[0].proven);
                check(&compiled, std::slice::from_ref(&x), error);
                let compared = |op: &megrez_plan::Op| matches!(op, megrez_plan::Op::CompareMany { .. });
                let count = compiled.plan.steps.iter().filter(|s| compared(&s.op)).count();
                let tables = lookups(&compiled.plan);
                // On 32 bits coefficients have few bits: some tables are clamped first all the
                // same.
                let clamped = if ring == 32 { count } else { steps };
                assert_eq!((tables.len(), count), (1, clamped), "{op} ±{bound} {ring} {tables:?}");
            }
        }
    }
}

/// Where messages take long one key gives the function of all numbers: nothing is compared, also
/// where ranges are assumed and values leave them, as long as their bits are looked at.
#[test]
fn one_key_serves_all_numbers() {
    use megrez_graph::{Comparison, Interval, ListStyle};
    use megrez_plan::{Fewest, Op};
    for op in ["Sigmoid", "Tanh", "Erf", "Gelu", "Swish"] {
        let rises = matches!(op, "Gelu" | "Swish");
        for (bound, fitted) in [(40.0f32, true), (200.0, true), (40.0, false)] {
            for (ring, frac, error) in [(64, 16, 1.0 / 4096.0), (64, 20, 1.0 / 4096.0), (32, 10, 0.006)] {
                let x = dense(bound, 40_001);
                let g = one(&[1, 40_001], op, &[], none());
                let list = ListStyle::Digits(Fewest::Total);
                let comparison = match fitted {
                    true => Comparison::Fitted { list, bits: None, calibration: None },
                    false => CompileOptions::default().comparison,
                };
                let options = CompileOptions {
                    ring,
                    frac,
                    comparison,
                    input_range: Interval::abs(bound.into()),
                    activations: Activations::Tables,
                    delay_ns: 1 << 50,
                    ..CompileOptions::default()
                };
                let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
                assert!(compiled.ranges[0].proven);
                check(&compiled, std::slice::from_ref(&x), error);
                let plan = &compiled.plan;
                let beyond = plan.steps.iter().filter_map(|s| match &s.op {
                    Op::Lookup(f) => f.beyond,
                    _ => None,
                });
                let beyond: Vec<_> = beyond.collect();
                let compares = plan.steps.iter().any(|s| matches!(s.op, Op::CompareMany { .. }));
                let what = format!("{op} ±{bound} fitted {fitted} {ring} {frac}: {beyond:?}");
                // Of a line everybody would see how large it grows; and on 32 bits there is no
                // room.
                let may = ring == 64 && (fitted || !rises);
                assert!(compares != (beyond.len() == 1) && (!may || !compares), "{what}");
                assert!(beyond.iter().all(|beyond| beyond.slope != 0 || !rises), "{what}");
            }
        }
    }
    // Comparisons of few bits have no room for what is beside the segments, and stay.
    for (bits, keys) in [(22, 0), (24, 1)] {
        let sign = megrez_plan::SignBit { list: megrez_plan::List::Bits, cut: 0, bits: Some(bits) };
        let options = CompileOptions {
            comparison: Comparison::Fixed(sign),
            input_range: Interval::abs(16.0),
            activations: Activations::Tables,
            delay_ns: 1 << 50,
            ..CompileOptions::default()
        };
        let x = dense(16.0, 4001);
        let compiled = compile(&one(&[1, 4001], "Gelu", &[], none()), &options).unwrap();
        check(&compiled, std::slice::from_ref(&x), 1.0 / 4096.0);
        let beside = |s: &&megrez_plan::Step| matches!(&s.op, Op::Lookup(f) if f.beyond.is_some());
        assert_eq!(compiled.plan.steps.iter().filter(beside).count(), keys, "{bits} bits");
    }
    // The bits that are looked at say whether a value is in its range.
    let x = dense(35.0, 4001);
    let g = one(&[1, 4001], "Gelu", &[], none());
    let options = CompileOptions {
        comparison: Comparison::Fitted {
            list: ListStyle::Digits(Fewest::Total),
            bits: None,
            calibration: None,
        },
        policy: RangePolicy::Assume,
        activations: Activations::Tables,
        delay_ns: 1 << 50,
        input_range: Interval::abs(20.0),
        ..CompileOptions::default()
    };
    let compiled = compile(&g, &options).unwrap();
    let values = interpret(&compiled, std::slice::from_ref(&x));
    let last = compiled.layers.last().unwrap();
    let got = decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
    let want = megrez_graph::plain::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
    assert!(got.iter().zip(&want.data).all(|(g, &w)| (g - f64::from(w)).abs() < 1.0 / 4096.0));
}

/// Where data says how large values are, a key looks at as many bits as a comparison would, however
/// large the proof is.
#[test]
fn keys_look_at_what_data_has_shown() {
    use megrez_graph::{Comparison, Interval, ListStyle, calibrate};
    let n = 2048;
    let x = noise([8, n], 4);
    let g = graph(&[8, n], |g, x| {
        let w = g.constant("w", noise([n, 4], 5));
        let y = g.add("fc", "MatMul", &[x, w], none()).unwrap();
        g.add("gelu", "Gelu", &[y], none()).unwrap()
    });
    let measured = calibrate::calibrate(&g, [vec![x.clone()]], 2.0).unwrap();
    let list = ListStyle::Digits(megrez_plan::Fewest::Total);
    for input_range in [1.0, 4096.0] {
        let options = CompileOptions {
            policy: RangePolicy::Calibrated,
            comparison: Comparison::Fitted { list, bits: None, calibration: Some(measured.clone()) },
            measured: Some(measured.clone()),
            input_range: Interval::abs(input_range),
            activations: Activations::Tables,
            delay_ns: 1 << 50,
            ..CompileOptions::default()
        };
        let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{p}"));
        let beyond = compiled.plan.steps.iter().find_map(|s| match &s.op {
            megrez_plan::Op::Lookup(f) => f.beyond,
            _ => None,
        });
        // 16 fraction bits of the input, as many of the weights, and a few for what was seen.
        assert!(beyond.is_some_and(|beyond| beyond.bits < 48), "{input_range}: {beyond:?}");
        let values = interpret(&compiled, std::slice::from_ref(&x));
        let last = compiled.layers.last().unwrap();
        let got = decode(values[last.value.0 as usize].as_ref().unwrap(), last.frac);
        let want = megrez_graph::plain::run(&g, std::slice::from_ref(&x)).unwrap().remove(0);
        let off = got.iter().zip(&want.data).map(|(g, &w)| (g - f64::from(w)).abs()).fold(0.0, f64::max);
        assert!(off < 0.01, "{input_range}: {off:.1e}");
    }
}

/// Activations that are made of several functions are one look-up where tables are.
#[test]
fn curves_are_whole_where_tables_are() {
    use megrez_plan::Op;
    for (op, alpha) in
        [("Softplus", None), ("Mish", None), ("Elu", None), ("Celu", Some(0.25)), ("Celu", Some(1.25))]
    {
        let attributes = alpha.map_or_else(none, |alpha: f32| none().with("alpha", alpha));
        let x = dense(40.0, 4001);
        let g = one(&[1, 4001], op, &[], attributes);
        for (activations, delay_ns) in
            [(Activations::Minimax, 0), (Activations::Tables, 0), (Activations::Tables, 1 << 50)]
        {
            let options = CompileOptions {
                activations,
                delay_ns,
                comparison: megrez_graph::Comparison::Fitted {
                    list: megrez_graph::ListStyle::Digits(megrez_plan::Fewest::Total),
                    bits: None,
                    calibration: None,
                },
                input_range: megrez_graph::Interval::abs(40.0),
                ..CompileOptions::default()
            };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
            let whole = activations != Activations::Minimax;
            if whole {
                check(&compiled, std::slice::from_ref(&x), 1.0 / 4096.0);
            }
            let steps = |of: fn(&Op) -> bool| compiled.plan.steps.iter().filter(|s| of(&s.op)).count();
            let found = [
                steps(|op| matches!(op, Op::Lookup(_))),
                steps(|op| matches!(op, Op::CompareMany { .. })),
                steps(|op| matches!(op, Op::Mul)),
            ];
            if whole {
                assert_eq!(found, [1, usize::from(delay_ns == 0), 0], "{op} {alpha:?}");
            }
            assert_eq!(compiled.layers.len() == 1, whole, "{op} {alpha:?}");
        }
    }
}

/// Powers of e that are far below 0 are looked up with all others.
#[test]
fn softmax_by_a_key_compares_its_maxima_only() {
    for (bound, n) in [(400.0, 8), (30.0, 16), (30.0, 120)] {
        let x = tensor([20, n], &dense(bound, 20 * n).data);
        let g = graph(&[20, n], |g, x| {
            let y = g.add("softmax", "Softmax", &[x], none()).unwrap();
            g.add("relu", "Relu", &[y], none()).unwrap()
        });
        let options = CompileOptions {
            input_range: megrez_graph::Interval::abs(bound.into()),
            activations: Activations::Tables,
            delay_ns: 1 << 50,
            ..CompileOptions::default()
        };
        let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{p}"));
        check(&compiled, std::slice::from_ref(&x), 1e-4);
        let compares = |s: &megrez_plan::Step| matches!(s.op, megrez_plan::Op::CompareMany { .. });
        assert!(!compiled.plan.steps.iter().any(compares));
    }
}

/// Segments that no value reaches, of a function that grows beyond the range, make no table
/// impossible.
#[test]
fn tables_are_found_for_ranges_of_all_sizes() {
    for op in ["Exp", "Softmax", "Gelu", "Swish", "Sigmoid"] {
        for i in 1..40 {
            let low = -0.37 * f64::from(i);
            let high = match op {
                "Exp" => 0.0,
                "Softmax" => -low,
                _ => f64::from(i * 7 % 40) / 5.0,
            };
            let n = 201;
            let x: Vec<f32> = (0..n).map(|k| (low + (high - low) * f64::from(k) / 200.0) as f32).collect();
            let x = Tensor::new([3, 67], x);
            let g = graph(&[3, 67], |g, x| {
                let with = if op == "Softmax" { none().with("axis", -1) } else { none() };
                let y = g.add("layer", op, &[x], with).unwrap();
                // A softmax at the end would be the recipient's to compute.
                g.add("end", "Relu", &[y], none()).unwrap()
            });
            let options = CompileOptions {
                input_range: megrez_graph::Interval { low, high },
                activations: Activations::Lookup,
                ..CompileOptions::default()
            };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op} on [{low}, {high}]: {p}"));
            assert!(compiled.ranges[0].proven);
            check(&compiled, std::slice::from_ref(&x), 1.0 / 4096.0);
        }
    }
}

#[test]
fn without_a_proof_a_table_is_compared_too() {
    // A range that is declared too narrow: what lies beyond must not come out as the function's
    // value at the other end.
    let x = dense(5.0, 4001);
    let g = one(&[1, 4001], "Sigmoid", &[], none());
    let narrow = megrez_graph::Interval::abs(2.0);
    for (policy, clamps) in [(RangePolicy::Prove, 0), (RangePolicy::Assume, 1)] {
        let activations = Activations::Lookup;
        let options =
            CompileOptions { input_range: narrow, policy, activations, ..CompileOptions::default() };
        let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{p}"));
        let compares = |s: &&megrez_plan::Step| matches!(s.op, megrez_plan::Op::CompareMany { .. });
        assert_eq!(compiled.plan.steps.iter().filter(compares).count(), clamps);
        if clamps > 0 {
            check(&compiled, std::slice::from_ref(&x), 1.0 / 4096.0);
        }
    }
}

#[test]
fn softmax_takes_its_powers_and_its_quotient_from_tables() {
    // Narrow scores: nothing is compared but for the maxima. Wide ones: one comparison says whose
    // power counts. Long rows: one says where their sum is, for which one table serves.
    for (bound, n, tables, comparisons) in [(7.5, 8, 2, 0), (400.0, 8, 2, 1), (7.5, 120, 2, 1)] {
        let x = tensor([20, n], &dense(bound, 20 * n).data);
        // Behind it something that computes: at an output the recipient would do it.
        let g = graph(&[20, n], |g, x| {
            let y = g.add("softmax", "Softmax", &[x], none()).unwrap();
            g.add("relu", "Relu", &[y], none()).unwrap()
        });
        let input_range = megrez_graph::Interval::abs(bound.into());
        let activations = Activations::Lookup;
        let options = CompileOptions { input_range, activations, ..CompileOptions::default() };
        let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{p}"));
        check(&compiled, std::slice::from_ref(&x), 1e-4);
        let count =
            |of: fn(&megrez_plan::Op) -> bool| compiled.plan.steps.iter().filter(|s| of(&s.op)).count();
        let found = [
            count(|op| matches!(op, megrez_plan::Op::Lookup(_))),
            count(|op| matches!(op, megrez_plan::Op::CompareMany { .. })),
        ];
        assert_eq!(found, [tables, comparisons], "±{bound}, {n}");
    }
}

#[test]
fn scores_and_activations_are_read_before_they_are_truncated() {
    let g = graph(&[4, 8], |g, x| {
        let w = g.constant("w", noise([8, 8], 1));
        let y = g.add("scores", "MatMul", &[x, w], none()).unwrap();
        let y = g.add("softmax", "Softmax", &[y], none()).unwrap();
        let y = g.add("values", "MatMul", &[y, w], none()).unwrap();
        let y = g.add("gelu", "Gelu", &[y], none()).unwrap();
        g.add("relu", "Relu", &[y], none()).unwrap()
    });
    for (policy, truncations) in [(RangePolicy::Prove, 0), (RangePolicy::Assume, 1)] {
        let activations = Activations::Lookup;
        let options = CompileOptions { policy, activations, ..CompileOptions::default() };
        let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{p}"));
        check(&compiled, &[noise([4, 8], 2)], 5e-4);
        // Where a GELU is x far from 0, x is truncated beside the look-up.
        let plain = compiled.plan.steps.iter().filter(|s| s.name.ends_with("/truncate")).count();
        assert_eq!(plain, truncations);
    }
}

/// x^−½.
fn inverse_root(shape: &[usize]) -> megrez_graph::Graph {
    one(shape, "Pow", &[tensor([], &[-0.5])], none())
}

#[test]
fn tables_hold_all_octaves() {
    use megrez_graph::Interval;
    type Graphs = [(fn(&[usize]) -> megrez_graph::Graph, fn(f64) -> f64, f64, f64, i64); 3];
    let functions: Graphs = [
        (|shape| one(shape, "Reciprocal", &[], none()), |x| 1.0 / x, 3e-5, 1.1, 1),
        (inverse_root, |x| 1.0 / x.sqrt(), 3e-5, 1.1, 1),
        (|shape| one(shape, "Log", &[], none()), f64::ln, 0.0, 3.1, 128),
    ];
    // The borders of all octaves and what is beside them; and every word there is. From one unit
    // up (logarithms from 2^7), and on a part of one octave.
    let borders = (1..24).flat_map(|j| [-3, -1, 0, 1, 5].map(|d| (1 << j) + d)).filter(|&w| w > 0);
    let borders: Vec<i64> = borders.chain((0..4000).map(|i| 1 + i * i)).collect();
    let ranges = [(64, 16, borders), (64, 10, (1..1 << 15).collect()), (64, 12, (5000..6000).collect())];
    for (ring, frac, words) in ranges {
        let unit = 2f64.powi(-frac);
        for (graph, exact, relative, absolute, from) in functions {
            let words: Vec<i64> = words.iter().copied().filter(|&w| w >= from).collect();
            let x: Vec<f32> = words.iter().map(|&w| (w as f64 * unit) as f32).collect();
            let (low, high) = (words.iter().min().unwrap(), words.iter().max().unwrap());
            let input_range = Interval { low: *low as f64 * unit, high: *high as f64 * unit };
            let of = |policy| [(policy, 0), (policy, 1 << 50)];
            for (policy, delay_ns) in [RangePolicy::Prove, RangePolicy::Assume].into_iter().flat_map(of) {
                let options = CompileOptions {
                    ring,
                    frac: frac as u32,
                    input_range,
                    policy,
                    activations: Activations::Lookup,
                    delay_ns,
                    ..CompileOptions::default()
                };
                let compiled = compile(&graph(&[x.len()]), &options).unwrap_or_else(|p| panic!("{p}"));
                let count = |of: fn(&megrez_plan::Op) -> bool| {
                    compiled.plan.steps.iter().filter(|s| of(&s.op)).count()
                };
                let looks = count(|op| matches!(op, megrez_plan::Op::Lookup(_)));
                let compares = count(|op| matches!(op, megrez_plan::Op::CompareMany { .. }));
                assert!(
                    looks > 0 && (delay_ns == 0 || compares == 0),
                    "{frac} {policy:?} {relative} {looks} {compares}"
                );
                // Of several keys three parts are truncated near a border, and not one; all others
                // are 0.
                let absolute = if delay_ns > 0 && looks > 1 { absolute + 2.0 } else { absolute };
                let values = crate::common::interpret(&compiled, &[tensor([x.len()], &x)]);
                let layer = &compiled.layers[0];
                let y = crate::common::decode(values[layer.value.0 as usize].as_ref().unwrap(), layer.frac);
                for (&x, y) in x.iter().zip(y) {
                    let want = exact(x.into());
                    let off = (y - want).abs();
                    assert!(
                        off <= relative * want.abs() + absolute * unit,
                        "f({x}) is {y} instead of {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_norm_takes_its_root_from_tables() {
    let sizes = [(0.01f32, 1.0), (1.0, 4.0), (30.0, 60.0)];
    for (op, (size, bound)) in
        ["LayerNormalization", "RMSNormalization"].into_iter().flat_map(|op| sizes.map(|size| (op, size)))
    {
        let g = graph(&[6, 48], |g, x| {
            let scale = g.constant("scale", noise([48], 3));
            let y = g.add("norm", op, &[x, scale], none()).unwrap();
            g.add("relu", "Relu", &[y], none()).unwrap()
        });
        let x = Tensor::new([6, 48], noise([6, 48], 5).data.iter().map(|v| size * v).collect());
        for (activations, delay_ns) in
            [(Activations::Minimax, 0), (Activations::Lookup, 0), (Activations::Tables, 1 << 50)]
        {
            let input_range = megrez_graph::Interval::abs(bound);
            let options = CompileOptions { input_range, activations, delay_ns, ..CompileOptions::default() };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
            // Rounding of x counts 1/σ times.
            check(&compiled, std::slice::from_ref(&x), 1e-4 + 4.0 * 2f64.powi(-16) / f64::from(size));
            let looks = compiled.plan.steps.iter().any(|s| matches!(s.op, megrez_plan::Op::Lookup(_)));
            assert_eq!(looks, activations != Activations::Minimax);
            let compares = |s: &megrez_plan::Step| matches!(s.op, megrez_plan::Op::CompareMany { .. });
            assert!(delay_ns == 0 || !compiled.plan.steps.iter().any(compares), "{op} {size}");
        }
    }
}

#[test]
fn the_printed_approximations_are_as_printed() {
    let gelu = |x: f64| match x {
        x if x < -4.0 => 0.0,
        x if x < -1.95 => {
            -0.011034134030615728 * x.powi(3)
                - 0.11807612951181953 * x.powi(2)
                - 0.42226581151983866 * x
                - 0.5054031199708174
        }
        x if x <= 3.0 => {
            0.0018067462606141187 * x.powi(6) - 0.037688200365904236 * x.powi(4)
                + 0.3603292692789629 * x.powi(2)
                + 0.5 * x
                + 0.008526321541038084
        }
        x => x,
    };
    let sigmoid = |x: f64| (0.5 + 0.125 * x).clamp(0.0, 1.0);
    let approximations: [(&str, &dyn Fn(f64) -> f64, f64); 2] =
        [("Sigmoid", &sigmoid, 0.1333), ("Gelu", &gelu, 0.0199)];
    let x = dense(40.0, 4001);
    for (op, printed, error) in approximations {
        let g = one(&[1, 4001], op, &[], none());
        for (ring, frac, rounding) in [(64, 16, 1e-3), (64, 24, 1e-5), (32, 10, 0.05)] {
            let options = CompileOptions {
                ring,
                frac,
                input_range: megrez_graph::Interval::abs(40.0),
                activations: Activations::Mizar,
                ..CompileOptions::default()
            };
            let compiled = compile(&g, &options).unwrap_or_else(|p| panic!("{op}: {p}"));
            assert!(compiled.ranges[0].proven);
            assert_eq!(spline_error(op, Activations::Mizar, 16), Some(f64::from(error as f32)));
            check(&compiled, std::slice::from_ref(&x), error + rounding);
            let values = crate::common::interpret(&compiled, std::slice::from_ref(&x));
            let layer = &compiled.layers[0];
            let got = crate::common::decode(values[layer.value.0 as usize].as_ref().unwrap(), layer.frac);
            for (&x, got) in x.data.iter().zip(got) {
                // Borders and data are rounded to f bits: beside a jump either side is right.
                let x = f64::from(x);
                let unit = 2f64.powi(-(frac as i32));
                let near = [printed(x - unit), printed(x), printed(x + unit)];
                let off = near.iter().map(|y| (y - got).abs()).fold(f64::INFINITY, f64::min);
                assert!(off <= rounding, "{op}({x}) is {got} instead of {}", printed(x));
            }
        }
    }
    let tanh = |activations| spline_error("Tanh", activations, 16);
    assert_eq!(tanh(Activations::Mizar), tanh(Activations::Minimax), "what is not printed stays as it is");
}

#[test]
fn splines_bear_large_numbers_a_cut_and_any_shape() {
    use megrez_graph::{Comparison, ListStyle};
    let large = tensor([1, 1, 1, 4], &[2e6, -2e6, 1e4, -1e4]);
    let input_range = megrez_graph::Interval::abs(2e6);
    for (op, error) in SPLINES {
        let g = one(&[1, 1, 1, 4], op, &[], none());
        let options = CompileOptions { input_range, ..CompileOptions::default() };
        check(&compile(&g, &options).unwrap(), std::slice::from_ref(&large), error + 1e-3);
        let scalar = one(&[], op, &[], none());
        check(&compile(&scalar, &CompileOptions::default()).unwrap(), &[tensor([], &[0.7])], error + 1e-3);
        // Few bits: what the cut reads wrongly is off by the cut, and no more.
        let list = ListStyle::Digits(megrez_plan::Fewest::Total);
        let comparison = Comparison::Fitted { list, bits: Some(12), calibration: None };
        let x = dense(20.0, 2001);
        let input_range = megrez_graph::Interval::abs(20.0);
        let options = CompileOptions { comparison, input_range, ..CompileOptions::default() };
        let g = one(&[1, 2001], op, &[], none());
        let compiled = compile(&g, &options).unwrap();
        check(&compiled, std::slice::from_ref(&x), error + 0.03);
        assert!(compiled.layers[0].compared.is_some_and(|limit| limit >= 20.0));
    }
}

#[test]
fn products_with_their_sigmoid_are_one_swish() {
    let g = graph(&[2, 3], |g, x| {
        let s = g.add("sigmoid", "Sigmoid", &[x], none()).unwrap();
        let y = g.add("silu", "Mul", &[s, x], none()).unwrap();
        // A sigmoid with another reader stays one.
        let t = g.add("gate", "Sigmoid", &[y], none()).unwrap();
        let z = g.add("gated", "Mul", &[y, t], none()).unwrap();
        g.add("sum", "Add", &[z, t], none()).unwrap()
    });
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    let ops: Vec<&str> = compiled.graph.nodes.iter().map(|n| n.op.as_str()).collect();
    assert_eq!(ops, ["Swish", "Sigmoid", "Mul", "Add"]);
    check(&compiled, &[noise([2, 3], 1)], 0.02);
    assert_eq!(run(&compiled.graph, &noise([2, 3], 1)).data, run(&g, &noise([2, 3], 1)).data);
}

#[test]
fn splines_follow_a_linear_layer() {
    let g = graph(&[2, 3, 6, 6], |g, x| {
        let w = g.constant("w", noise([4, 3, 3, 3], 1));
        let y = g.add("conv", "Conv", &[x, w], none()).unwrap();
        let y = g.add("tanh", "Tanh", &[y], none()).unwrap();
        let y = g.add("pool", "MaxPool", &[y], none().with("kernel_shape", [2, 2])).unwrap();
        g.add("gelu", "Gelu", &[y], none().with("approximate", "tanh")).unwrap()
    });
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    // A maximum goes before the activation that keeps the order.
    let ops: Vec<&str> = compiled.graph.nodes.iter().map(|n| n.op.as_str()).collect();
    assert_eq!(ops, ["Conv", "MaxPool", "Tanh", "Gelu"]);
    check(&compiled, &[noise([2, 3, 6, 6], 3)], 0.02);
}
