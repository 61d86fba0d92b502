//! Every layer in the clear against numbers worked out by hand, and lowered against the clear.

use crate::common::small::{graph, none, one, tensor};
use crate::common::{check, check_floats, noise, run};
use megrez_graph::{
    Attributes, Comparison, CompileOptions, Graph, Id, ListStyle, PoolForm, RangePolicy, Tensor, compile,
};
use megrez_plan::{Op, SignBit};
/// The clear result by hand; then lowered with secret and with public weights.
fn expect(graph: &Graph, x: &Tensor, want: &Tensor) {
    let got = run(graph, x);
    assert_eq!(got.shape, want.shape);
    for (g, w) in got.data.iter().zip(&want.data) {
        assert!((g - w).abs() < 1e-5, "{:?} instead of {:?}", got.data, want.data);
    }
    lowers(graph, std::slice::from_ref(x));
}

fn lowers(graph: &Graph, inputs: &[Tensor]) {
    let bound = inputs.iter().flat_map(|t| &t.data).fold(1.0f32, |m, v| m.max(v.abs()));
    for (private_weights, pool) in [(true, PoolForm::Tournament), (false, PoolForm::AllPairs)] {
        let input_range = megrez_graph::Interval::abs(bound.into());
        let options = CompileOptions { private_weights, pool, input_range, ..CompileOptions::default() };
        let compiled = compile(graph, &options).unwrap_or_else(|p| panic!("{p}"));
        assert_eq!(compiled.model_inputs.is_empty(), compiled.plan.inputs.len() == graph.inputs.len());
        check(&compiled, inputs, 2e-3);
    }
    check_floats(graph, inputs);
}

