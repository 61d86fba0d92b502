//! `megrez study relu-bits`: a model's accuracy and its cost against λ, the number of bits that its
//! comparisons look at.

use super::forms::Form;
use super::rules::Rules;
use super::subject::{Score, Subject, score};
use crate::bench::{BenchOptions, op_plan};
use megrez::choices::List as Lists;
use megrez::protocols;
use megrez::request::fitted;
use megrez::{Error, FixedModel, Result, RunOptions};
use megrez_engine::PlanCost;
use megrez_graph::calibrate::calibrate;
use megrez_graph::{Calibration, CompileOptions, RangePolicy, Tensor};
use megrez_plan::{Fewest, Kind, List, Op, SignBit};
use megrez_protocols::registry;
use megrez_session::Phase;
use serde::Serialize;

/// What to study.
#[derive(Clone, Debug)]
pub struct Options {
    /// ℓ: 32 or 64.
    pub ring: u32,
    /// f.
    pub frac: u32,
    /// The values of λ.
    pub bits: Vec<u32>,
    /// Inputs per model whose class is compared.
    pub images: usize,
    /// Inputs per model that are measured to choose what to cut: others than those.
    pub calibration: usize,
    /// Comparisons have room for numbers this many times as large as any that was measured.
    pub margin: f64,
}

/// What something costs under a protocol.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Bits over all parties before the inputs are known.
    pub offline_bits: f64,
    /// Bits over all parties after.
    pub online_bits: f64,
    /// Online rounds.
    pub rounds: u32,
}

/// A cost, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Offer {
    /// The cost.
    #[serde(rename = "price")]
    Cost(Figures),
    /// The protocol lacks a step, or moves nothing because it has one party.
    Unavailable(String),
}

/// What a protocol asks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quote {
    /// The protocol.
    pub protocol: String,
    /// What it asks.
    pub offer: Offer,
}

/// One ReLU at one λ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReluCost {
    /// λ.
    pub bits: u32,
    /// Per ReLU and protocol.
    pub quotes: Vec<Quote>,
}

/// One model at one λ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The model.
    pub model: String,
    /// At most so many bits; `None`: as many as the measured magnitudes need.
    pub bits: Option<u32>,
    /// The fewest and the most bits that a comparison of the model really looks at.
    pub width: [u32; 2],
    /// The most low bits that one of them ignores beyond those below f fraction bits.
    pub cut_beyond_fraction: u32,
    /// Inputs.
    pub images: usize,
    /// What came out.
    #[serde(flatten)]
    pub score: Score,
    /// Per input and protocol.
    pub quotes: Vec<Quote>,
}

/// The whole study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// `megrez.study.relu-bits/1`.
    pub schema: String,
    /// ℓ.
    pub ring: u32,
    /// f.
    pub frac: u32,
    /// Inputs that chose the cuts.
    pub calibration_images: usize,
    /// The room that was left above them.
    pub margin: f64,
    /// Accuracy of floating point by model.
    pub plain: Vec<(String, f64)>,
    /// One ReLU.
    pub relu: Vec<ReluCost>,
    /// Models.
    pub models: Vec<Point>,
}

impl Study {
    /// The name of the report's format.
    pub const SCHEMA: &'static str = "megrez.study.relu-bits/1";
}

/// Runs the study; `progress` hears of every point.
pub fn study(subjects: &[Subject], o: &Options, progress: &dyn Fn(&str)) -> Result<Study> {
    if let Some(bad) = o.bits.iter().find(|&&b| b < 2 || b > o.ring) {
        return Err(Error::Refused(format!("a comparison of {bad} bits does not fit a ring of {}", o.ring)));
    }
    let relu = o.bits.iter().map(|&bits| relu_cost(o, bits)).collect::<Result<_>>()?;
    let (mut plain, mut models) = (vec![], vec![]);
    for subject in subjects {
        let measured = subject.slice(0, o.calibration)?;
        let subject = subject.slice(o.calibration, o.images)?;
        let calibration = measure(&measured, o)?;
        let uncut = compiled(&subject, o, None, &calibration)?;
        let classes = subject.plain_classes(&uncut)?;
        let right = classes.iter().zip(&subject.labels).filter(|(a, b)| a == b).count();
        plain.push((subject.name.clone(), right as f64 / subject.len() as f64));
        for bits in o.bits.iter().copied().map(Some).chain([None]) {
            progress(&format!("{} at {} bits", subject.name, bits.map_or("all".into(), |b| b.to_string())));
            let model = compiled(&subject, o, bits, &calibration)?;
            let rules = Rules { truncation: Form::Exact, cut: true };
            let score = score(&subject, &model, &rules, &classes)?;
            models.push(point(&subject, bits, &model, score));
        }
    }
    let schema = Study::SCHEMA.into();
    let (ring, frac) = (o.ring, o.frac);
    Ok(Study { schema, ring, frac, calibration_images: o.calibration, margin: o.margin, plain, relu, models })
}

