//! What local work takes this machine, where it counts beside a network.

use megrez_kernels::{ComparisonKeys, Cpu, KeyShare, KeySpec, Memory, PERMUTATION_WORDS};
use megrez_plan::{Op, Plan, ReluForm};
use megrez_prg::Key;
use std::sync::OnceLock;
use std::time::Instant;

/// Seconds of one core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Local {
    /// A level of a comparison key, for one value, at a worker.
    key_level: f64,
    /// What tables of digits take more than a list, for one value, over both phases.
    digit_tables: f64,
}

impl Local {
    /// On a Xeon with AVX-512 and other work: a walk of 15 levels took 290 ns; 2^17 ReLUs of 16
    /// bits took 28 ms more by tables of digits than by lists. What lists take is within the noise
    /// of networks, and is not counted.
    pub const TYPICAL: Local = Local { key_level: 20e-9, digit_tables: 100e-9 };

    /// On this machine: measured once a process, in a millisecond. Keys are AES, which takes a
    /// processor without instructions for it many times as long. A build that is not optimised
    /// says nothing of a machine.
    pub fn of_this_machine() -> Local {
        static MEASURED: OnceLock<Local> = OnceLock::new();
        let measure = || match if cfg!(debug_assertions) { None } else { walk() } {
            Some(key_level) => Local { key_level, ..Local::TYPICAL },
            None => Local::TYPICAL,
        };
        *MEASURED.get_or_init(measure)
    }

    /// Seconds of a plan that are worth a thought beside the network's: those of keys and of tables
    /// of digits.
    pub fn seconds(&self, plan: &Plan) -> f64 {
        let of = |step: &megrez_plan::Step| {
            let op = if let Op::Offloaded(op) = &step.op { op } else { &step.op };
            let Op::Relu(relu) = op else { return 0.0 };
            let each = match relu.form {
                ReluForm::Key => f64::from(relu.sign.width(plan.ring) - 1) * self.key_level,
                ReluForm::DigitTables => self.digit_tables,
                _ => 0.0,
            };
            plan.value(step.output).shape.elements() as f64 * each
        };
        plan.steps.iter().map(of).sum()
    }
}

/// Seconds that a level of a key takes a core for one value; `None` if the device fails.
fn walk() -> Option<f64> {
    const VALUES: usize = 256;
    let device = Cpu::default();
    let spec = KeySpec { cut: 16, width: 16, truncate: 16 };
    let roots = [1, 2].map(|seed| Key::from_bytes([seed; 32]).stream());
    let words = |seed: u8, n: usize| device.upload(Key::from_bytes([seed; 32]).stream().words(n)).ok();
    let (permutations, masks) = (words(3, PERMUTATION_WORDS)?, words(4, VALUES)?);
    let dealt = device.deal_keys::<u64>(spec, &permutations, &masks, [&roots[0], &roots[1]]).ok()?;
    let share = KeyShare {
        root: &roots[1],
        first: Some(&dealt.first),
        others: &dealt.others,
        values: &dealt.values,
        tops: &dealt.tops,
    };
    let seconds = (0..4).map(|_| {
        let start = Instant::now();
        device.evaluate_keys(spec, &permutations, &masks, &share).ok()?;
        Some(start.elapsed().as_secs_f64())
    });
    // The least of several: others may use the machine.
    let least = seconds.flatten().min_by(f64::total_cmp)?;
    Some(least / (VALUES as f64 * f64::from(spec.levels() as u32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_takes_time() {
        let level = walk().unwrap();
        assert!((1e-10..1e-4).contains(&level), "{level}");
        assert_eq!(Local::of_this_machine().digit_tables, Local::TYPICAL.digit_tables);
    }
}