#[test]
fn conv() {
    let x = tensor([1, 1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let w = tensor([1, 1, 2, 2], &[1.0, 0.0, 0.0, -1.0]);
    let b = tensor([1], &[0.5]);
    let g = one(&[1, 1, 3, 3], "Conv", &[w.clone(), b.clone()], none());
    expect(&g, &x, &tensor([1, 1, 2, 2], &[-3.5; 4]));
    let g = one(
        &[1, 1, 3, 3],
        "Conv",
        &[w.clone(), b],
        none().with("strides", [2, 2]).with("pads", [1, 1, 0, 0]),
    );
    expect(&g, &x, &tensor([1, 1, 2, 2], &[-0.5, -2.5, -6.5, -3.5]));
    let g = one(&[1, 1, 3, 3], "Conv", std::slice::from_ref(&w), none().with("dilations", [2, 2]));
    expect(&g, &x, &tensor([1, 1, 1, 1], &[-8.0]));
    let g = one(&[1, 1, 3, 3], "Conv", &[w], none().with("auto_pad", "SAME_UPPER"));
    expect(&g, &x, &tensor([1, 1, 3, 3], &[-4.0, -4.0, 3.0, -4.0, -4.0, 6.0, 7.0, 8.0, 9.0]));
    // Two groups: each output channel sees its own input channel.
    let x = tensor([1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
    let w = tensor([2, 1, 1, 1], &[10.0, -1.0]);
    let g = one(&[1, 2, 1, 2], "Conv", &[w], none().with("group", 2));
    expect(&g, &x, &tensor([1, 2, 1, 2], &[10.0, 20.0, -3.0, -4.0]));
}

#[test]
fn conv_with_everything_at_once() {
    let attributes =
        none().with("group", 2).with("strides", [2, 1]).with("pads", [1, 2, 0, 3]).with("dilations", [1, 2]);
    let g = one(&[2, 4, 7, 6], "Conv", &[noise([6, 2, 3, 2], 1), noise([6], 2)], attributes);
    lowers(&g, &[noise([2, 4, 7, 6], 3)]);
}

#[test]
fn gemm() {
    let x = tensor([1, 2], &[1.0, 2.0]);
    let w = tensor([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let c = tensor([3], &[1.0, 0.0, -1.0]);
    let g = one(&[1, 2], "Gemm", &[w, c.clone()], none().with("alpha", 0.5).with("beta", 2.0));
    expect(&g, &x, &tensor([1, 3], &[6.5, 6.0, 5.5]));
    let wt = tensor([3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let g = one(&[1, 2], "Gemm", &[wt, c], none().with("transB", 1));
    expect(&g, &x, &tensor([1, 3], &[10.0, 12.0, 14.0]));
    let w = tensor([1, 3], &[1.0, 2.0, 3.0]);
    let g = one(&[1, 2], "Gemm", &[w], none().with("transA", 1));
    expect(&g, &x, &tensor([2, 3], &[1.0, 2.0, 3.0, 2.0, 4.0, 6.0]));
}

#[test]
fn gemm_of_two_secrets() {
    let mut g = Graph::new("test");
    let ids = ["a", "b", "c"].map(|n| g.input(n, [2, 2]).unwrap());
    let y = g.add("gemm", "Gemm", &ids, none().with("transA", 1)).unwrap();
    g.output("y", y);
    let inputs = [1, 2, 3].map(|s| noise([2, 2], s));
    let got = megrez_graph::plain::run(&g, &inputs).unwrap();
    let [a, b, c] = inputs.each_ref().map(|t| &t.data);
    assert!((got[0].data[1] - (a[0] * b[1] + a[2] * b[3] + c[1])).abs() < 1e-6);
    lowers(&g, &inputs);
}

#[test]
fn matmul() {
    let x = tensor([1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let w = tensor([2, 1], &[1.0, -1.0]);
    let g = one(&[1, 2, 2], "MatMul", &[w], none());
    expect(&g, &x, &tensor([1, 2, 1], &[-1.0, -1.0]));
    let g = one(&[1, 2, 2], "MatMul", &[tensor([2], &[1.0, 1.0])], none());
    expect(&g, &x, &tensor([1, 2], &[3.0, 7.0]));
    // The weights on the left.
    let g = graph(&[2, 2], |g, x| {
        let w = g.constant("w", tensor([1, 2], &[1.0, 10.0]));
        g.add("m", "MatMul", &[w, x], none()).unwrap()
    });
    expect(&g, &tensor([2, 2], &[1.0, 2.0, 3.0, 4.0]), &tensor([1, 2], &[31.0, 42.0]));
    // Two secrets, one broadcast over the batch.
    let mut g = Graph::new("test");
    let (a, b) = (g.input("a", [3, 2, 4]).unwrap(), g.input("b", [4, 5]).unwrap());
    let y = g.add("m", "MatMul", &[a, b], none()).unwrap();
    g.output("y", y);
    lowers(&g, &[noise([3, 2, 4], 1), noise([4, 5], 2)]);
}

#[test]
fn arithmetic_with_constants() {
    let x = tensor([1, 2, 2], &[1.0, -2.0, 3.0, -4.0]);
    let c = tensor([2, 1], &[2.0, -0.5]);
    let binary = |op: &str| one(&[1, 2, 2], op, std::slice::from_ref(&c), none());
    expect(&binary("Add"), &x, &tensor([1, 2, 2], &[3.0, 0.0, 2.5, -4.5]));
    expect(&binary("Sub"), &x, &tensor([1, 2, 2], &[-1.0, -4.0, 3.5, -3.5]));
    expect(&binary("Mul"), &x, &tensor([1, 2, 2], &[2.0, -4.0, -1.5, 2.0]));
    expect(&binary("Div"), &x, &tensor([1, 2, 2], &[0.5, -1.0, -6.0, 8.0]));
    let g = graph(&[1, 2, 2], |g, x| {
        let c = g.constant("c", c.clone());
        g.add("s", "Sub", &[c, x], none()).unwrap()
    });
    expect(&g, &x, &tensor([1, 2, 2], &[1.0, 4.0, -3.5, 3.5]));
    // The constant is larger than the value.
    let g = one(&[2, 1], "Add", &[tensor([1, 3], &[0.0, 1.0, 2.0])], none());
    expect(&g, &tensor([2, 1], &[1.0, 5.0]), &tensor([2, 3], &[1.0, 2.0, 3.0, 5.0, 6.0, 7.0]));
}

#[test]
fn arithmetic_of_secrets_with_different_scales() {
    for op in ["Add", "Sub", "Mul"] {
        let mut g = Graph::new("test");
        let (a, b) = (g.input("a", [2, 3]).unwrap(), g.input("b", [3]).unwrap());
        let c = g.constant("c", noise([3], 9));
        // 2f fraction bits, f fraction bits.
        let a = g.add("scaled", "Mul", &[a, c], none()).unwrap();
        let y = g.add("y", op, &[a, b], none()).unwrap();
        let y = g.add("relu", "Relu", &[y], none()).unwrap();
        g.output("y", y);
        lowers(&g, &[noise([2, 3], 1), noise([3], 2)]);
    }
}

#[test]
fn activations() {
    let x = tensor([1, 4], &[-2.0, -0.5, 0.5, 7.0]);
    expect(&one(&[1, 4], "Relu", &[], none()), &x, &tensor([1, 4], &[0.0, 0.0, 0.5, 7.0]));
    for slope in [0.25f32, 1.5, -0.5] {
        let g = one(&[1, 4], "LeakyRelu", &[], none().with("alpha", slope));
        expect(&g, &x, &tensor([1, 4], &[-2.0 * slope, -0.5 * slope, 0.5, 7.0]));
    }
    let clip = |low: Option<f32>, high: Option<f32>| {
        graph(&[1, 4], |g, x| {
            let ids = [low, high].map(|v| v.map(|v| g.constant("b", Tensor::new([], vec![v]))));
            g.add_node("clip", "Clip", &[Some(x), ids[0], ids[1]], none()).unwrap()
        })
    };
    expect(&clip(Some(0.0), Some(6.0)), &x, &tensor([1, 4], &[0.0, 0.0, 0.5, 6.0]));
    expect(&clip(Some(-1.0), None), &x, &tensor([1, 4], &[-1.0, -0.5, 0.5, 7.0]));
    expect(&clip(None, Some(0.25)), &x, &tensor([1, 4], &[-2.0, -0.5, 0.25, 0.25]));
    expect(&clip(None, None), &x, &x);
}

#[test]
fn max_pool() {
    let x = tensor([1, 1, 3, 3], &[1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0, -9.0]);
    let pool = |attributes: Attributes| one(&[1, 1, 3, 3], "MaxPool", &[], attributes);
    let k = |n: i64| none().with("kernel_shape", [n, n]);
    expect(&pool(k(2)), &x, &tensor([1, 1, 2, 2], &[5.0, 5.0, 7.0, 5.0]));
    expect(&pool(k(3)), &x, &tensor([1, 1, 1, 1], &[7.0]));
    expect(&pool(k(2).with("strides", [2, 2])), &x, &tensor([1, 1, 1, 1], &[5.0]));
    expect(
        &pool(k(2).with("strides", [2, 2]).with("ceil_mode", 1)),
        &x,
        &tensor([1, 1, 2, 2], &[5.0, 3.0, 7.0, -9.0]),
    );
    expect(&pool(k(1).with("strides", [2, 2])), &x, &tensor([1, 1, 2, 2], &[1.0, 3.0, 7.0, -9.0]));
    expect(&pool(k(2).with("dilations", [2, 2])), &x, &tensor([1, 1, 1, 1], &[7.0]));
}

#[test]
fn pools_by_all_pairs_have_a_step_for_four_values() {
    for ([rows, columns], steps) in [
        ([2, 2], vec![4]),
        ([1, 3], vec![3]),
        ([3, 3], vec![3, 3]),
        ([2, 5], vec![2, 3, 2, 2]),
        ([1, 1], vec![]),
    ] {
        let attributes = none().with("kernel_shape", [rows, columns]).with("strides", [2, 2]);
        let g = one(&[2, 2, 8, 7], "MaxPool", &[], attributes);
        let fitted = Comparison::Fitted { list: ListStyle::Bits, bits: None, calibration: None };
        for comparison in [Comparison::Fixed(SignBit::FULL), fitted] {
            let options =
                CompileOptions { pool: PoolForm::AllPairs, comparison, ..CompileOptions::default() };
            let compiled = compile(&g, &options).unwrap();
            let maxima = compiled.plan.steps.iter().filter(|s| matches!(s.op, Op::Maximum(_)));
            assert_eq!(maxima.map(|s| s.inputs.len()).collect::<Vec<_>>(), steps, "{rows}×{columns}");
            check(&compiled, &[noise([2, 2, 8, 7], 5)], 1e-4);
        }
    }
}

#[test]
fn padding_never_wins_a_max_pool() {
    let x = Tensor::new([1, 1, 3, 3], vec![-5.0, -6.0, -7.0, -8.0, -9.0, -4.0, -3.0, -2.0, -1.0]);
    let attributes = none().with("kernel_shape", [3, 3]).with("strides", [2, 2]).with("pads", [1, 1, 1, 1]);
    let g = one(&[1, 1, 3, 3], "MaxPool", &[], attributes);
    expect(&g, &x, &tensor([1, 1, 2, 2], &[-5.0, -4.0, -2.0, -1.0]));
    let attributes = none().with("kernel_shape", [3, 2]).with("pads", [2, 1, 2, 1]).with("dilations", [2, 1]);
    let g = one(&[1, 1, 3, 3], "MaxPool", &[], attributes);
    lowers(&g, &[x]);
}

#[test]
fn average_pool() {
    let x = tensor([1, 1, 3, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let pool = |attributes: Attributes| one(&[1, 1, 3, 3], "AveragePool", &[], attributes);
    let k = |n: i64| none().with("kernel_shape", [n, n]);
    expect(&pool(k(2)), &x, &tensor([1, 1, 2, 2], &[3.0, 4.0, 6.0, 7.0]));
    expect(&pool(k(3)), &x, &tensor([1, 1, 1, 1], &[5.0]));
    let padded = k(2).with("strides", [2, 2]).with("pads", [1, 1, 0, 0]);
    expect(&pool(padded.clone()), &x, &tensor([1, 1, 2, 2], &[1.0, 2.5, 5.5, 7.0]));
    expect(&pool(padded.with("count_include_pad", 1)), &x, &tensor([1, 1, 2, 2], &[0.25, 1.25, 2.75, 7.0]));
    let ceil = k(2).with("strides", [2, 2]).with("ceil_mode", 1);
    expect(&pool(ceil), &x, &tensor([1, 1, 2, 2], &[3.0, 4.5, 7.5, 9.0]));
    expect(&one(&[1, 1, 3, 3], "GlobalAveragePool", &[], none()), &x, &tensor([1, 1, 1, 1], &[5.0]));
}

#[test]
fn batch_norm() {
    let p = [vec![2.0, 1.0], vec![1.0, 0.0], vec![0.5, -1.0], vec![4.0, 0.25]].map(|v| Tensor::new([2], v));
    let g = one(&[1, 2, 1, 2], "BatchNormalization", &p, none().with("epsilon", 0.0));
    let x = tensor([1, 2, 1, 2], &[0.5, 2.5, -1.0, 0.0]);
    expect(&g, &x, &tensor([1, 2, 1, 2], &[1.0, 3.0, 0.0, 2.0]));
}

#[test]
fn rearrangements() {
    let x = Tensor::new([2, 3, 2], (0..12).map(|v| v as f32).collect());
    let ints = |v: &[i64]| Tensor::<i64>::new([v.len()], v.to_vec());
    let with = |op: &str, lists: &[&[i64]], attributes: Attributes| {
        graph(&[2, 3, 2], |g, x| {
            let mut inputs = vec![x];
            inputs.extend(lists.iter().map(|l| g.constant("i", ints(l))));
            g.add("layer", op, &inputs, attributes).unwrap()
        })
    };
    let same = |shape: &[usize]| Tensor::new(shape.to_vec(), x.data.clone());
    expect(&with("Flatten", &[], none()), &x, &same(&[2, 6]));
    expect(&with("Flatten", &[], none().with("axis", 3)), &x, &same(&[12, 1]));
    expect(&with("Reshape", &[&[0, -1]], none()), &x, &same(&[2, 6]));
    expect(&with("Unsqueeze", &[&[1, -1]], none()), &x, &same(&[2, 1, 3, 2, 1]));
    expect(&with("Identity", &[], none()), &x, &x);
    expect(&with("Dropout", &[], none().with("ratio", 0.5)), &x, &x);
    let turned = [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11].map(|v| v as f32).to_vec();
    expect(&with("Transpose", &[], none().with("perm", [0, 2, 1])), &x, &Tensor::new([2, 2, 3], turned));
    let reversed = tensor([2, 2, 2], &[4.0, 5.0, 0.0, 1.0, 10.0, 11.0, 6.0, 7.0]);
    expect(&with("Slice", &[&[-1], &[-100], &[1], &[-2]], none()), &x, &reversed);
    expect(&with("Gather", &[&[2, 0]], none().with("axis", 1)), &x, &reversed);
    let padded = with("Pad", &[&[0, 1, 0, 0, 0, 1]], none());
    let got = run(&padded, &x);
    assert_eq!((got.shape.dims(), &got.data[..6]), (&[2, 4, 3][..], &[0.0, 0.0, 0.0, 0.0, 1.0, 0.0][..]));
    lowers(&padded, std::slice::from_ref(&x));
    let squeezed = graph(&[1, 3, 1], |g, x| g.add("s", "Squeeze", &[x], none()).unwrap());
    expect(&squeezed, &tensor([1, 3, 1], &[1.0, 2.0, 3.0]), &tensor([3], &[1.0, 2.0, 3.0]));
}

#[test]
fn a_slice_of_the_first_elements_is_no_renaming() {
    let g = graph(&[1, 3], |g, x| {
        let [starts, ends, axes] = [0, 2, 1].map(|v| g.constant("i", Tensor::<i64>::new([1], vec![v])));
        g.add("first", "Slice", &[x, starts, ends, axes], none()).unwrap()
    });
    expect(&g, &tensor([1, 3], &[1.0, 2.0, 3.0]), &tensor([1, 2], &[1.0, 2.0]));
}

#[test]
fn concat() {
    let g = graph(&[1, 2, 2], |g, x| {
        let y = g.add("relu", "Relu", &[x], none()).unwrap();
        let c = g.constant("c", Tensor::new([], vec![3.0]));
        // Another scale than the other part.
        let z = g.add("tripled", "Mul", &[x, c], none()).unwrap();
        g.add("concat", "Concat", &[y, z], none().with("axis", 1)).unwrap()
    });
    let x = tensor([1, 2, 2], &[1.0, -2.0, -3.0, 4.0]);
    expect(&g, &x, &tensor([1, 4, 2], &[1.0, 0.0, 0.0, 4.0, 3.0, -6.0, -9.0, 12.0]));
}

#[test]
fn softmax_and_argmax_are_left_to_the_recipient() {
    let g = graph(&[2, 3], |g, x| {
        let relu = g.add("relu", "Relu", &[x], none()).unwrap();
        let p = g.add("softmax", "Softmax", &[relu], none()).unwrap();
        g.add("argmax", "ArgMax", &[p], none().with("axis", 1).with("keepdims", 0)).unwrap()
    });
    let x = tensor([2, 3], &[1.0, 2.0, 0.5, 3.0, -1.0, 3.0]);
    assert_eq!(run(&g, &x), tensor([2], &[1.0, 0.0]));
    let compiled = compile(&g, &CompileOptions::default()).unwrap();
    assert_eq!(crate::common::steps(&compiled.plan), ["relu/relu"]);
    let output = &compiled.outputs[0];
    assert_eq!((output.name.as_str(), output.shape.dims(), output.after.len()), ("y", &[2, 3][..], 2));
    assert_eq!(output.finish(vec![1.0, 2.0, 0.5, 3.0, 0.0, 3.0]), tensor([2], &[1.0, 0.0]));
    let soft = megrez_graph::layers::After::Softmax { axis: 0 }.apply(&tensor([2, 1], &[0.0, 3f32.ln()]));
    assert!((soft.data[0] - 0.25).abs() < 1e-6 && (soft.data[1] - 0.75).abs() < 1e-6);
}

#[test]
fn mistakes_are_refused_with_the_node() {
    let mut g = Graph::new("test");
    let x = g.input("x", [1, 3, 8, 8]).unwrap();
    let w = g.constant("w", noise([4, 2, 3, 3], 1));
    let mut refused = |op: &str, inputs: &[Id], attributes: Attributes, what: &str| {
        let error = g.add("bad", op, inputs, attributes).unwrap_err().to_string();
        assert!(error.starts_with("`bad") && error.contains(what), "{error}");
    };
    refused("Conv", &[x, w], none(), "do not fit a kernel");
    refused("Conv", &[x], none(), "input 1 is missing");
    refused("MaxPool", &[x], none().with("kernel_shape", [9, 9]), "does not fit an image");
    refused("MaxPool", &[x], none().with("kernel_shape", [2, 2]).with("pads", [3, 3, 3, 3]), "padding alone");
    refused("MaxPool", &[x], none().with("kernel_shape", [2, 2]).with("strides", [0, 1]), "at least 1");
    refused("Relu", &[x], none().with("slope", 1), "`slope` is not supported");
    refused("Reshape", &[x], none().with("shape", vec![5, 5]), "number of elements");
    refused("Transpose", &[x], none().with("perm", [0, 1]), "no order");
    refused("Gemm", &[x, w], none(), "not a matrix");
    refused("Add", &[x, w], none(), "do not broadcast");
    refused("Unique", &[x], none(), "depends on the data");
    refused("Swish", &[x], none().with("alpha", 1.5), "is not 1");
    refused("Gelu", &[x], none().with("approximate", "fast"), "`fast` is not known");
    assert!(g.input("y", [1 << 20, 1 << 20]).is_err() && g.input("y", [0]).is_err());
}

#[test]
fn assumed_ranges_are_listed() {
    let g = one(&[1, 2], "Mul", &[tensor([2], &[1e4, 1.0])], none());
    let options = CompileOptions { ring: 32, frac: 13, ..CompileOptions::default() };
    let error = compile(&g, &options).unwrap_err().to_string();
    assert!(
        error.starts_with("`layer` (Mul): its numbers may outgrow the 32-bit ring at 13 fraction bits"),
        "{error}"
    );
    assert!(error.contains("use 8 fraction bits, or use the 48-bit ring"), "{error}");
    let assumed = compile(&g, &CompileOptions { policy: RangePolicy::Assume, ..options }).unwrap();
    assert!(!assumed.ranges[0].proven);
    assert!(compile(&g, &CompileOptions::default()).unwrap().ranges[0].proven);
}
