//! `megrez study meteor-msb`: METEOR's most significant bit as printed (Fig. 3), what it gets
//! wrong, what it reveals, and why no setup phase can prepare it. megrez's `meteor` finds carries
//! instead.

use super::walk::lone_party;
use megrez::{Error, Result};
use megrez_protocols::meteor::printed::Extraction;
use megrez_session::Phase;
use serde::Serialize;
use std::collections::HashSet;

/// The most draws of masks.
const MOST_DRAWS: usize = 1 << 20;

/// What to study.
#[derive(Clone, Debug)]
pub struct Options {
    /// ℓ, each 4 to 16: every mask is tried.
    pub rings: Vec<u32>,
    /// Values of x, besides 0 and L/2, where there are more than these.
    pub values: u64,
    /// Draws of masks for the products that N-MULT wants.
    pub draws: usize,
}

/// A form on a ring, over all masks ψ and both λ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// ℓ.
    pub ring: u32,
    /// `printed`; `complement`, with b = ~(2m) and the printed prime; `corrected`, with room for
    /// the entries as well.
    pub form: &'static str,
    /// The prime.
    pub q: u32,
    /// Which values: `0 and L/2`, or `others`.
    pub values: &'static str,
    /// Executions.
    pub runs: u64,
    /// The part of them with a wrong bit.
    pub wrong: f64,
    /// The part of them in which everybody sees d = 0. Anything but ½ tells about x.
    pub zeros: f64,
}

/// The products of four entries' masks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Products {
    /// ℓ.
    pub ring: u32,
    /// The prime.
    pub q: u32,
    /// Draws of masks.
    pub draws: usize,
    /// Values of the four bits of b: of the masked value, which is known online only.
    pub publics: usize,
    /// Different products over these values, on average: a setup phase could prepare one.
    pub products: f64,
}

/// The whole study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Study {
    /// `megrez.study.meteor-msb/1`.
    pub schema: String,
    /// Errors and what d tells.
    pub rows: Vec<Row>,
    /// What a setup phase would have to prepare.
    pub products: Vec<Products>,
}

impl Study {
    /// The name of the report's format.
    pub const SCHEMA: &'static str = "megrez.study.meteor-msb/1";
}

/// Runs the study; `progress` hears of every form.
pub fn study(o: &Options, progress: &dyn Fn(&str)) -> Result<Study> {
    if let Some(bad) = o.rings.iter().find(|ring| !(4..=16).contains(*ring)) {
        return Err(Error::Refused(format!(
            "every mask is tried, so rings have 4 to 16 bits here, not {bad}"
        )));
    }
    if o.draws > MOST_DRAWS {
        return Err(Error::Refused(format!("at most {MOST_DRAWS} draws")));
    }
    let (mut rows, mut products) = (vec![], vec![]);
    for &ring in &o.rings {
        let (printed, corrected) = (Extraction::printed(ring), Extraction::corrected(ring));
        let complement = Extraction { complement: true, ..printed };
        for (form, extraction) in [("printed", printed), ("complement", complement), ("corrected", corrected)]
        {
            progress(&format!("{form} on {ring} bits"));
            rows.push(row(form, extraction, "0 and L/2", [0, 1 << (ring - 1)].into_iter()));
            rows.push(row(form, extraction, "others", others(ring, o.values)));
        }
        products.push(mask_products(printed, o.draws)?);
    }
    Ok(Study { schema: Study::SCHEMA.into(), rows, products })
}

/// Values but 0 and L/2, evenly spread: `most`, or all.
fn others(ring: u32, most: u64) -> impl Iterator<Item = u64> {
    let step = ((1u64 << ring) / most.max(1)).max(1);
    (1u64..1 << ring).step_by(step as usize).filter(move |x| *x != 1 << (ring - 1))
}

