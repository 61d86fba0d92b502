//! What a run of a model tells whom, before it runs: who gives what, who learns what, what
//! everybody sees, and what protects the rest. The same for the command (`megrez plan show`) and
//! for Python (`Model.disclosure`).

use crate::batches::Described as _;
use crate::model::Model;
use megrez_graph::lower::After;
use megrez_graph::{LayerRange, ModelInput, Revealed, TreeForm};
use megrez_plan::{Op, Output, Plan, Relu, SignBit};
use megrez_service::Result;
use megrez_service::protocols::find;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The names of those who take part, as reports call them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roles {
    /// Who gives the weights.
    pub model_owner: String,
    /// Who gives the data.
    pub data_owner: String,
    /// Who learns the outputs.
    pub recipient: String,
}

impl Default for Roles {
    fn default() -> Self {
        Roles {
            model_owner: "owner of the model".into(),
            data_owner: "owner of the data".into(),
            recipient: "recipient".into(),
        }
    }
}

/// Something that a client gives in shares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Given {
    /// The plan's name of it, or `weights` for all of them.
    pub name: String,
    /// Who gives it.
    pub owner: String,
    /// What it is: `data`, `tokens`, `weights`.
    pub kind: &'static str,
    /// Its dimensions; none for all weights.
    pub shape: Option<Vec<usize>>,
    /// How many numbers it has.
    pub numbers: usize,
    /// What every number of data is declared to lie in.
    pub range: Option<[f64; 2]>,
}

/// Something that a client learns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Learned {
    /// The output's name.
    pub name: String,
    /// Who learns it.
    pub recipient: String,
    /// The dimensions of what is opened.
    pub shape: Vec<usize>,
    /// What the recipient makes of it afterwards, having seen what is opened: `softmax`,
    /// `log-softmax`, `argmax`.
    pub then: Vec<&'static str>,
    /// Whether each row of it follows from one row of the data alone.
    pub by_row: bool,
}

/// What a run tells whom.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Disclosure {
    /// `megrez.disclosure/1`.
    pub schema: &'static str,
    /// The protocol's name.
    pub protocol: &'static str,
    /// Whom it protects against.
    pub security: &'static str,
    /// Whether it protects nothing, or leaks.
    pub insecure: bool,
    /// How many parties compute.
    pub parties: usize,
    /// What it computes with: `fixed` or `float32`.
    pub numbers: &'static str,
    /// Who gives what.
    pub gives: Vec<Given>,
    /// Who learns what.
    pub learns: Vec<Learned>,
    /// What every party and every client sees, a sentence each.
    pub everybody_sees: Vec<String>,
    /// The steps that open something else than an output to a party.
    pub opened: Vec<String>,
    /// What the ranges rest on: `proven`, `calibrated` or `assumed`; nothing in float32.
    pub ranges: Option<&'static str>,
    /// What is not protected, or not sure.
    pub warnings: Vec<String>,
}

impl Disclosure {
    /// Of a model under a protocol.
    ///
    /// # Errors
    /// If there is no such protocol, or if it computes with other numbers than the model.
    pub fn of(model: &Model, protocol: &str, roles: &Roles) -> Result<Self> {
        let protocol = find(model.goes_with(protocol)?)?;
        let weights: &[ModelInput] = match model {
            Model::Fixed(model) => &model.compiled.model_inputs,
            Model::Float(model) => &model.compiled.model_inputs,
        };
        let data = model.inputs().iter().map(|input| Given {
            name: input.name.clone(),
            owner: roles.data_owner.clone(),
            kind: if input.tokens.is_some() { "tokens" } else { "data" },
            shape: Some(input.shape.dims().to_vec()),
            numbers: input.shape.elements(),
            range: matches!(model, Model::Fixed(_)).then_some([input.range.low, input.range.high]),
        });
        let mut gives: Vec<Given> = data.collect();
        if !weights.is_empty() {
            gives.push(Given {
                name: "weights".into(),
                owner: roles.model_owner.clone(),
                kind: "weights",
                shape: None,
                numbers: weights.iter().map(|w| w.values.len()).sum(),
                range: None,
            });
        }
        let rows = model.inputs().first().and_then(|i| i.shape.dims().first().copied()).unwrap_or(1);
        let mixed = model.mixed(rows).map(|output| output.name.clone());
        let learns = model.outputs().iter().map(|output| learned(output, &roles.recipient, mixed.as_ref()));
        let mut found = Disclosure {
            schema: "megrez.disclosure/1",
            protocol: protocol.name,
            security: protocol.security,
            insecure: protocol.insecure,
            parties: protocol.parties,
            numbers: if matches!(model, Model::Fixed(_)) { "fixed" } else { "float32" },
            gives,
            learns: learns.collect(),
            everybody_sees: seen(model),
            opened: opened(model, &roles.recipient),
            ranges: model.basis(),
            warnings: vec![],
        };
        found.warnings = found.beware(model, roles, rows);
        Ok(found)
    }

