//! A suite that runs a case, and what a party sees of it.

use super::cases::Case;
use super::cosets::Space;
use super::draws::{Assignment, Draw, Kind, Mutation, World};
use super::session::{Broken, Element, Sharing, Suite, Transcript, run, suite};
use megrez_plan::Plan;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A suite that runs a case.
pub(super) struct Bench<'a> {
    pub case: &'a Case,
    pub suite: Box<Suite>,
    pub sharing: Sharing,
    pub mutation: Option<&'a Mutation>,
    pub known: BTreeMap<String, Draw>,
}

impl<'a> Bench<'a> {
    /// `None` where the protocol does not have the case.
    pub fn new(case: &'a Case, protocol: &str) -> Option<Self> {
        let (suite, sharing) = suite(protocol, case.ring)?;
        let plan = case.plan(64, protocol)?;
        megrez_engine::check(&*suite, &plan).ok()?;
        Some(Bench { case, suite, sharing, mutation: None, known: BTreeMap::new() })
    }

    /// On all secrets.
    pub fn run(&self, assignment: Assignment) -> Result<(Arc<World>, Transcript), Broken> {
        self.run_on(&self.case.secrets, assignment)
    }

    pub fn run_on(
        &self,
        secrets: &[Vec<i64>],
        assignment: Assignment,
    ) -> Result<(Arc<World>, Transcript), Broken> {
        let world = World::new(assignment, self.mutation.cloned(), self.known.clone(), self.case.table());
        let world = Arc::new(world);
        let plan: Plan = self.case.plan(world.lanes, "").expect("it was planned before");
        let transcript = run(&*self.suite, self.sharing, &plan, secrets, &world)?;
        Ok((world, transcript))
    }

    /// The first output that is not what it should be.
    pub fn wrong(&self, secrets: &[Vec<i64>], world: &World, seen: &Transcript) -> Option<String> {
        for lane in 0..world.lanes {
            let secret = &secrets[world.assignment.secret(lane)];
            let expected = (self.case.expect)(secret);
            if expected.len() != seen.results.len() {
                return Some(format!("{} outputs, expected {}", seen.results.len(), expected.len()));
            }
            for (q, (expected, result)) in expected.iter().zip(&seen.results).enumerate() {
                let got = result[lane];
                if !expected.allows(got, self.case.ring) {
                    return Some(format!("inputs {secret:?}: output {q} is {got}, expected {expected:?}"));
                }
            }
        }
        None
    }
}

/// A party's numbers, by number and then by lane.
pub(super) fn view(world: &World, seen: &Transcript, party: usize, recipient: bool) -> Vec<Element> {
    let mut view = seen.views[party].clone();
    if recipient {
        view.extend(seen.outputs.iter().map(|(_, element)| element.clone()));
    }
    if let Some(Mutation { draw, kind: Kind::SameAs(_) }) = &world.mutation {
        // The party holds what it should not.
        if let Some(of) = world.draws().get(draw)
            && of.holders >> party & 1 == 1
        {
            let values = world.read(draw, of.domain, world.lanes * of.count, 1);
            for q in 0..of.count {
                let values = (0..world.lanes).map(|lane| values.at(q * world.lanes + lane, 0)).collect();
                view.push(Element { name: format!("draw {draw}[{q}]"), modulus: 0, values });
            }
        }
    }
    view
}

pub(super) fn lane(view: &[Element], lane: usize) -> Vec<u8> {
    view.iter().map(|element| element.values[lane]).collect()
}

/// What a variable adds, lane by lane; `None` if it changes what no pad may change.
pub(super) type Shift = Option<Vec<Vec<u8>>>;

pub(super) fn shift(
    space: &Space,
    moduli: &[u64],
    base: &[Element],
    bumped: &[Element],
    lanes: usize,
) -> Shift {
    if base.len() != bumped.len() {
        return None;
    }
    (0..lanes).map(|l| space.difference(moduli, &lane(bumped, l), &lane(base, l))).collect()
}