fn row(form: &'static str, e: Extraction, name: &'static str, values: impl Iterator<Item = u64>) -> Row {
    let (mut runs, mut wrong, mut zeros) = (0u64, 0u64, 0u64);
    for x in values {
        for (psi, flip) in (0..1u64 << e.ring).flat_map(|psi| [(psi, false), (psi, true)]) {
            let (msb, zero) = e.run(x, psi, flip);
            runs += 1;
            wrong += u64::from(msb != x >> (e.ring - 1));
            zeros += u64::from(zero);
        }
    }
    let part = |count: u64| count as f64 / runs.max(1) as f64;
    Row { ring: e.ring, form, q: e.q, values: name, runs, wrong: part(wrong), zeros: part(zeros) }
}

fn mask_products(e: Extraction, draws: usize) -> Result<Products> {
    let mut party = lone_party()?;
    party.enter(Phase::Offline, 0);
    let words = party.step("masks", |p| Ok(p.stream(p.me(), "words")?.words(8 * draws)))?;
    let mut different = 0;
    for word in words.chunks_exact(8) {
        // Which values the masks take does not matter: a stray bias of 2^-60 is none.
        let masks: Vec<u32> = word.iter().map(|w| (w % u64::from(e.q)) as u32).collect();
        let product =
            |b: usize| e.mask_product(&masks[..4], &masks[4..], &[0, 1, 2, 3].map(|k| b >> k & 1 == 1));
        different += (0..16).map(product).collect::<HashSet<_>>().len();
    }
    let products = different as f64 / draws.max(1) as f64;
    Ok(Products { ring: e.ring, q: e.q, draws, publics: 16, products })
}

/// The tables for people.
pub fn table(study: &Study) -> String {
    let mut out = String::from("METEOR's most significant bit (Fig. 3), over all masks\n");
    out += &format!(
        "{:>4}  {:<11} {:>3}  {:<10} {:>12} {:>12} {:>12}\n",
        "ℓ", "form", "q", "x", "runs", "wrong", "d = 0"
    );
    for r in &study.rows {
        out += &format!(
            "{:>4}  {:<11} {:>3}  {:<10} {:>12} {:>12.6} {:>12.6}\n",
            r.ring, r.form, r.q, r.values, r.runs, r.wrong, r.zeros
        );
    }
    out += "d is public and should be 0 half of the time whatever x is.\n";
    for p in &study.products {
        out += &format!(
            "ℓ = {}: the product of the masks of four entries takes {:.1} values over the {} that four bits of b = L − 2m have, \
             and m is known online only: N-MULT's setup phase cannot make it\n",
            p.ring, p.products, p.publics
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_form_errs_and_tells_and_the_corrected_one_does_not() {
        let study = study(&Options { rings: vec![8, 16], values: 8, draws: 100 }, &|_| {}).unwrap();
        let row = |ring, form, values| {
            study.rows.iter().find(|r| (r.ring, r.form, r.values) == (ring, form, values)).unwrap()
        };
        for ring in [8, 16] {
            let special = row(ring, "printed", "0 and L/2");
            assert_eq!((special.wrong, special.zeros), (0.5, 0.0), "d is never 0, and everybody sees it");
            // L − 2m does not fit for two values of m.
            assert_eq!(row(ring, "printed", "others").wrong, 2f64.powi(1 - ring as i32));
            for values in ["0 and L/2", "others"] {
                let fixed = row(ring, "corrected", values);
                assert_eq!((fixed.wrong, fixed.zeros), (0.0, 0.5));
            }
        }
        assert_eq!((row(16, "complement", "others").q, row(16, "corrected", "others").q), (17, 19));
        assert!(row(16, "complement", "0 and L/2").wrong > 0.0, "entries reach ℓ + 1 = 17");
        assert!(row(8, "complement", "others").wrong == 0.0);
        assert!(study.products.iter().all(|p| p.products > 2.0), "{:?}", study.products);
        assert!(table(&study).contains("printed"));
    }

    #[test]
    fn rings_too_large_to_try_every_mask_are_refused() {
        assert!(study(&Options { rings: vec![32], values: 1, draws: 1 }, &|_| {}).is_err());
    }
}