    /// What is not protected, or not sure.
    fn beware(&self, model: &Model, roles: &Roles, rows: usize) -> Vec<String> {
        let mut warnings = vec![];
        if self.insecure {
            warnings.push(format!(
                "`{}` is insecure, and runs only with --insecure: {}",
                self.protocol, self.security
            ));
        }
        if self.parties > 1 {
            warnings.push("two parties that put together what they hold learn everything".into());
        }
        let one = roles.data_owner == roles.recipient;
        if rows == 1 && !one {
            warnings.push(
                "the outputs are of one input alone: with a model that they know, recipients may infer it"
                    .into(),
            );
        }
        if let Model::Fixed(model) = model {
            let ranges = &model.compiled.ranges;
            let unproven = ranges.iter().filter(|range| !range.proven).count();
            let data = match LayerRange::basis(ranges) {
                "calibrated" => "data beyond what was measured gives wrong numbers",
                _ => "data that leaves them gives wrong numbers",
            };
            if unproven > 0 && self.ranges == Some("guarded") {
                warnings.push(format!(
                    "the ranges of {unproven} of {} layers are not proven: a run whose data leaves them gives no outputs, and the \
                     {} learns that",
                    ranges.len(),
                    roles.recipient
                ));
            } else if unproven > 0 {
                warnings.push(format!(
                    "the ranges of {unproven} of {} layers are not proven: {data}, and nobody notices",
                    ranges.len()
                ));
            }
            if self.parties == 3 {
                warnings.push(
                "a recipient who also runs a party may learn of truncations and tables comparisons of bits below the result's precision".into(),
            );
            }
        }
        warnings
    }

    /// As a table for people.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut row = |what: &str, text: &str| {
            let _ = writeln!(out, "{what:<16} {text}");
        };
        for (i, given) in self.gives.iter().enumerate() {
            let range =
                given.range.map_or(String::new(), |[low, high]| format!(", each from {low} to {high}"));
            let shape = given.shape.as_ref().map_or(String::new(), |dims| format!(" {dims:?}"));
            let text = match given.kind {
                "weights" => format!("{}: all {} weights", given.owner, given.numbers),
                kind => format!("{}: {kind} `{}`{shape}{range}", given.owner, given.name),
            };
            row(if i == 0 { "gives" } else { "" }, &text);
        }
        for (i, learned) in self.learns.iter().enumerate() {
            let mut text = format!("{}: output `{}` {:?}", learned.recipient, learned.name, learned.shape);
            if !learned.then.is_empty() {
                text += &format!(", whole, before {} is taken of it", learned.then.join(" and "));
            }
            if !learned.by_row {
                text += ", in which all rows of the data meet";
            }
            row(if i == 0 { "learns" } else { "" }, &text);
        }
        for (i, sentence) in self.everybody_sees.iter().enumerate() {
            row(if i == 0 { "everybody sees" } else { "" }, sentence);
        }
        let opened =
            if self.opened.is_empty() { "nothing but the outputs".into() } else { self.opened.join(", ") };
        row("opened", &opened);
        row("protected", &format!("{}, {} parties: {}", self.protocol, self.parties, self.security));
        row("ranges", self.ranges.unwrap_or("none are needed in float32"));
        for (i, warning) in self.warnings.iter().enumerate() {
            row(if i == 0 { "beware" } else { "" }, warning);
        }
        out
    }
}

