//! `megrez study truncation`: how often each form of truncation is off by 2^(ℓ−f), and what is left
//! of a model's accuracy.

use super::forms::{Form, is_big_error};
use super::rules::Rules;
use super::subject::{Score, Subject, score};
use super::walk::lone_party;
use megrez::{Error, FixedModel, Result};
use megrez_graph::{Comparison, CompileOptions, RangePolicy};
use megrez_plan::SignBit;
use megrez_ring::Word;
use megrez_session::Phase;
use serde::Serialize;

/// What to study.
#[derive(Clone, Debug)]
pub struct Options {
    /// The rings, of 32 or 64 bits.
    pub rings: Vec<u32>,
    /// The fraction bits; those that a ring has no room for are left out there.
    pub fracs: Vec<u32>,
    /// The forms.
    pub forms: Vec<Form>,
    /// Inputs per model.
    pub images: usize,
    /// Truncations per error rate.
    pub samples: usize,
}

/// The least and the largest distance ℓ − ℓ_x of the error rates.
const SLACKS: std::ops::RangeInclusive<u32> = 2..=16;

/// How often one form errs on numbers of one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// ℓ.
    pub ring: u32,
    /// The form.
    pub form: Form,
    /// ℓ − ℓ_x: the numbers, for `truncate-first` the product, have ℓ_x bits, and either sign.
    pub slack: u32,
    /// Truncations.
    pub samples: usize,
    /// How many of them were off by more than the last bit.
    pub errors: u64,
    /// `errors` / `samples`.
    pub rate: f64,
    /// What theory expects of these very numbers.
    pub expected: f64,
    /// 2^-(ℓ−ℓ_x−1), the bound of the truncation paper's Theorem 1, where it speaks of the form.
    pub bound: Option<f64>,
}

/// One form under one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Accuracy {
    /// The model.
    pub model: String,
    /// ℓ.
    pub ring: u32,
    /// f.
    pub frac: u32,
    /// The form.
    pub form: Form,
    /// Inputs.
    pub images: usize,
    /// What came out.
    #[serde(flatten)]
    pub score: Score,
}

/// The whole study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// `megrez.study.truncation/1`.
    pub schema: String,
    /// Error rates.
    pub rates: Vec<Rate>,
    /// Accuracy of floating point by model.
    pub plain: Vec<(String, f64)>,
    /// Accuracy by model, ring, fraction and form.
    pub accuracy: Vec<Accuracy>,
}

impl Study {
    /// The name of the report's format.
    pub const SCHEMA: &'static str = "megrez.study.truncation/1";
}

/// Runs the study; `progress` hears of every point.
pub fn study(subjects: &[Subject], o: &Options, progress: &dyn Fn(&str)) -> Result<Study> {
    let mut rates = vec![];
    for &ring in &o.rings {
        for &form in &o.forms {
            for slack in SLACKS {
                progress(&format!("{} on {ring} bits, slack {slack}", form.name()));
                rates.push(match ring {
                    32 => rate::<u32>(form, slack, o.samples)?,
                    64 => rate::<u64>(form, slack, o.samples)?,
                    _ => return Err(Error::Refused("the rings of this study are 32 and 64".into())),
                });
            }
        }
    }
    let (mut plain, mut accuracy) = (vec![], vec![]);
    for subject in subjects {
        let subject = subject.slice(0, o.images)?;
        for (&ring, &frac) in o.rings.iter().flat_map(|r| o.fracs.iter().map(move |f| (r, f))) {
            if frac > ring / 2 - 2 {
                continue;
            }
            let model = compiled(&subject, ring, frac)?;
            let classes = subject.plain_classes(&model)?;
            if plain.iter().all(|(name, _)| *name != subject.name) {
                let right = classes.iter().zip(&subject.labels).filter(|(a, b)| a == b).count();
                plain.push((subject.name.clone(), right as f64 / subject.len() as f64));
            }
            for &form in &o.forms {
                progress(&format!("{} under {} on {ring} bits, f = {frac}", subject.name, form.name()));
                let rules = Rules { truncation: form, cut: false };
                let score = score(&subject, &model, &rules, &classes)?;
                let images = subject.len();
                accuracy.push(Accuracy { model: subject.name.clone(), ring, frac, form, images, score });
            }
        }
    }
    Ok(Study { schema: Study::SCHEMA.into(), rates, plain, accuracy })
}