fn measure(subject: &Subject, o: &Options) -> Result<Calibration> {
    let size = subject.batch();
    let graph = subject.graph(size)?;
    let dims = subject.images.shape.dims();
    let row: usize = dims[1..].iter().product();
    let batches: Vec<Tensor> = subject
        .images
        .data
        .chunks_exact(size * row)
        .map(|rows| {
            let mut dims = dims.to_vec();
            dims[0] = size;
            Tensor::new(dims, rows.to_vec())
        })
        .collect();
    let calibration = calibrate(&graph, batches.into_iter().map(|batch| vec![batch]), o.margin)?;
    calibration.check().map_err(|what| Error::Refused(format!("the calibration {what}")))?;
    Ok(calibration)
}

fn compiled(
    subject: &Subject,
    o: &Options,
    bits: Option<u32>,
    calibration: &Calibration,
) -> Result<FixedModel> {
    let options = CompileOptions {
        ring: o.ring,
        frac: o.frac,
        policy: RangePolicy::Assume,
        comparison: fitted(Lists::Digits, bits, Some(calibration.clone()), false)?,
        ..CompileOptions::default()
    };
    FixedModel::new(&subject.graph(subject.batch())?, "study", &options)
}

fn point(subject: &Subject, bits: Option<u32>, model: &FixedModel, score: Score) -> Point {
    let plan = &model.compiled.plan;
    let f = model.compiled.data_inputs[0].frac;
    // Each comparison, and the fraction bits beyond f of what it compares.
    let signs: Vec<(&SignBit, u32)> = plan
        .steps
        .iter()
        .filter_map(|s| {
            let sign = match &s.op {
                Op::Relu(r) => &r.sign,
                Op::NonNegative(sign) | Op::CompareMany { sign, .. } | Op::Maximum(sign) => sign,
                _ => return None,
            };
            let beyond = match plan.value(s.inputs[0]).kind {
                Kind::Ring { frac } => frac.saturating_sub(f),
                _ => 0,
            };
            Some((sign, beyond))
        })
        .collect();
    let widths = || signs.iter().map(|(s, _)| s.width(plan.ring));
    let quotes = quotes(1.0 / subject.batch() as f64, |protocol| protocols::cost(protocol, plan));
    Point {
        model: subject.name.clone(),
        bits,
        width: [widths().min().unwrap_or(0), widths().max().unwrap_or(0)],
        cut_beyond_fraction: signs.iter().map(|(s, beyond)| s.cut.saturating_sub(*beyond)).max().unwrap_or(0),
        images: subject.len(),
        score,
        quotes,
    }
}

/// A plain ReLU that looks at `bits` bits, per element.
fn relu_cost(o: &Options, bits: u32) -> Result<ReluCost> {
    // As many as fill the words in which field elements travel, whatever the prime.
    let batch = 64 * 3 * 5 * 7 * 11;
    let options = BenchOptions {
        ring: o.ring,
        frac: o.frac,
        batch,
        sign: SignBit { list: List::digits(bits, Fewest::Total), cut: 0, bits: Some(bits) },
        ..BenchOptions::new(RunOptions::new(""))
    };
    let plan = op_plan("relu", "study", &options)?;
    Ok(ReluCost { bits, quotes: quotes(1.0 / batch as f64, |protocol| protocols::cost(protocol, &plan)) })
}

/// What every protocol asks, each number of bits times `share`.
fn quotes(share: f64, cost: impl Fn(&str) -> Result<PlanCost>) -> Vec<Quote> {
    let offer = |p: &registry::Protocol| {
        if p.parties == 1 {
            return Offer::Unavailable("one party: nothing is shared, nothing is sent".into());
        }
        match cost(p.name) {
            Ok(cost) => Offer::Cost(Figures {
                // An empty sum of floating-point numbers is −0.
                offline_bits: cost.bits(Phase::Offline) * share + 0.0,
                online_bits: cost.bits(Phase::Online) * share + 0.0,
                rounds: cost.rounds(Phase::Online),
            }),
            Err(e) => Offer::Unavailable(e.to_string()),
        }
    };
    registry::PROTOCOLS.iter().map(|p| Quote { protocol: p.name.into(), offer: offer(p) }).collect()
}

