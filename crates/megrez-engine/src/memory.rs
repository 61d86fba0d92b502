//! What a party holds while it runs a plan, reckoned before it runs: what the walks hold at each
//! moment. Masks that the online phase reads and correlated randomness of all steps are there when
//! it begins, and go as steps use them; values come and go.
//!
//! Kernels work on a part at a time besides, and links buffer what is under way; a test holds this
//! to what the allocator counts.

use crate::steps::{derived, producers, readers, unspent};
use megrez_plan::{Kind, Plan, Step, ValueId};
use megrez_protocols::{Cost, Transfer, Unit, WordsHeld};
use megrez_session::Phase;

/// A step's cost, when it runs, and whether it needs masks no more once its material is made.
pub(crate) struct Timed<'a> {
    pub(crate) cost: &'a Cost,
    pub(crate) spends: bool,
    pub(crate) offline_wave: usize,
    pub(crate) online_wave: usize,
}

/// Bytes that party `me`, who holds `held` of every element, holds at most in a run of a plan;
/// stored inputs count.
pub(crate) fn peak(plan: &Plan, steps: &[Timed<'_>], me: usize, held: WordsHeld) -> u64 {
    // In memory they are whole words of the machine.
    let word = u64::from(plan.ring.next_power_of_two() / 8);
    let size = |id: ValueId| {
        let value = plan.value(id);
        let n = value.shape.elements() as u64;
        if value.kind == Kind::Bit { n.div_ceil(8) } else { n.saturating_mul(word) }
    };
    // A public value is its own mask.
    let public = |id: ValueId| matches!(plan.value(id).kind, Kind::Public { .. });
    let masks = |id: ValueId| if public(id) { size(id) } else { size(id).saturating_mul(held.masks as u64) };
    let data = |id: ValueId| if public(id) { 0 } else { size(id).saturating_mul(held.data as u64) };
    let messages = |step: usize| Messages { of: &steps[step].cost.transfers, me, word };

    let producers = producers(plan);
    let again = |id: ValueId| held.kept > 0 && derived(plan, id, &producers).is_some();
    let mut unspent = unspent(plan);
    // What of a value's masks is there when the online phase begins.
    let mut kept: Vec<u64> = (0..plan.values.len() as u32).map(|id| masks(ValueId(id))).collect();
    let inputs = |of: &dyn Fn(ValueId) -> u64| {
        plan.inputs.iter().map(|input| of(input.value)).fold(0, u64::saturating_add)
    };
    let (mut all_masks, mut drawn) = (inputs(&masks), 0);
    let (mut material, mut peak) = (0u64, 0u64);
    for wave in waves(steps, |step| step.offline_wave) {
        while drawn <= wave.iter().copied().max().unwrap_or(0) {
            all_masks = all_masks.saturating_add(masks(plan.steps[drawn].output));
            drawn += 1;
        }
        let work = wave.iter().map(|&step| messages(step).work(Phase::Offline)).fold(0, u64::saturating_add);
        peak = peak.max(all_masks.saturating_add(material).saturating_add(work));
        let dealt = wave.iter().map(|&step| messages(step).kept()).fold(0, u64::saturating_add);
        material = material.saturating_add(dealt);
        let spending = wave.iter().filter(|&&step| steps[step].spends);
        for Step { inputs, output, .. } in spending.map(|&step| &plan.steps[step]) {
            for &id in inputs.iter().chain([output]) {
                let left = &mut unspent[id.0 as usize];
                *left -= 1;
                if *left == 0 && !public(id) {
                    let stays = if again(id) { 0 } else { size(id).saturating_mul(held.kept as u64) };
                    all_masks = all_masks.saturating_sub(masks(id).saturating_sub(stays));
                    kept[id.0 as usize] = stays;
                }
            }
        }
    }

    let arrived = inputs(&data);
    let mut values = all_masks.saturating_add(arrived);
    // What arrives, and what it becomes.
    peak = peak.max(values.saturating_add(material).saturating_add(arrived));
    let mut left = readers(plan);
    for wave in waves(steps, |step| step.online_wave) {
        let work = |&step: &usize| {
            let output = plan.steps[step].output;
            let work = messages(step).work(Phase::Online).saturating_add(messages(step).drawn());
            data(output).saturating_add(size(output)).saturating_add(work)
        };
        let work = wave.iter().map(work).fold(0, u64::saturating_add);
        peak = peak.max(values.saturating_add(material).saturating_add(work));
        for &step in &wave {
            let Step { inputs, output, .. } = &plan.steps[step];
            material = material.saturating_sub(messages(step).kept());
            if again(*output) && kept[output.0 as usize] == 0 {
                kept[output.0 as usize] = masks(*output);
                values = values.saturating_add(masks(*output));
            }
            values = values.saturating_add(data(*output));
            for &input in inputs {
                let left = &mut left[input.0 as usize];
                *left -= 1;
                if *left == 0 {
                    values = values.saturating_sub(kept[input.0 as usize]).saturating_sub(data(input));
                }
            }
        }
    }
    peak
}

/// Steps by their wave, in order.
fn waves(steps: &[Timed<'_>], wave: impl Fn(&Timed<'_>) -> usize) -> Vec<Vec<usize>> {
    let mut waves = vec![vec![]; steps.iter().map(|step| wave(step) + 1).max().unwrap_or(0)];
    steps.iter().enumerate().for_each(|(index, step)| waves[wave(step)].push(index));
    waves
}

/// A step's messages, as party `me` sees them.
struct Messages<'a> {
    of: &'a [Transfer],
    me: usize,
    word: u64,
}

impl Messages<'_> {
    fn sum(&self, bytes: impl Fn(&Transfer) -> Option<u64>) -> u64 {
        self.of.iter().filter_map(bytes).fold(0, u64::saturating_add)
    }

    /// Bytes that its messages of a phase take: all of them as they are under way, and what one
    /// after the other becomes, or is made of. What is dealt is made of a secret, a drawn half and
    /// their difference; of twice the secret where it is half of a table.
    fn work(&self, phase: Phase) -> u64 {
        let mine = |t: &&Transfer| t.phase == phase && (t.from == self.me || t.to == self.me);
        let each = |t: &Transfer| self.unpacked(t).saturating_mul(if t.from == self.me { 5 } else { 1 });
        let largest = self.of.iter().filter(mine).map(each).max().unwrap_or(0);
        largest.saturating_add(self.sum(|t| mine(&t).then(|| t.unit.bytes(t.n))))
    }

    /// Bytes that it keeps of what it was sent offline, as they came.
    fn kept(&self) -> u64 {
        self.sum(|t| (t.phase == Phase::Offline && t.to == self.me).then(|| t.unit.bytes(t.n)))
    }

    /// Bytes of what was dealt, to this party or another, when a step uses it: halves are drawn
    /// only then.
    fn drawn(&self) -> u64 {
        self.sum(|t| (t.phase == Phase::Offline && t.from != self.me).then(|| self.unpacked(t)))
    }

    /// Elements of several bits are words; bits and field elements stay packed.
    fn unpacked(&self, transfer: &Transfer) -> u64 {
        match transfer.unit {
            Unit::Bits(bits) if bits > 1 => {
                (transfer.n as u64).saturating_mul(self.word.max(u64::from(bits / 8)))
            }
            unit => unit.bytes(transfer.n),
        }
    }
}