/// A model whose ranges are not proven: that they do not always hold is what the study shows.
fn compiled(subject: &Subject, ring: u32, frac: u32) -> Result<FixedModel> {
    let options = CompileOptions {
        ring,
        frac,
        policy: RangePolicy::Assume,
        comparison: Comparison::Fixed(SignBit::FULL),
        ..CompileOptions::default()
    };
    FixedModel::new(&subject.graph(subject.batch())?, "study", &options)
}

/// Words drawn at a time.
const CHUNK: usize = 1 << 16;

/// The error rate of `form` on numbers of exactly ℓ − `slack` bits.
pub fn rate<W: Word>(form: Form, slack: u32, samples: usize) -> Result<Rate> {
    let length = W::BITS.checked_sub(slack).filter(|&l| l > 1 && slack > 1);
    let length = length.ok_or_else(|| Error::Refused("numbers have 2 to ℓ − 2 bits in this study".into()))?;
    let mut party = lone_party()?;
    let f = W::BITS / 4;
    let mut errors = 0;
    let mut expected = 0f64;
    let whole = 2f64.powi(W::BITS as i32);
    for (run, at) in (0..samples).step_by(CHUNK).enumerate() {
        let n = CHUNK.min(samples - at);
        party.enter(Phase::Online, run as u32);
        let words = party.step("samples", |p| Ok(p.stream(p.me(), "words")?.words(6 * n)))?;
        for word in words.chunks_exact(6) {
            let number = |w: u64, length: u32| number::<W>(w, length);
            let masks = |i: usize| [W::from_u64(word[i]), W::from_u64(word[i + 1])];
            if form == Form::TruncateFirst {
                // Two operands whose product has about as many bits, each cut to half of its own.
                let lengths = [length / 2, length - length / 2];
                let mut good = 1.0;
                let mut wrong = false;
                for (i, length) in lengths.into_iter().enumerate() {
                    let x = number(word[i], length);
                    let f = (f / 2).min(length - 1).max(1);
                    wrong |= is_big_error(x, f, form.truncate(x, f, masks(2 + 2 * i)));
                    good *= 1.0 - x.to_i64().unsigned_abs() as f64 / whole;
                }
                errors += u64::from(wrong);
                expected += 1.0 - good;
                continue;
            }
            let x = number(word[0], length);
            errors += u64::from(is_big_error(x, f, form.truncate(x, f, masks(2))));
            expected += match form {
                Form::SecureMl | Form::Aby3Printed | Form::MizarFig10 => {
                    x.to_i64().unsigned_abs() as f64 / whole
                }
                Form::FixedR | Form::Exact | Form::Floor | Form::TruncateFirst => 0.0,
            };
        }
    }
    let n = samples.max(1) as f64;
    let bound = matches!(form, Form::SecureMl | Form::Aby3Printed).then(|| 2f64.powi(1 - slack as i32));
    let (rate, expected) = (errors as f64 / n, expected / n);
    Ok(Rate { ring: W::BITS, form, slack, samples, errors, rate, expected, bound })
}

/// A uniform number in ±[2^(length−1), 2^length).
fn number<W: Word>(random: u64, length: u32) -> W {
    let top = 1u64 << (length - 1);
    let magnitude = W::from_u64(top | random & (top - 1));
    if random >> 63 == 1 { magnitude.neg() } else { magnitude }
}