/// The tables for people.
pub fn table(study: &Study) -> String {
    let mut out =
        format!("one ReLU on Z_2^{}, bits over all parties: offline + online, online rounds\n", study.ring);
    let available = |quotes: &[Quote]| -> Vec<(String, Figures)> {
        let figures = |q: &Quote| match &q.offer {
            Offer::Cost(p) => Some((q.protocol.clone(), p.clone())),
            Offer::Unavailable(_) => None,
        };
        quotes.iter().filter_map(figures).collect()
    };
    for row in &study.relu {
        out += &format!("{:>5}", row.bits);
        for (name, p) in available(&row.quotes) {
            out += &format!(
                "   {name}: {:.0} + {:.0} = {:.0}, {} rounds",
                p.offline_bits,
                p.online_bits,
                p.offline_bits + p.online_bits,
                p.rounds
            );
        }
        out += "\n";
    }
    let mut said = vec![];
    for row in &study.relu {
        for q in &row.quotes {
            if let Offer::Unavailable(why) = &q.offer
                && !said.contains(&q.protocol)
            {
                said.push(q.protocol.clone());
                let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
                out += &format!("      {}: unavailable from λ = {} ({why})\n", q.protocol, row.bits);
            }
        }
    }
    for (model, plain) in &study.plain {
        let rows: Vec<&Point> = study.models.iter().filter(|p| p.model == *model).collect();
        let Some(first) = rows.first() else { continue };
        out += &format!(
            "\n{model} on Z_2^{}, f = {}: {} images, cuts chosen on {} others with margin {}; floating point {:.2} %\n",
            study.ring,
            study.frac,
            first.images,
            study.calibration_images,
            study.margin,
            100.0 * plain
        );
        out += &format!(
            "{:>5} {:>7} {:>6} {:>9} {:>10} {:>14}   cost per image\n",
            "λ", "really", "cut", "accuracy", "agreement", "wrong signs"
        );
        for p in rows {
            out += &format!(
                "{:>5} {:>7} {:>6} {:>7.2} % {:>8.2} % {:>14.1}",
                p.bits.map_or("fit".into(), |b| b.to_string()),
                if p.width[0] == p.width[1] {
                    p.width[0].to_string()
                } else {
                    format!("{}-{}", p.width[0], p.width[1])
                },
                p.cut_beyond_fraction,
                100.0 * p.score.accuracy,
                100.0 * p.score.agreement,
                p.score.per_image.sign_errors
            );
            for (name, q) in available(&p.quotes) {
                out += &format!(
                    "   {name}: {:.3} + {:.3} MB, {} rounds",
                    q.offline_bits / 8e6,
                    q.online_bits / 8e6,
                    q.rounds
                );
            }
            out += "\n";
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        let file =
            |name| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(name);
        Subject::load(&file("lenet.onnx"), &file("test_images.npy"), &file("test_labels.npy")).unwrap()
    }

    fn options(bits: &[u32]) -> Options {
        Options { ring: 64, frac: 16, bits: bits.to_vec(), images: 20, calibration: 20, margin: 2.0 }
    }

    fn mizar(quotes: &[Quote]) -> &Figures {
        match &quotes.iter().find(|q| q.protocol == "mizar").unwrap().offer {
            Offer::Cost(figures) => figures,
            Offer::Unavailable(why) => panic!("{why}"),
        }
    }

    #[test]
    fn costs_are_those_of_the_formulas() {
        // Totals of a ReLU in three rounds at ℓ = 64.
        for (bits, total) in [(8, 300.0), (12, 334.0), (16, 380.0), (24, 476.0), (32, 589.0), (64, 1085.0)] {
            let cost = relu_cost(&options(&[]), bits).unwrap();
            let figures = mizar(&cost.quotes);
            assert!((figures.offline_bits + figures.online_bits - total).abs() < 2.0, "{bits}: {figures:?}");
            assert_eq!(figures.rounds, 3);
        }
        let cost = relu_cost(&options(&[]), 8).unwrap();
        assert_eq!(cost.quotes.len(), registry::PROTOCOLS.len(), "every protocol is named");
        let clear = cost.quotes.iter().find(|q| q.protocol == "clear").unwrap();
        assert!(matches!(clear.offer, Offer::Unavailable(_)));
    }

    #[test]
    fn few_bits_cost_less_and_fewer_read_signs_wrongly() {
        let study = study(&[subject()], &options(&[5, 10]), &|_| {}).unwrap();
        let [five, ten, fit] = &study.models[..] else { panic!("{:?}", study.models) };
        assert_eq!((five.width, ten.width[1], fit.bits), ([5, 5], 10, None));
        assert_eq!(fit.cut_beyond_fraction, 0);
        assert_eq!(fit.score.per_image.sign_errors, 0.0, "nothing is cut that is not truncated");
        assert!(five.score.per_image.sign_errors > ten.score.per_image.sign_errors);
        assert!(ten.score.per_image.sign_errors > 0.0 && fit.score.agreement == 1.0);
        let online = |p: &Point| mizar(&p.quotes).online_bits;
        assert!(online(five) < online(ten) && online(ten) < online(fit));
        let text = table(&study);
        assert!(text.contains("mizar") && text.contains("clear: unavailable from λ = 5"), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(study(&[], &options(&[1]), &|_| {}).is_err());
        assert!(study(&[], &options(&[65]), &|_| {}).is_err());
        let many = Options { images: 350, ..options(&[8]) };
        assert!(study(&[subject()], &many, &|_| {}).is_err(), "20 and 350 of 360");
    }
}
