//! Whether a party's view tells secrets apart.
//!
//! For one party: its own draws are fixed, block by block; what it does not know is enumerated but
//! for pads ([`super::cosets`]); the multiset of what it sees must be the same for all secrets that
//! it may not tell apart.

use super::bench::{Bench, shift, view};
use super::cases::{Case, Expected, some};
use super::compare::{compare, one_group};
use super::cosets::Space;
use super::draws::{Assignment, Draw, Mutation, Source, Variable};
use super::session::{Broken, Element};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What a party is beside a party.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Nothing else.
    Party,
    /// The owner of the first input.
    Owner,
    /// The recipient of the outputs.
    Recipient,
}

/// How much is enumerated.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most lanes of one block.
    pub block: usize,
    /// About how many lanes all blocks have together.
    pub lanes: usize,
    /// Lanes on which pads are looked for.
    pub probe: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { block: 1 << 20, lanes: 1 << 14, probe: 512 }
    }
}

/// What came of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The views of all secrets are the same.
    Same,
    /// They are not: which numbers show it.
    Leak(String),
    /// An output is wrong.
    Wrong(String),
    /// The session broke off.
    Broken(String),
    /// Too much to enumerate: so many lanes.
    TooLarge(String),
    /// What pads add depends on what is enumerated, the cosets differ, and there is too much to
    /// enumerate those pads.
    Unclear(String),
}

impl From<Broken> for Verdict {
    fn from(broken: Broken) -> Self {
        Verdict::Broken(broken.0)
    }
}

/// The examination of one party.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// In which role.
    pub role: Role,
    /// Executions that were looked at.
    pub lanes: usize,
    /// Secrets that were compared, of those of the case.
    pub secrets: usize,
    /// Values that the party does not know and that were enumerated.
    pub enumerated: usize,
    /// Values that only shift the view.
    pub pads: usize,
    /// Whether the party's own draws were enumerated as well, instead of fixed to a few values.
    pub whole: bool,
    /// What came of it.
    pub verdict: Verdict,
}

/// Looks at one case under one protocol; `None` where the protocol does not have it.
pub fn examine(
    case: &Case,
    protocol: &str,
    parties: &[usize],
    roles: &[Role],
    mutation: Option<&Mutation>,
    limits: Limits,
) -> Option<Vec<(usize, Finding)>> {
    let bench = Bench::new(case, protocol)?;
    Some(Examine { case, parties, roles, mutation, limits }.all(bench))
}

/// The draws of a case under a protocol.
pub fn draws(case: &Case, protocol: &str) -> Option<Result<BTreeMap<String, Draw>, Broken>> {
    let assignment = Assignment::random(64, case.secrets.len(), 1);
    Some(Bench::new(case, protocol)?.run(assignment).map(|(world, _)| world.draws()))
}

struct Examine<'a> {
    case: &'a Case,
    parties: &'a [usize],
    roles: &'a [Role],
    mutation: Option<&'a Mutation>,
    limits: Limits,
}

