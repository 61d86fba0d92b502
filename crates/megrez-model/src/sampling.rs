//! How the next token of a text is drawn from logits, and who finds it.
//!
//! With a temperature T a token is drawn with chances in proportion to e^(logit/T), of all tokens
//! or of the `top` likeliest. Gumbel's noise does that: with g_i = −ln(−ln u_i) of independent
//! u_i in (0, 1), the place of the largest of logit_i + T·g_i is distributed just so. Parties who
//! find the largest number anyway add the noise before; where only the likeliest count, they put
//! these in order and add the noise to them. The noise is the client's, who learns the token: an
//! input like any other, which no party sees.

use megrez_graph::{Attributes, Graph, Id, Interval, Output};
use megrez_prg::RootKey;
use megrez_service::{Error, ErrorKind, Result};

/// The input of the noise.
pub(crate) const NOISE: &str = "megrez.noise";

/// The highest temperature: beyond, all tokens are as good as equally likely.
const HOTTEST: f64 = 100.0;

/// The most of the likeliest tokens that parties put in order: they compare all pairs of all
/// logits.
pub(crate) const MOST_ORDERED: usize = 64;

/// How the next token is drawn from logits.
pub struct Sampling {
    temperature: f64,
    /// Of how many of the likeliest; of all if `None`.
    top: Option<usize>,
    key: RootKey,
}

impl Sampling {
    /// With a temperature from 0, which takes the likeliest, to 100, of the `top` likeliest tokens
    /// or of all.
    ///
    /// # Errors
    /// If the temperature is no such number, if `top` is 0, or the system has no randomness.
    pub fn new(temperature: f64, top: Option<usize>) -> Result<Self> {
        if !(0.0..=HOTTEST).contains(&temperature) {
            return Err(Error::Refused(format!("a temperature is from 0 to {HOTTEST}, not {temperature}")));
        }
        if top == Some(0) {
            return Err(Error::Refused("at least one of the likeliest tokens is drawn from".into()));
        }
        let key = RootKey::random().map_err(|e| Error::of(ErrorKind::Internal, e))?;
        Ok(Sampling { temperature, top, key })
    }

    /// Whether anything is left to chance.
    pub(crate) fn draws(&self) -> bool {
        self.temperature > 0.0 && self.top != Some(1)
    }

    /// Of how many of `width` tokens one is drawn, where not of all.
    pub(crate) fn top(&self, width: usize) -> Option<usize> {
        self.top.filter(|&top| top < width)
    }

    /// T·g for `count` tokens, of the text's token `place`.
    pub(crate) fn noise(&self, place: usize, count: usize) -> Vec<f32> {
        let words = self.key.derive(&(place as u64).to_le_bytes()).stream().words(count);
        let gumbel = |word: u64| {
            // The middle of one of 2^53 parts: never 0 or 1.
            let u = ((word >> 11) as f64 + 0.5) * 2f64.powi(-53);
            -(-u.ln()).ln()
        };
        words.into_iter().map(|word| (self.temperature * gumbel(word)) as f32).collect()
    }

    /// What the noise lies in: −ln(ln 2^54) is −3.6, and the largest g is 37.4.
    pub(crate) fn range(&self) -> Interval {
        Interval { low: -4.0 * self.temperature, high: 38.0 * self.temperature }
    }

    /// The text's token `place`, by logits in the clear.
    pub fn pick(&self, place: usize, logits: &[f32]) -> u32 {
        if !self.draws() {
            return largest(logits);
        }
        let Some(top) = self.top(logits.len()) else {
            let noise = self.noise(place, logits.len());
            return largest(&logits.iter().zip(noise).map(|(x, g)| x + g).collect::<Vec<_>>());
        };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        // Of equal logits the first counts as larger, as for the parties.
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let noise = self.noise(place, top);
        let drawn = largest(&order.iter().zip(noise).map(|(&i, g)| logits[i] + g).collect::<Vec<_>>());
        order[drawn as usize] as u32
    }

    /// Adds the drawing to a graph: of logits [1, 1, width], a one at the place of the token that
    /// is drawn and zeros elsewhere; or, of the likeliest, its number [1, 1, 1].
    pub(crate) fn finish(&self, graph: &mut Graph, logits: Id) -> Result<Id> {
        let last = || Attributes::none().with("axis", -1);
        let width = graph.shape(logits).dims().last().copied().unwrap_or(0);
        if !self.draws() {
            return Ok(graph.add("next-token", "Hardmax", &[logits], last())?);
        }
        let Some(top) = self.top(width) else {
            let noise = graph.input(NOISE, [1, 1, width])?;
            let noisy = graph.add("noisy-logits", "Add", &[logits, noise], Attributes::none())?;
            return Ok(graph.add("next-token", "Hardmax", &[noisy], last())?);
        };
        if width > MOST_ORDERED {
            return Err(Error::of(
                ErrorKind::Unsupported,
                format!(
                    "the parties put {MOST_ORDERED} logits in order at most, and the model has {width}: let the client choose, or \
                     give a temperature alone"
                ),
            ));
        }
        let k = last().with("k", top as i64);
        let likeliest = graph.add_nodes("likeliest", "TopK", &[Some(logits)], k, &[true, true])?;
        let [values, numbers] = likeliest[..] else {
            return Err(Error::of(ErrorKind::Internal, "TopK has two outputs"));
        };
        let noise = graph.input(NOISE, [1, 1, top])?;
        let noisy = graph.add("noisy-logits", "Add", &[values, noise], Attributes::none())?;
        let one = graph.add("drawn", "Hardmax", &[noisy], last())?;
        let number = graph.add("drawn-number", "Mul", &[one, numbers], Attributes::none())?;
        let sum = Attributes::none().with("axes", [-1]).with("keepdims", 1);
        Ok(graph.add("next-token", "ReduceSum", &[number], sum)?)
    }
}

