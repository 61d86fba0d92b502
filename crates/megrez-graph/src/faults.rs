//! For tests of readers of untrusted bytes: valid files, damaged in all the ways that disks,
//! networks and people have.

use crate::graph::{Attribute, Attributes, Graph};

/// So many damaged files by default; `MEGREZ_FAULTS` says another number.
const FEW: usize = 4000;

/// Calls `read` with random bytes, always the same for the same number, as many as there are
/// damaged files.
pub fn noise(mut read: impl FnMut(&[u8])) {
    for number in 0..count() {
        let mut random = Random(number as u64);
        let length = 1 + 4 * random.below(8);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        let told = Told(number);
        read(&bytes);
        std::mem::forget(told);
    }
}

fn count() -> usize {
    std::env::var("MEGREZ_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(FEW)
}

/// Calls `read` with damaged files made of valid ones, always the same for the same number. A panic
/// names none of them: it comes with the number of the file, which goes to standard error.
pub fn each(valid: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    for number in 0..count() {
        let bytes = damaged(valid, number);
        let told = Told(number);
        read(&bytes);
        std::mem::forget(told);
    }
}

/// Says which file it was when a reader panics.
struct Told(usize);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("damaged file {} of MEGREZ_FAULTS", self.0);
    }
}

/// SplitMix64: tests need neither more nor other.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// Damaged file `number`: one to four changes of one of the valid files.
fn damaged(valid: &[Vec<u8>], number: usize) -> Vec<u8> {
    let mut random = Random(number as u64);
    let mut bytes = valid[number % valid.len()].clone();
    for _ in 0..=random.below(4) {
        let (at, length) = (random.below(bytes.len()), random.below(16) + 1);
        let end = (at + length).min(bytes.len());
        match random.below(8) {
            _ if bytes.is_empty() => bytes.push(random.below(256) as u8),
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let again = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, again));
            }
            6 => bytes[at..end].fill([0, 0xff][random.below(2)]),
            _ => {
                // A part of another file.
                let other = &valid[random.below(valid.len())];
                let from = random.below(other.len());
                let part = other[from..(from + length).min(other.len())].to_vec();
                drop(bytes.splice(at..end, part));
            }
        }
    }
    bytes
}

/// A classical model of the domain `ai.onnx.ml` whose attributes these bytes have changed: the
/// first picks a valid model, each four that follow change an attribute. `None` where it is
/// refused.
pub fn estimator(bytes: &[u8]) -> Option<Graph> {
    let (first, changes) = bytes.split_first()?;
    let models = estimators();
    let (op, mut attributes) = models[usize::from(*first) % models.len()].clone();
    for change in changes.chunks_exact(4) {
        let name = attributes.0.keys().nth(usize::from(change[0]) % attributes.0.len().max(1))?.clone();
        if change[1] == 255 {
            attributes.0.remove(&name);
        } else if let Some(attribute) = attributes.0.get_mut(&name) {
            damage(attribute, usize::from(change[1]), change[2], change[3]);
        }
    }
    let mut graph = Graph::new("damaged");
    let x = graph.input("x", [2, 3]).ok()?;
    let read = if op.ends_with("Classifier") { 2 } else { 1 };
    let outputs = graph.add_nodes("model", op, &[Some(x)], attributes, &vec![true; read]).ok()?;
    for (i, id) in outputs.into_iter().take(read).enumerate() {
        graph.output(&format!("y{i}"), id);
    }
    Some(graph)
}

fn damage(attribute: &mut Attribute, place: usize, how: u8, value: u8) {
    const INTS: [i64; 8] = [-1, 0, 1, 2, 3, 1 << 20, i64::MAX, i64::MIN];
    const FLOATS: [f32; 8] = [0.0, -1.0, 1.5, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-40];
    const TEXTS: [&str; 8] =
        ["", "LEAF", "BRANCH_GT", "BRANCH_LT", "RBF", "LOGISTIC", "SOFTMAX", "\u{1b}[2J"];
    let value = usize::from(value) % 8;
    fn list<T: Clone>(list: &mut Vec<T>, place: usize, how: u8, value: T) {
        match (how % 5, place % list.len().max(1)) {
            (0, at) => list.truncate(at),
            (1, at) => list.insert(at, value),
            (2, _) => list.push(value),
            (_, at) if at < list.len() => list[at] = value,
            _ => {}
        }
    }
    match attribute {
        Attribute::Ints(ints) => list(ints, place, how, INTS[value]),
        Attribute::Floats(floats) => list(floats, place, how, FLOATS[value]),
        Attribute::Strings(texts) => list(texts, place, how, TEXTS[value].into()),
        Attribute::Int(int) => *int = INTS[value],
        Attribute::Float(float) => *float = FLOATS[value],
        Attribute::String(text) => *text = TEXTS[value].into(),
        Attribute::Tensor(_) => {}
    }
}