/// The tables for people.
pub fn table(study: &Study) -> String {
    let mut out = String::new();
    let forms: Vec<Form> =
        Form::ALL.into_iter().filter(|f| study.rates.iter().any(|r| r.form == *f)).collect();
    let head = |first: &str| {
        forms.iter().fold(format!("{first:>8}"), |line, form| line + &format!(" {:>14}", form.name()))
    };
    for ring in [64, 32] {
        let at = |form: Form, slack: u32| {
            study.rates.iter().find(|r| r.ring == ring && r.form == form && r.slack == slack)
        };
        if SLACKS.clone().all(|slack| forms.iter().all(|&f| at(f, slack).is_none())) {
            continue;
        }
        out += &format!("big errors on Z_2^{ring}, {} truncations each\n", study.rates[0].samples);
        out += &format!("{}   expected      bound\n", head("ℓ − ℓ_x"));
        for slack in SLACKS {
            out += &format!("{slack:>8}");
            for &form in &forms {
                out += &at(form, slack).map_or(format!(" {:>14}", "-"), |r| format!(" {:>14.2e}", r.rate));
            }
            let naive = forms.iter().filter_map(|&f| at(f, slack)).find(|r| r.bound.is_some());
            if let Some(r) = naive {
                out += &format!("   {:>8.2e}   {:>8.2e}", r.expected, r.bound.unwrap_or(0.0));
            }
            out += "\n";
        }
        out += "\n";
    }
    let mut groups: Vec<(&str, u32)> = vec![];
    for a in &study.accuracy {
        if !groups.contains(&(&a.model, a.ring)) {
            groups.push((&a.model, a.ring));
        }
    }
    for (model, ring) in groups {
        let rows: Vec<&Accuracy> =
            study.accuracy.iter().filter(|a| a.model == model && a.ring == ring).collect();
        let plain = study.plain.iter().find(|(name, _)| name == model).map_or(0.0, |p| p.1);
        out += &format!(
            "{model} on Z_2^{ring}: accuracy on {} images (big errors per image); floating point {:.2} %\n{}\n",
            rows[0].images,
            100.0 * plain,
            forms.iter().fold(format!("{:>4}", "f"), |line, f| line + &format!(" {:>18}", f.name()))
        );
        let mut fracs: Vec<u32> = rows.iter().map(|a| a.frac).collect();
        fracs.dedup();
        for frac in fracs {
            out += &format!("{frac:>4}");
            for &form in &forms {
                let cell = rows.iter().find(|a| a.frac == frac && a.form == form).map(|a| {
                    format!("{:.2} % ({:.1})", 100.0 * a.score.accuracy, a.score.per_image.big_errors)
                });
                out += &format!(" {:>18}", cell.unwrap_or_default());
            }
            out += "\n";
        }
        out += "\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five standard deviations of a binomial rate.
    fn near(rate: f64, expected: f64, samples: usize) -> bool {
        (rate - expected).abs() <= 5.0 * (expected * (1.0 - expected) / samples as f64).sqrt() + 1e-12
    }

    #[test]
    fn sampled_rates_are_those_of_theory() {
        let samples = 1 << 16;
        for slack in [2, 4, 7] {
            for form in Form::ALL {
                let rate = rate::<u16>(form, slack, samples).unwrap();
                assert!(near(rate.rate, rate.expected, samples), "{rate:?}");
                assert!(rate.bound.is_none_or(|b| rate.rate <= b), "{rate:?}");
            }
            let naive = rate::<u64>(Form::MizarFig10, slack, samples).unwrap();
            // ¾ of 2^-slack: the numbers have their top bit set.
            assert!(near(naive.rate, 0.75 * 2f64.powi(-(slack as i32)), samples), "{naive:?}");
            assert!(!near(naive.rate, 1.5 * 2f64.powi(-(slack as i32)), samples), "the test can tell");
            let first = rate::<u16>(Form::TruncateFirst, slack, samples).unwrap();
            assert!(first.expected < naive.expected / 8.0, "{first:?}");
        }
        assert!(rate::<u16>(Form::Exact, 1, 10).is_err() && rate::<u16>(Form::Exact, 15, 10).is_err());
    }

    #[test]
    fn masks_are_fresh() {
        let errors = || rate::<u32>(Form::Aby3Printed, 2, 1 << 14).unwrap().errors;
        let runs = [errors(), errors(), errors(), errors()];
        assert!(runs.iter().any(|&e| e != runs[0]), "the same errors four times: {runs:?}");
    }

    /// The finding of the truncation paper's Table 2, on a few images.
    #[test]
    fn multiply_then_truncate_collapses_at_26_bits_and_the_others_do_not() {
        let file =
            |name| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(name);
        let subject =
            Subject::load(&file("cnn.onnx"), &file("test_images.npy"), &file("test_labels.npy")).unwrap();
        let options = |frac, forms: &[Form]| Options {
            rings: vec![64],
            fracs: vec![frac, 31],
            forms: forms.to_vec(),
            images: 10,
            samples: 1000,
        };
        let run = |frac, forms: &[Form]| {
            let study = study(std::slice::from_ref(&subject), &options(frac, forms), &|_| {}).unwrap();
            assert_eq!(study.schema, "megrez.study.truncation/1");
            assert_eq!(study.accuracy.len(), forms.len(), "31 fraction bits do not fit and are left out");
            assert!(table(&study).contains("cnn on Z_2^64"));
            study.accuracy
        };
        for a in run(26, &[Form::SecureMl, Form::Aby3Printed, Form::MizarFig10]) {
            assert!(a.score.accuracy <= 0.5 && a.score.per_image.big_errors > 100.0, "{a:?}");
        }
        for a in run(26, &[Form::FixedR, Form::TruncateFirst, Form::Exact]) {
            assert!(a.score.accuracy == 1.0 && a.score.per_image.big_errors == 0.0, "{a:?}");
        }
        let few = run(13, &[Form::Aby3Printed]);
        assert!(few[0].score.accuracy == 1.0, "{few:?}");
    }
}