/// Who finds the largest logit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The client, who learns all logits.
    #[default]
    Client,
    /// The parties, on shares, exactly: the client learns the token and nothing else. Of logits
    /// that are equal on the grid of the fixed point, the first.
    Parties,
}

impl Choice {
    /// The name of an option.
    ///
    /// # Errors
    /// If there is no such choice.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "client" => Ok(Choice::Client),
            "parties" => Ok(Choice::Parties),
            _ => Err(Error::Refused(format!("`{name}` chooses no token: use client or parties"))),
        }
    }

    /// The graph whose first output says which token is next.
    pub(crate) fn finish(self, mut graph: Graph, sampling: &Sampling) -> Result<Graph> {
        let Some(Output { name, id }) = graph.outputs.first().cloned() else { return Ok(graph) };
        if self == Choice::Client {
            return Ok(graph);
        }
        let &[1, n, _] = graph.shape(id).dims() else { return Ok(graph) };
        let last =
            Attributes::none().with("axes", [1]).with("starts", [n as i64 - 1]).with("ends", [n as i64]);
        let last = graph.add("last-logits", "Slice", &[id], last)?;
        let id = sampling.finish(&mut graph, last)?;
        graph.outputs[0] = Output { name, id };
        Ok(graph)
    }

    /// The text's token `place` by what was revealed.
    pub(crate) fn token(self, row: &[f32], place: usize, sampling: &Sampling) -> Result<u32> {
        if self == Choice::Client {
            return Ok(sampling.pick(place, row));
        }
        let found = match *row {
            [number] if (number - number.round()).abs() < 0.01 => Some(number.round() as u32),
            _ => {
                let one = row.iter().filter(|&&v| v == 1.0).count() == 1;
                let rest = row.iter().all(|&v| v == 1.0 || v == 0.0);
                (one && rest).then(|| largest(row))
            }
        };
        found.ok_or_else(|| {
            Error::of(
                ErrorKind::OutOfRange,
                "the parties have found no largest logit, so values were beyond what the plan holds: use fewer fraction bits",
            )
        })
    }
}

/// The position of the largest number; of equal ones the first.
pub fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best }) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each token is drawn.
    fn shares(sampling: &Sampling, logits: &[f32], draws: usize) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        (0..draws).for_each(|place| counts[sampling.pick(place, logits) as usize] += 1.0 / draws as f64);
        counts
    }

    #[test]
    fn tokens_are_drawn_with_the_chances_of_a_softmax() {
        let logits = [1.0, -0.5, 2.0, 2.0, 0.0];
        for (temperature, top) in [(1.0, None), (0.5, None), (2.0, Some(5)), (1.0, Some(3))] {
            let sampling = Sampling::new(temperature, top).unwrap();
            let mut wanted: Vec<f64> = logits.iter().map(|&x| (f64::from(x) / temperature).exp()).collect();
            if top == Some(3) {
                (wanted[1], wanted[4]) = (0.0, 0.0);
            }
            let sum: f64 = wanted.iter().sum();
            for (share, wanted) in shares(&sampling, &logits, 40_000).iter().zip(wanted) {
                // Six standard deviations.
                assert!((share - wanted / sum).abs() < 0.015, "{temperature} {top:?}: {share} {wanted}");
            }
        }
    }

    #[test]
    fn without_chance_the_likeliest_is_taken() {
        for (temperature, top) in [(0.0, None), (0.0, Some(3)), (7.0, Some(1))] {
            let sampling = Sampling::new(temperature, top).unwrap();
            assert!((0..50).all(|place| sampling.pick(place, &[0.0, 2.0, 2.0]) == 1));
        }
    }

    #[test]
    fn noise_lies_in_its_range_and_no_two_places_share_it() {
        let sampling = Sampling::new(1.5, None).unwrap();
        let (first, second) = (sampling.noise(0, 10_000), sampling.noise(1, 10_000));
        let Interval { low, high } = sampling.range();
        assert!(first.iter().all(|&g| f64::from(g) > low && f64::from(g) < high));
        assert!(first.iter().zip(&second).all(|(a, b)| a.to_bits() != b.to_bits()));
        let mean = first.iter().map(|&g| f64::from(g)).sum::<f64>() / 10_000.0;
        // T times Euler's constant, within six standard deviations.
        assert!((mean - 1.5 * 0.5772).abs() < 0.12, "{mean}");
    }

    #[test]
    fn what_is_no_temperature_is_refused() {
        for temperature in [-0.1, f64::NAN, f64::INFINITY, 101.0] {
            assert!(Sampling::new(temperature, None).is_err());
        }
        assert!(Sampling::new(1.0, Some(0)).is_err());
    }
}
