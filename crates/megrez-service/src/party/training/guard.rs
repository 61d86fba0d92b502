//! Whether what lasts has kept to a job's bounds: one bit, which the parties open among themselves.
//! A plan of their own ([`Plan::within_bounds`]): the job says bounds, and no steps.

use super::outbox::Outbox;
use crate::protocols::Suite;
use crate::training::{Job, Work};
use crate::{Error, ErrorKind, Result};
use megrez_device::AnyDevice;
use megrez_engine::{Stored, Turn, agree, run_again};
use megrez_net::Payload;
use megrez_plan::Plan;
use megrez_session::Party;

/// Who learns the bit.
const PARTIES: &str = "(parties)";
/// Bytes of a message: the length of a party's share of the bit, and the share.
const MESSAGE: usize = 32;

/// The plan that says whether all bounds are kept; `None` if there are none.
pub(super) fn plan(job: &Job, work: &Work) -> Result<Option<Plan>> {
    let bounded = job.bounds.iter().map(|bound| {
        let missing = || Error::of(ErrorKind::Internal, format!("no state `{}`", bound.state));
        Ok((bound.state.as_str(), work.state(&bound.state).ok_or_else(missing)?, bound.below))
    });
    let bounded = bounded.collect::<Result<Vec<_>>>()?;
    let plan = || Plan::within_bounds(work.ring(), &bounded, PARTIES);
    (!bounded.is_empty()).then(plan).transpose().map_err(|e| Error::of(ErrorKind::Internal, e))
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
    let messages = party.step(&format!("bounds-{run}"), |party| {
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
