//! What a client does in a session, under the protocol that the session names.

use super::lines::Port;
use crate::Result;
use crate::protocols;
use megrez_engine::Options;
use megrez_engine::client::{PartyPort, collect_where, provide};
use megrez_plan::{Input, KEPT, Plan};
use megrez_session::Error as SessionError;

/// The client's part of a run.
pub(super) struct Exchange<'a> {
    pub(super) protocol: &'a str,
    pub(super) ports: Vec<Port<'a>>,
    pub(super) plan: &'a Plan,
    pub(super) options: Options<'a>,
    pub(super) mine: &'a dyn Fn(&Input) -> bool,
    pub(super) inputs: &'a megrez_engine::local::Inputs<'a>,
    pub(super) progress: &'a dyn Fn(u32),
}

impl Exchange<'_> {
    /// Shares inputs and learns outputs, run by run.
    pub(super) fn run(self) -> Result<Vec<Vec<Vec<u64>>>> {
        let suite = &*protocols::suite(self.protocol, self.plan.ring)?;
        let mut ports = self.ports;
        let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        let mut outputs = Vec::new();
        for run in 0..self.options.runs {
            let shared = |input: &Input| (self.mine)(input) && self.options.shares(run, input);
            provide(suite, self.plan, &shared, &|input| (self.inputs)(run, input), &mut ports)?;
            // Parties run a plan only for a client who receives all of its outputs.
            outputs.push(collect_where(suite, self.plan, &|o| o.recipient != KEPT, &mut ports)?);
            (self.progress)(run);
        }
        Ok(outputs)
    }
}

/// Sharing inputs without a run, for an upload.
pub(super) struct Share<'a> {
    pub(super) protocol: &'a str,
    pub(super) ports: Vec<Port<'a>>,
    pub(super) plan: &'a Plan,
    pub(super) mine: &'a dyn Fn(&Input) -> bool,
    pub(super) inputs: &'a dyn Fn(u32, &Input) -> std::result::Result<Vec<u64>, SessionError>,
}

impl Share<'_> {
    /// Shares the inputs.
    pub(super) fn run(self) -> Result<()> {
        let suite = &*protocols::suite(self.protocol, self.plan.ring)?;
        let mut ports = self.ports;
        let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
        Ok(provide(suite, self.plan, self.mine, &|input| (self.inputs)(0, input), &mut ports)?)
    }
}
