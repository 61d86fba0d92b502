//! What a client does in a session, under the protocol that the session names.

use super::lines::Port;
use crate::Result;
use crate::protocols::{self, no_ring};
use megrez_device::AnyDevice;
use megrez_engine::Options;
use megrez_engine::client::{PartyPort, collect_where, provide};
use megrez_plan::{Input, KEPT, Plan};
use megrez_protocols::{Suite, registry};
use megrez_ring::Word;
use megrez_session::Error as SessionError;

pub(super) fn dispatch<J: registry::Visitor<AnyDevice, Output = Result<T>>, T>(
    protocol: &str,
    plan: &Plan,
    job: J,
) -> Result<T> {
    protocols::dispatch(protocol, plan.ring, job).ok_or_else(|| no_ring(protocol, plan.ring))?
}

/// The client's part of a run, for a suite chosen at run time.
pub(super) struct Exchange<'a> {
    pub(super) ports: Vec<Port<'a>>,
    pub(super) plan: &'a Plan,
    pub(super) options: Options<'a>,
    pub(super) mine: &'a dyn Fn(&Input) -> bool,
    pub(super) inputs: &'a megrez_engine::local::Inputs<'a>,
    pub(super) progress: &'a dyn Fn(u32),
}

impl registry::Visitor<AnyDevice> for Exchange<'_> {
    type Output = Result<Vec<Vec<Vec<u64>>>>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
        let mut ports = self.ports;
        let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        let mut outputs = Vec::new();
        for run in 0..self.options.runs {
            let shared = |input: &Input| (self.mine)(input) && self.options.shares(run, input);
            let words = |input: &Input| ring_words::<S::Word>((self.inputs)(run, input)?);
            provide(&suite, self.plan, &shared, &words, &mut ports)?;
            // Parties run a plan only for a client who receives all of its outputs.
            let mine = collect_where(&suite, self.plan, &|o| o.recipient != KEPT, &mut ports)?;
            outputs.push(mine.iter().map(|o| o.iter().map(|w| w.to_u64()).collect()).collect());
            (self.progress)(run);
        }
        Ok(outputs)
    }
}

/// Sharing inputs without a run, for an upload.
pub(super) struct Share<'a> {
    pub(super) ports: Vec<Port<'a>>,
    pub(super) plan: &'a Plan,
    pub(super) mine: &'a dyn Fn(&Input) -> bool,
    pub(super) inputs: &'a dyn Fn(u32, &Input) -> std::result::Result<Vec<u64>, SessionError>,
}

impl registry::Visitor<AnyDevice> for Share<'_> {
    type Output = Result<()>;

    fn visit<S: Suite<Device = AnyDevice>>(self, suite: S) -> Self::Output {
        let mut ports = self.ports;
        let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        let words = |input: &Input| ring_words::<S::Word>((self.inputs)(0, input)?);
        Ok(provide(&suite, self.plan, self.mine, &words, &mut ports)?)
    }
}

fn ring_words<W: Word>(words: Vec<u64>) -> std::result::Result<Vec<W>, SessionError> {
    Ok(words.into_iter().map(W::from_u64).collect())
}