impl Examine<'_> {
    fn all(&self, plain: Bench<'_>) -> Vec<(usize, Finding)> {
        let found = |verdict: Verdict| {
            let all = self.parties.iter().flat_map(|&party| {
                let verdict = verdict.clone();
                self.roles.iter().map(move |&role| {
                    let verdict = verdict.clone();
                    (
                        party,
                        Finding { role, lanes: 0, secrets: 0, enumerated: 0, pads: 0, whole: false, verdict },
                    )
                })
            });
            all.collect()
        };
        let secrets = self.case.secrets.len();
        let (draws, seen) = match plain.run(Assignment::random(self.limits.probe, secrets, 1)) {
            Ok((world, seen)) => {
                if let Some(wrong) = plain.wrong(&self.case.secrets, &world, &seen) {
                    return found(Verdict::Wrong(wrong));
                }
                (world.draws(), seen)
            }
            Err(broken) => return found(broken.into()),
        };
        // Moving all lanes by some number moves what is seen, and changes nothing else: no lane
        // depends on another.
        let moved = Assignment { offset: 37, ..Assignment::random(self.limits.probe, secrets, 1) };
        match plain.run(moved) {
            Err(broken) => return found(broken.into()),
            Ok((_, moved)) => {
                for (a, b) in seen.views.iter().flatten().zip(moved.views.iter().flatten()) {
                    if (0..self.limits.probe).any(|l| a.values[(l + 37) % self.limits.probe] != b.values[l]) {
                        return found(Verdict::Broken(format!("{} mixes lanes", a.name)));
                    }
                }
            }
        }
        let bench = Bench { known: draws.clone(), mutation: self.mutation, ..plain };
        let mut findings = vec![];
        for &party in self.parties {
            let all = match self.pads(&bench, &draws, party) {
                Ok(pads) => pads,
                Err(broken) => {
                    let verdict = Verdict::from(broken);
                    for &role in self.roles {
                        let verdict = verdict.clone();
                        findings.push((
                            party,
                            Finding {
                                role,
                                lanes: 0,
                                secrets: 0,
                                enumerated: 0,
                                pads: 0,
                                whole: false,
                                verdict,
                            },
                        ));
                    }
                    continue;
                }
            };
            for &role in self.roles {
                let mut finding = self.one(&bench, &draws, party, role, &all, &HashSet::new());
                // Different cosets of different groups may cover the same: what makes the groups
                // differ is enumerated.
                if let Ok((Finding { verdict: Verdict::Leak(_), .. }, uneven)) = &finding
                    && !uneven.is_empty()
                {
                    let again = self.one(&bench, &draws, party, role, &all, uneven);
                    finding = match (again, finding) {
                        (Ok((again, _)), Ok((mut first, uneven)))
                            if matches!(again.verdict, Verdict::TooLarge(_)) =>
                        {
                            if let Verdict::Leak(what) = first.verdict {
                                first.verdict = Verdict::Unclear(what);
                            }
                            Ok((first, uneven))
                        }
                        (again, _) => again,
                    };
                }
                let finding = finding.map(|(finding, _)| finding);
                findings.push((
                    party,
                    finding.unwrap_or_else(|broken| Finding {
                        role,
                        lanes: 0,
                        secrets: 0,
                        enumerated: 0,
                        pads: 0,
                        whole: false,
                        verdict: broken.into(),
                    }),
                ));
            }
        }
        findings
    }
}

/// What was found about a party's variables.
struct Pads {
    /// They shift the view.
    pads: Vec<Variable>,
    /// They do nothing to it.
    idle: HashSet<Variable>,
}