/// What a plan opens that is no output of the model's.
fn opened(model: &Model, recipient: &str) -> Vec<String> {
    let Model::Fixed(fixed) = model else { return vec![] };
    let own = |name: &str| model.outputs().iter().any(|output| output.name == name);
    let beside = fixed.compiled.plan.outputs.iter().filter(|output| !own(&output.name));
    let text = |output: &Output| match model.guard().is_some_and(|guard| guard.name == output.name) {
        true => format!("one bit of every run to the {recipient}: whether all values were in range"),
        false => format!("`{}` to the {recipient}", output.name),
    };
    beside.map(text).collect()
}

fn learned(output: &Revealed, recipient: &str, mixed: Option<&String>) -> Learned {
    let then = |after: &After| match after {
        After::Softmax { .. } => "softmax",
        After::LogSoftmax { .. } => "log-softmax",
        After::ArgMax { .. } => "argmax",
        After::Labels { .. } | After::Columns { .. } | After::InRange => "",
    };
    Learned {
        name: output.name.clone(),
        recipient: recipient.into(),
        shape: output.shape.dims().to_vec(),
        then: output.after.iter().map(then).filter(|then| !then.is_empty()).collect(),
        by_row: mixed != Some(&output.name),
    }
}

/// What everybody sees of the plan.
fn seen(model: &Model) -> Vec<String> {
    let layers: Vec<&str> = match model {
        Model::Fixed(model) => model.compiled.layers.iter().map(|layer| layer.op.as_str()).collect(),
        Model::Float(model) => model.compiled.layers.iter().map(|layer| layer.op.as_str()).collect(),
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    layers.iter().for_each(|op| *counts.entry(op).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(op, n)| format!("{n} {op}")).collect();
    let mut seen = vec![
        format!("the {} layers, their names, order and attributes: {}", layers.len(), counts.join(", ")),
        "the shapes of inputs, weights, outputs and everything between, and so how many inputs go together"
            .into(),
        "the names of inputs, of outputs and of their owners and recipients".into(),
        "when it runs, how long, and how many bytes go over each link".into(),
    ];
    let named = model.outputs().iter().map(|output| (&output.name, output.named()));
    let named: Vec<String> = named
        .filter_map(|(output, named)| {
            let names = [named.classes, named.columns].concat();
            (!names.is_empty())
                .then(|| format!("the names of classes of output `{output}`: {}", listed(&names)))
        })
        .collect();
    seen.extend(named);
    let Model::Fixed(model) = model else { return seen };
    let (compiled, plan) = (&model.compiled, &model.compiled.plan);
    seen.push(format!("the ring of {} bits and {} fraction bits", plan.ring, compiled.frac));
    let constants = plan.steps.iter().filter(|step| matches!(step.op, Op::Constant { .. })).count();
    if compiled.public_weights {
        let files = plan.public_matrices().count();
        seen.push(format!(
            "all weights: every party has them, in the plan's {constants} constants and {files} matrices in files"
        ));
    } else if constants > 0 {
        seen.push(format!(
            "{constants} constants of the architecture (masks, divisors), which are no weights"
        ));
    }
    let narrow = narrow_comparisons(plan);
    if narrow > 0 {
        seen.push(format!(
            "how wide comparisons are ({narrow} of them): the magnitude of what they compare, to a factor of two, from proofs about the weights \
             or from calibration data"
        ));
    }
    let laid_out = |op: &Op| match op {
        Op::Offloaded(inner) | Op::Additive(inner) => matches!(**inner, Op::Lookup(_)),
        op => matches!(op, Op::CompareMany { .. } | Op::Lookup(_)),
    };
    let many = plan.steps.iter().filter(|step| laid_out(&step.op)).count();
    if many > 0 {
        seen.push(format!(
            "the thresholds and tables of activations, exponentials, roots, roundings and the like ({many} steps): where they depend on ranges, \
             these follow from the weights unless they are declared (--declared)"
        ));
    }
    if compiled.layers.iter().any(|layer| layer.op == "Trees") {
        let of_trees = match compiled.trees {
            TreeForm::Hidden => {
                "how many trees there are, and how many leaves the largest has, up to a power of two; where many rows \
                 are guided through them, how deep the deepest is, and how large the leaves' numbers are, to four bits; not \
                 their shape, nor which features they look at, no threshold and no leaf, but for what ranges tell of any \
                 layer, and, of two classes with one score, whether a leaf is negative (--trees hidden)"
            }
            TreeForm::Shape => {
                "the shape of all trees, and which feature each of their tests looks at; no threshold and no leaf \
                 (--trees shape)"
            }
        };
        seen.push(of_trees.into());
    }
    seen
}

/// The first of some names.
fn listed(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(8).map(|name| name.escape_debug().to_string()).collect();
    let more = if names.len() > shown.len() {
        format!(" and {} more", names.len() - shown.len())
    } else {
        String::new()
    };
    shown.join(", ") + &more
}

/// How many comparisons look at fewer bits than the ring has.
fn narrow_comparisons(plan: &Plan) -> usize {
    let narrow = |sign: &SignBit| sign.width(plan.ring) + sign.cut < plan.ring || sign.cut > 0;
    let of = |op: &Op| match op {
        Op::NonNegative(sign) | Op::Maximum(sign) | Op::CompareMany { sign, .. } => narrow(sign),
        Op::Relu(Relu { sign, .. }) => narrow(sign),
        // It never compares a whole word.
        Op::Winner(_) => true,
        // How far beside its segments a key looks.
        Op::Lookup(f) => f.beyond.is_some_and(|beyond| beyond.bits < plan.ring),
        _ => false,
    };
    let inner = |op: &Op| match op {
        Op::Offloaded(inner) | Op::Additive(inner) => of(inner),
        op => of(op),
    };
    plan.steps.iter().filter(|step| inner(&step.op)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::FixedModel;
    use megrez_graph::{Attributes, CompileOptions, Graph, Interval, RangePolicy, Tensor};

    fn model(op: &str, options: &CompileOptions) -> Model {
        let mut graph = Graph::new("test");
        let x = graph.input("pixels", [2, 3]).unwrap();
        let w = graph.constant("w", Tensor::filled([3, 4], 0.5));
        let y = graph.add("fc", "MatMul", &[x, w], Attributes::none()).unwrap();
        let y = graph.add("last", op, &[y], Attributes::none()).unwrap();
        graph.output("scores", y);
        Model::Fixed(FixedModel::new(&graph, "client", options).unwrap())
    }

    fn of(model: &Model, protocol: &str) -> Disclosure {
        Disclosure::of(model, protocol, &Roles::default()).unwrap()
    }

    #[test]
    fn who_gives_and_who_learns_is_said() {
        let found = of(&model("Softmax", &CompileOptions::default()), "mizar");
        let [data, weights] = &found.gives[..] else { panic!("{:?}", found.gives) };
        assert_eq!((data.name.as_str(), data.kind, data.range), ("pixels", "data", Some([-1.0, 1.0])));
        assert_eq!(
            (weights.kind, weights.numbers, weights.owner.as_str()),
            ("weights", 12, "owner of the model")
        );
        let [scores] = &found.learns[..] else { panic!("{:?}", found.learns) };
        assert_eq!(
            (scores.shape.clone(), scores.then.clone(), scores.by_row),
            (vec![2, 4], vec!["softmax"], true)
        );
        assert!(found.everybody_sees[0].contains("1 MatMul"), "{:?}", found.everybody_sees);
        assert!(!found.insecure && found.opened.is_empty() && found.ranges == Some("proven"));
        let text = found.text();
        for part in [
            "gives ",
            "pixels",
            "all 12 weights",
            "before softmax",
            "nothing but the outputs",
            "mizar, 3 parties",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn what_is_not_protected_stands_out() {
        let has = |found: &Disclosure, part: &str| found.warnings.iter().any(|w| w.contains(part));
        let safe = of(&model("Relu", &CompileOptions::default()), "mizar");
        assert!(!has(&safe, "insecure") && !has(&safe, "not proven"));
        let clear = of(&model("Relu", &CompileOptions::default()), "clear");
        assert!(clear.insecure && has(&clear, "insecure") && !has(&clear, "two parties"));
        let wide = CompileOptions {
            input_range: Interval::abs(2f64.powi(40)),
            policy: RangePolicy::Assume,
            ..CompileOptions::default()
        };
        let assumed = of(&model("Relu", &wide), "mizar");
        assert!(has(&assumed, "not proven") && assumed.ranges == Some("assumed"));
    }

    #[test]
    fn what_comparisons_tell_is_said() {
        let tells = |found: &Disclosure, part: &str| found.everybody_sees.iter().any(|s| s.contains(part));
        let full = of(&model("Relu", &CompileOptions::default()), "mizar");
        assert!(!tells(&full, "how wide") && !tells(&full, "thresholds and"));
        let comparison = megrez_graph::Comparison::Fitted {
            list: megrez_graph::ListStyle::Bits,
            bits: None,
            calibration: None,
        };
        let fitted = of(&model("Relu", &CompileOptions { comparison, ..CompileOptions::default() }), "mizar");
        assert!(tells(&fitted, "how wide comparisons are (1 of"), "{:?}", fitted.everybody_sees);
        let root = of(
            &model("Exp", &CompileOptions { input_range: Interval::abs(10.0), ..CompileOptions::default() }),
            "mizar",
        );
        assert!(tells(&root, "the like (1 steps)"), "{:?}", root.everybody_sees);
    }

    #[test]
    fn what_trees_and_their_labels_tell_is_said() {
        use megrez_graph::Attribute;
        let texts = |list: &[&str]| Attribute::Strings(list.iter().map(ToString::to_string).collect());
        let attributes = Attributes::none()
            .with("nodes_treeids", [0i64; 3])
            .with("nodes_nodeids", [0i64, 1, 2])
            .with("nodes_featureids", [1i64, 0, 0])
            .with("nodes_modes", texts(&["BRANCH_LEQ", "LEAF", "LEAF"]))
            .with("nodes_values", Attribute::Floats(vec![0.5, 0.0, 0.0]))
            .with("nodes_truenodeids", [1i64, 0, 0])
            .with("nodes_falsenodeids", [2i64, 0, 0])
            .with("target_treeids", [0i64; 2])
            .with("target_nodeids", [1i64, 2])
            .with("target_ids", [0i64; 2])
            .with("target_weights", Attribute::Floats(vec![1.0, 2.0]));
        let mut graph = Graph::new("test");
        let x = graph.input("x", [2, 3]).unwrap();
        let y = graph.add("trees", "TreeEnsembleRegressor", &[x], attributes).unwrap();
        let labels = Attributes::none().with("names", texts(&["no", "yes", "per\u{1b}haps"]));
        let y = graph.add("labels", "Labels", &[y], labels).unwrap();
        graph.output("label", y);
        let told = |trees: TreeForm| {
            let options = CompileOptions { trees, ..CompileOptions::default() };
            of(&Model::Fixed(FixedModel::new(&graph, "client", &options).unwrap()), "mizar").text()
        };
        let (hidden, shape) = (told(TreeForm::Hidden), told(TreeForm::Shape));
        assert!(hidden.contains("not their shape") && hidden.contains("--trees hidden"), "{hidden}");
        assert!(shape.contains("the shape of all trees") && !shape.contains("not their shape"), "{shape}");
        let names = "classes of output `label`: no, yes, per\\u{1b}haps";
        assert!(hidden.contains(names) && !hidden.contains('\u{1b}'), "{hidden}");
    }

    #[test]
    fn other_numbers_and_unknown_protocols_are_refused() {
        let model = model("Relu", &CompileOptions::default());
        assert!(Disclosure::of(&model, "secfloat", &Roles::default()).is_err());
        assert!(Disclosure::of(&model, "nothing", &Roles::default()).is_err());
    }
}