/// Valid models on three features, one of each operator and more of those with several forms.
fn estimators() -> Vec<(&'static str, Attributes)> {
    let floats = |list: &[f32]| Attribute::Floats(list.to_vec());
    let texts = |list: &[&str]| Attribute::Strings(list.iter().map(ToString::to_string).collect());
    let trees = Attributes::none()
        .with("nodes_treeids", [0i64, 0, 0, 0, 0, 1, 1, 1])
        .with("nodes_nodeids", [0i64, 1, 2, 3, 4, 0, 1, 2])
        .with("nodes_featureids", [0i64, 1, 0, 0, 0, 2, 0, 0])
        .with(
            "nodes_modes",
            texts(&["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF", "BRANCH_GTE", "LEAF", "LEAF"]),
        )
        .with("nodes_values", floats(&[0.5, -0.25, 0.0, 0.0, 0.0, 0.5, 0.0, 0.0]))
        .with("nodes_truenodeids", [1i64, 2, 0, 0, 0, 1, 0, 0])
        .with("nodes_falsenodeids", [4i64, 3, 0, 0, 0, 2, 0, 0]);
    let leaves = |trees: &Attributes, of: &str, ids: [i64; 5]| {
        trees
            .clone()
            .with(&format!("{of}_treeids"), [0i64, 0, 0, 1, 1])
            .with(&format!("{of}_nodeids"), [2i64, 3, 4, 1, 2])
            .with(&format!("{of}_ids"), ids)
            .with(&format!("{of}_weights"), floats(&[1.0, 2.0, -4.0, 0.5, 0.25]))
    };
    let vectors = Attributes::none()
        .with("kernel_type", "RBF")
        .with("kernel_params", floats(&[0.5, 0.25, 3.0]))
        .with("support_vectors", floats(&[0.5, -1.0, 1.0, 1.0, 0.0, 0.5, -0.5, 0.5, 0.25]));
    let classes = vectors
        .clone()
        .with("coefficients", floats(&[1.0, -0.5, 0.5, 0.25, 1.0, -1.0]))
        .with("vectors_per_class", [1i64, 1, 1])
        .with("rho", floats(&[0.1, 0.2, 0.3]))
        .with("classlabels_strings", texts(&["a", "b", "c"]));
    let linear = Attributes::none()
        .with("coefficients", floats(&[1.0, -2.0, 0.5, 0.5, 1.0, 0.0]))
        .with("intercepts", floats(&[0.5, -1.0]));
    vec![
        ("TreeEnsembleRegressor", leaves(&trees, "target", [0; 5]).with("n_targets", 1)),
        (
            "TreeEnsembleRegressor",
            leaves(&trees, "target", [0, 1, 0, 1, 0])
                .with("n_targets", 2)
                .with("aggregate_function", "AVERAGE")
                .with("base_values", floats(&[0.5, 1.0])),
        ),
        (
            "TreeEnsembleClassifier",
            leaves(&trees, "class", [0, 1, 2, 0, 2]).with("classlabels_strings", texts(&["a", "b", "c"])),
        ),
        (
            "TreeEnsembleClassifier",
            leaves(&trees, "class", [0; 5])
                .with("classlabels_int64s", [7i64, -3])
                .with("post_transform", "LOGISTIC"),
        ),
        (
            "SVMRegressor",
            vectors
                .clone()
                .with("n_supports", 3)
                .with("coefficients", floats(&[1.0, -0.5, 0.5]))
                .with("rho", floats(&[0.5])),
        ),
        ("SVMClassifier", classes.clone()),
        (
            "SVMClassifier",
            classes.with("prob_a", floats(&[-1.0, -2.0, -1.5])).with("prob_b", floats(&[0.0, 0.5, -0.5])),
        ),
        ("LinearRegressor", linear.clone().with("targets", 2)),
        ("LinearClassifier", linear.with("classlabels_ints", [0i64, 1]).with("post_transform", "SOFTMAX")),
        ("Scaler", Attributes::none().with("offset", floats(&[1.0, 0.5, 0.0])).with("scale", floats(&[2.0]))),
        ("Normalizer", Attributes::none().with("norm", "L1")),
        ("Binarizer", Attributes::none().with("threshold", 0.5)),
        (
            "Imputer",
            Attributes::none()
                .with("imputed_value_floats", floats(&[1.0, 2.0, 3.0]))
                .with("replaced_value_float", 0.5),
        ),
        ("OneHotEncoder", Attributes::none().with("cats_int64s", [0i64, 1, 2]).with("zeros", 1)),
        (
            "LabelEncoder",
            Attributes::none()
                .with("keys_int64s", [0i64, 1])
                .with("values_strings", texts(&["a", "b"]))
                .with("default_string", "none"),
        ),
        (
            "LabelEncoder",
            Attributes::none().with("keys_floats", floats(&[0.5, 1.0])).with("values_int64s", [3i64, 4]),
        ),
        ("ZipMap", Attributes::none().with("classlabels_strings", texts(&["a", "b", "c"]))),
    ]
}