impl Examine<'_> {
    fn unknown(&self, draws: &BTreeMap<String, Draw>, party: usize, role: Role) -> Vec<(Variable, u64)> {
        let own = match role {
            Role::Owner => format!("Offline input/{}:", self.case.inputs[0].0),
            _ => "nobody's".into(),
        };
        let mut unknown: Vec<(Variable, u64)> = draws
            .iter()
            .filter(|(name, draw)| {
                draw.holders >> party & 1 == 0 && draw.domain > 1 && !name.starts_with(&own)
            })
            .flat_map(|(name, draw)| (0..draw.count).map(|q| ((name.clone(), q), draw.domain)))
            .collect();
        unknown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        unknown
    }

    fn pads(&self, bench: &Bench<'_>, draws: &BTreeMap<String, Draw>, party: usize) -> Result<Pads, Broken> {
        let probe = self.limits.probe;
        let start = Assignment::random(probe, self.case.secrets.len(), 2);
        let seen = |assignment: &Assignment| -> Result<Vec<Element>, Broken> {
            let (world, seen) = bench.run(assignment.clone())?;
            Ok(view(&world, &seen, party, true))
        };
        let bump = |assignment: &Assignment, variable: &Variable| Assignment {
            bumps: HashMap::from([(variable.clone(), 1)]),
            ..assignment.clone()
        };
        let base = seen(&start)?;
        let moduli: Vec<u64> = base.iter().map(|element| element.modulus).collect();
        let space = Space::new(&moduli);
        let mut found = Pads { pads: vec![], idle: HashSet::new() };
        for (variable, _) in self.unknown(draws, party, Role::Party) {
            let bumped = seen(&bump(&start, &variable))?;
            let Some(first) = shift(&space, &moduli, &base, &bumped, probe) else { continue };
            let idle = first.iter().flatten().all(|&x| x == 0);
            // What it adds must not depend on the pads, itself among them.
            let mut pad = true;
            for again in 1..=2 {
                let mut other = start.clone();
                let redrawn = found.pads.iter().chain([&variable]);
                other.redrawn = redrawn.map(|v| (v.clone(), again)).collect();
                let base = seen(&other)?;
                let bumped = seen(&bump(&other, &variable))?;
                pad &= shift(&space, &moduli, &base, &bumped, probe).as_ref() == Some(&first);
                if !pad {
                    break;
                }
            }
            if pad && idle {
                found.idle.insert(variable.clone());
            }
            if pad {
                found.pads.push(variable);
            }
        }
        Ok(found)
    }

    fn one(
        &self,
        bench: &Bench<'_>,
        draws: &BTreeMap<String, Draw>,
        party: usize,
        role: Role,
        all: &Pads,
        enumerated: &HashSet<Variable>,
    ) -> Result<(Finding, HashSet<Variable>), Broken> {
        let unknown = self.unknown(draws, party, role);
        let is_pad: HashSet<&Variable> = all.pads.iter().filter(|v| !enumerated.contains(*v)).collect();
        let hidden: HashSet<&Variable> = unknown.iter().map(|(v, _)| v).collect();
        let pads: Vec<&Variable> = all
            .pads
            .iter()
            .filter(|v| is_pad.contains(v) && hidden.contains(v) && !all.idle.contains(*v))
            .collect();
        let digits: Vec<&(Variable, u64)> = unknown.iter().filter(|(v, _)| !is_pad.contains(v)).collect();
        let mut finding = Finding {
            role,
            lanes: 0,
            secrets: 0,
            enumerated: digits.len(),
            pads: pads.len(),
            whole: false,
            verdict: Verdict::Same,
        };
        let unknowns =
            digits.iter().try_fold(1usize, |product, (_, domain)| product.checked_mul(*domain as usize));
        let Some(unknowns) = unknowns.filter(|u| u.saturating_mul(2) <= self.limits.block) else {
            let size: f64 = digits.iter().map(|(_, d)| (*d as f64).log2()).sum();
            finding.verdict = Verdict::TooLarge(format!("2^{size:.1} executions for each secret"));
            return Ok((finding, HashSet::new()));
        };
        // As many secrets as there is room for, of the largest groups first.
        let mut chosen: Vec<Vec<i64>> = vec![];
        let mut room = self.limits.block / unknowns;
        for group in self.groups(&self.case.secrets, role) {
            let part = if group.len() <= room { group } else { some(group, room) };
            room = if part.len() < 2 && !chosen.is_empty() { 0 } else { room - part.len() };
            chosen.extend(part.iter().map(|&i| self.case.secrets[i].clone()));
            if room < 2 {
                break;
            }
        }
        let secrets = chosen.len();
        finding.secrets = secrets;
        // Own draws: block by block.
        let mut sources = HashMap::new();
        let mut stride = 1;
        for (variable, domain) in &digits {
            sources.insert(variable.clone(), Source::Digit { stride });
            stride *= *domain as usize;
        }
        let mut own = 0f64;
        for (name, draw) in draws {
            for q in 0..draw.count {
                let variable = (name.clone(), q);
                if !hidden.contains(&variable) {
                    own += (draw.domain as f64).log2();
                    sources.insert(variable, Source::Block);
                }
            }
        }
        finding.whole = own == 0.0;
        let blocks = (self.limits.lanes / (unknowns * secrets)).clamp(1, 64);
        let groups = self.groups(&chosen, role);
        let assignment = Assignment {
            total: blocks * unknowns * secrets,
            unknowns,
            secrets,
            random_secret: false,
            sources,
            ..Assignment::random(1, secrets, 3)
        };
        finding.lanes = assignment.total;
        let recipient = role == Role::Recipient;
        let (world, seen) = bench.run_on(&chosen, assignment.clone())?;
        if self.mutation.is_none()
            && let Some(wrong) = bench.wrong(&chosen, &world, &seen)
        {
            finding.verdict = Verdict::Wrong(wrong);
            return Ok((finding, HashSet::new()));
        }
        let base = view(&world, &seen, party, recipient);
        let moduli: Vec<u64> = base.iter().map(|element| element.modulus).collect();
        let space = Space::new(&moduli);
        let mut rows: Vec<Vec<Vec<u8>>> = vec![];
        let mut uneven = HashSet::new();
        for &pad in &pads {
            let bumped = Assignment { bumps: HashMap::from([(pad.clone(), 1)]), ..assignment.clone() };
            let (world, seen) = bench.run_on(&chosen, bumped)?;
            match shift(&space, &moduli, &base, &view(&world, &seen, party, recipient), assignment.total) {
                Some(row) => {
                    rows.push(row);
                }
                None => return Err(Broken(format!("the draw {} of {} is no pad", pad.1, pad.0))),
            }
        }
        let everything: Vec<usize> = (0..base.len()).collect();
        let compare = |columns: &[usize]| compare(&base, &moduli, &rows, columns, &assignment, &groups);
        if let Some((a, b)) = compare(&everything) {
            let (columns, what) = self.explain(&chosen, &base, everything, compare, [a, b]);
            finding.verdict = Verdict::Leak(what);
            // One group in all lanes: then cosets differ only where distributions do.
            let one_group = one_group(&moduli, &rows, &columns, assignment.total);
            for (pad, row) in pads.iter().zip(&rows) {
                if !one_group && columns.iter().any(|&c| row.iter().any(|of_lane| of_lane[c] != row[0][c])) {
                    uneven.insert((*pad).clone());
                }
            }
        }
        Ok((finding, uneven))
    }

    /// Secrets that the party may not tell apart, the most first.
    fn groups(&self, secrets: &[Vec<i64>], role: Role) -> Vec<Vec<usize>> {
        let key = |secret: &Vec<i64>| match role {
            Role::Party => vec![],
            Role::Owner => secret[..self.case.inputs[0].1].to_vec(),
            Role::Recipient => (self.case.expect)(secret).iter().flat_map(Expected::key).collect(),
        };
        let mut groups: BTreeMap<Vec<i64>, Vec<usize>> = BTreeMap::new();
        for (i, secret) in secrets.iter().enumerate() {
            groups.entry(key(secret)).or_default().push(i);
        }
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
        groups
    }

    /// The fewest numbers that still tell the secrets apart, and in words.
    fn explain(
        &self,
        secrets: &[Vec<i64>],
        base: &[Element],
        mut columns: Vec<usize>,
        compare: impl Fn(&[usize]) -> Option<(usize, usize)>,
        mut pair: [usize; 2],
    ) -> (Vec<usize>, String) {
        for c in 0..base.len() {
            let fewer: Vec<usize> = columns.iter().copied().filter(|&k| k != c).collect();
            if let Some((a, b)) = compare(&fewer) {
                (columns, pair) = (fewer, [a, b]);
            }
        }
        let names: Vec<&str> = columns.iter().map(|&c| base[c].name.as_str()).collect();
        let [a, b] = pair.map(|s| &secrets[s]);
        let what = format!("{a:?} and {b:?} differ in {}", names.join("; "));
        (columns, what)
    }
}
