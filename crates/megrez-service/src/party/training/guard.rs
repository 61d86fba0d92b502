//! Whether what lasts has kept to a job's bounds: one bit, which the parties open among themselves.
//!
//! For every bound the sum of squares s, one scalar product, is at least 0 and below 2^b: numbers
//! that have left the ring come back anywhere in it, and so does s, within the bound by a chance of
//! 2^(b+2f−ℓ). All comparisons are counted, and what is opened is whether all of them hold. A plan of
//! the parties' own: the job says bounds, and no steps.

use super::outbox::Outbox;
use super::rows::{Local, made};
use crate::protocols::Suite;
use crate::training::{Job, Work};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{Stored, Turn, agree, run_again};
use megrez_net::Payload;
use megrez_plan::{Fewest, Kind, List, Op, Plan, SignBit, Value, View};
use megrez_session::Party;

/// Who learns the bit.
const PARTIES: &str = "(parties)";
/// Its name.
const IN_RANGE: &str = "in-range";
/// Bytes of a message: the length of a party's share of the bit, and the share.
const MESSAGE: usize = 32;

/// The plan that says whether all bounds are kept; `None` if there are none.
pub(super) fn plan(job: &Job, work: &Work) -> Result<Option<Plan>> {
    if job.bounds.is_empty() {
        return Ok(None);
    }
    let ring = work.ring();
    let mut plan = Local(Plan::new(ring));
    let mut sums = vec![];
    for bound in &job.bounds {
        let name = &bound.state;
        let missing = || Error::of(ErrorKind::Internal, format!("no state `{name}`"));
        let value: &Value = work.state(name).ok_or_else(missing)?;
        let (n, Kind::Ring { frac }) = (value.shape.elements(), value.kind) else { return Err(missing()) };
        let all = plan.input(name, value)?;
        let mut flat = |part: &str, dims: [usize; 2]| {
            plan.step(&format!("{name}/{part}"), Op::View(View::whole(dims.into())), &[all])
        };
        let (row, column) = (flat("row", [1, n])?, flat("column", [n, 1])?);
        let sum = plan.step(&format!("{name}/squares"), Op::MatMul, &[row, column])?;
        // 2^b − 1 − s in words, without a scale: all sums stand in one row.
        let sum = plan.step(&format!("{name}/words"), Op::Rescale { frac: 0 }, &[sum])?;
        let below = (1i64 << (bound.below + 2 * frac)) - 1;
        let below = Op::Combine { coefficients: vec![-1], constant: below };
        sums.extend([sum, plan.step(&format!("{name}/below"), below, &[sum])?]);
    }
    let sign = Op::NonNegative(SignBit { list: List::digits(ring, Fewest::Total), cut: 0, bits: None });
    let all = plan.step("bounds", Op::Concat { axis: 1 }, &sums)?;
    let kept = plan.step("bounds/kept", sign.clone(), &[all])?;
    let kept = plan.step("bounds/ones", Op::BitToRing, &[kept])?;
    let count = plan.step("bounds/count", Op::Sum { axis: 1 }, &[kept])?;
    let lacks = Op::Combine { coefficients: vec![1], constant: -(sums.len() as i64) };
    let lacks = plan.step("bounds/lacks", lacks, &[count])?;
    let none = plan.step("bounds/none", sign, &[lacks])?;
    let none = plan.step("bounds/bit", Op::BitToRing, &[none])?;
    plan.0.output(IN_RANGE, PARTIES, none);
    plan.0.validate().map_err(made)?;
    Ok(Some(plan.0))
}

/// Opens to all parties whether the state keeps to the bounds.
pub(super) fn kept(
    suite: &Suite,
    party: &mut Party<AnyDevice>,
    plan: &Plan,
    state: &mut Stored,
    run: u32,
) -> Result<bool> {
    agree(party, "bounds", &plan.hash())?;
    let mut outbox = Outbox::default();
    run_again(suite, Turn::new(plan, run), party, state, &mut outbox, None)?;
    let wrong = || Error::of(ErrorKind::Internal, "a share of the bit of bounds is none");
    let [(_, _, share)] = &outbox.0[..] else { return Err(wrong()) };
    let mut mine = [0u8; MESSAGE];
    mine[0] = u8::try_from(share.len()).map_err(|_| wrong())?;
    mine[1..].get_mut(..share.len()).ok_or_else(wrong)?.copy_from_slice(share);
    let messages = party.step(&format!("{IN_RANGE}-{run}"), |party| {
        let mut messages = vec![mine; suite.parties()];
        for peer in party.peers() {
            party.send(peer, "share", Payload::from_bytes(&mine))?;
        }
        for peer in party.peers() {
            messages[peer].copy_from_slice(party.recv(peer, "share", MESSAGE)?.as_bytes());
        }
        Ok(messages)
    })?;
    let share = |message: &[u8; MESSAGE]| {
        let share = message[1..].get(..message[0].into()).ok_or_else(wrong)?;
        Ok::<_, Error>(Payload::from_bytes(share))
    };
    let shares = messages.iter().map(share).collect::<Result<Vec<_>>>()?;
    let value = plan.outputs.first().map(|output| plan.value(output.value)).ok_or_else(wrong)?;
    match suite.reconstruct(value, &shares)?[..] {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(wrong()),
    }
}
