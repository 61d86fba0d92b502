//! One session of a plan on lanes, and what every party saw of it, lane by lane.

use super::device::Enumerating;
use super::draws::{Format, World};
use megrez_engine::{Clients, Options, serve};
use megrez_net::{ClockKind, NetProfile, Network, Payload};
use megrez_plan::{Input, Kind, Output, Plan};
use megrez_prg::Key;
use megrez_protocols::AnySuite;
use megrez_session::{Error, Party, Phase, Sent, Tap};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How an owner shares an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// m = x + r_0 + r_1 to the workers.
    Masked,
    /// x = x_0 + x_1 + x_2, two components to each party.
    Replicated,
    /// m = x − ψ_0 − ψ_1 − ψ_2 to everybody.
    MaskedReplicated,
    /// x = x_0 + x_1, to the workers.
    Additive,
}

/// A protocol on lanes.
pub type Suite = dyn AnySuite<Enumerating>;

/// A protocol by name, and how owners share under it; `None` where there is none such, or not on
/// this ring.
#[cfg(not(test))]
pub fn suite(name: &str, ring: u32) -> Option<(Box<Suite>, Sharing)> {
    use super::word::Tiny;
    use megrez_protocols::aby3::Aby3;
    use megrez_protocols::alkaid::Alkaid;
    use megrez_protocols::alkaid_masked::AlkaidMasked;
    use megrez_protocols::bicoptor::Bicoptor;
    use megrez_protocols::meteor::Meteor;
    use megrez_protocols::mizar::Mizar;
    use megrez_protocols::{aegis, concurrent, falcon};
    use megrez_ring::Word;

    fn on<W: Word>(name: &str) -> Option<(Box<Suite>, Sharing)> {
        let (mizar, rss, mrss) = (Sharing::Masked, Sharing::Replicated, Sharing::MaskedReplicated);
        Some(match name {
            "mizar" => (Box::new(Mizar::<W, Enumerating>::default()), mizar),
            "concurrent" => (Box::new(concurrent::suite::<W, _>()), mizar),
            "aegis" => (Box::new(aegis::suite::<W, _>()), mizar),
            "aby3" => (Box::new(Aby3::<W, _>::default()), rss),
            "falcon" => (Box::new(falcon::suite::<W, _>()), rss),
            "alkaid" => (Box::new(Alkaid::<W, _>::default()), rss),
            "meteor" => (Box::new(Meteor::<W, _>::default()), mrss),
            "alkaid-masked" => (Box::new(AlkaidMasked::<W, _>::default()), mrss),
            "bicoptor" => (Box::new(Bicoptor::<W, Enumerating>::default()), Sharing::Additive),
            _ => return None,
        })
    }
    match ring {
        2 => on::<Tiny<2>>(name),
        3 => on::<Tiny<3>>(name),
        4 => on::<Tiny<4>>(name),
        5 if name == "bicoptor" => Some((Box::new(Bicoptor::<Tiny<5>, _>::default()), Sharing::Additive)),
        _ => None,
    }
}

/// Unit tests look at no case: every protocol on lanes once more would be most of what they
/// compile.
#[cfg(test)]
pub fn suite(_: &str, _: u32) -> Option<(Box<Suite>, Sharing)> {
    None
}

/// One number that a party sees, in every lane.
#[derive(Clone, Debug)]
pub struct Element {
    /// Where it comes from.
    pub name: String,
    /// Its values are in [0, modulus).
    pub modulus: u64,
    /// By lane.
    pub values: Vec<u8>,
}

/// Everything that a session shows.
pub struct Transcript {
    /// By party: messages and data.
    pub views: [Vec<Element>; 3],
    /// What a recipient of the outputs is sent, by sender.
    pub outputs: Vec<(usize, Element)>,
    /// The outputs: by place, then by lane.
    pub results: Vec<Vec<u8>>,
}

/// A session that broke off.
#[derive(Debug, thiserror::Error)]
#[error("the session broke: {0}")]
pub struct Broken(pub String);

/// Numbers of a message: by place, then by lane.
fn read(bytes: &[u8], format: Format, lanes: usize) -> Vec<Vec<u8>> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().next_multiple_of(8), 0);
    let words: Vec<u64> = bytemuck::pod_collect_to_vec(&padded);
    let by_lane = |flat: &[u8], run: usize| -> Vec<Vec<u8>> {
        let per_lane = flat.len() / lanes;
        let place = |q: usize| {
            let at = |lane: usize| flat[(q / run * lanes + lane) * run + q % run];
            (0..lanes).map(at).collect()
        };
        (0..per_lane).map(place).collect()
    };
    match format {
        Format::Ring => by_lane(bytes, 1),
        Format::Bits { run } => {
            let flat: Vec<u8> = (0..8 * bytes.len()).map(|i| bytes[i / 8] >> (i % 8) & 1).collect();
            by_lane(&flat, run)
        }
        Format::Low { width } => {
            let n = 8 * bytes.len() / width as usize;
            let flat: Vec<u8> = (0..n).map(|i| megrez_ring::bits::get_low(&words, i, width) as u8).collect();
            by_lane(&flat[..n - n % lanes], 1)
        }
        Format::Residue { p, run } => {
            let width = p.ilog2() + 1;
            let n = 8 * bytes.len() / width as usize;
            let flat: Vec<u8> = (0..n).map(|i| megrez_ring::bits::get_low(&words, i, width) as u8).collect();
            by_lane(&flat[..n - n % (lanes * run)], run)
        }
        Format::Field { p, run } => {
            let prime = (1..=u32::from(p)).map(megrez_ring::Prime::above).find(|q| q.p() == u64::from(p));
            let prime = prime.expect("a prime of some list");
            // As many whole elements as the words have room for, of all lanes: the padding is below
            // one word.
            let room = words.len() * prime.digits();
            let n = room / (lanes * run) * lanes * run;
            by_lane(&prime.unpack(&words, n), run)
        }
    }
}

fn modulus(format: Format, ring: u32) -> u64 {
    match format {
        Format::Ring => 1 << ring,
        Format::Bits { .. } => 2,
        Format::Low { width } => 1 << width,
        Format::Field { p, .. } | Format::Residue { p, .. } => p.into(),
    }
}

/// The client's side at one party: every input is shared by the enumerated masks.
struct Owner<'a> {
    me: usize,
    world: &'a World,
    sharing: Sharing,
    ring: u32,
    secrets: &'a [Vec<i64>],
    inputs: &'a Mutex<Vec<(usize, Element)>>,
    outputs: &'a Mutex<Vec<(usize, Payload)>>,
    plan: &'a Plan,
}

impl Owner<'_> {
    /// A component of an input that its owner draws, under a key that only its holders are sent.
    fn component(&self, input: &str, c: usize, holders: u8) -> (Key, String) {
        let name = format!("Offline input/{input}: component {c} of the owner");
        let key =
            Key::agree("megrez 2026 assurance", name.as_bytes(), &self.world.assignment.salt.to_le_bytes());
        self.world.name(&key, &name, holders);
        (key, name)
    }
}

impl Clients for Owner<'_> {
    fn mask_key(&mut self, _: &Input, _: Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    fn data(&mut self, input: &Input, _: usize) -> Result<Payload, Error> {
        let (world, lanes, low) = (self.world, self.world.lanes, (1u64 << self.ring) - 1);
        let n = self.plan.value(input.value).shape.elements();
        let mut before = 0;
        for other in self.plan.inputs.iter().take_while(|other| other.name != input.name) {
            before += self.plan.value(other.value).shape.elements() / lanes;
        }
        let x = |e: usize| self.secrets[world.assignment.secret(e % lanes)][before + e / lanes] as u64;
        let read = |name: &str| world.read(name, 1 << self.ring, n, 1);
        let mask_key = |pair: &str| read(&format!("Offline input/{}: input of {pair}", input.name));
        let combined = |sign: i64, masks: &[super::draws::Values]| -> Vec<u8> {
            let at = |e: usize| {
                let sum = masks.iter().map(|mask| i64::from(mask.at(e, 0))).sum::<i64>() * sign;
                (x(e).wrapping_add(sum as u64) & low) as u8
            };
            (0..n).map(at).collect()
        };
        let (words, payload) = match self.sharing {
            Sharing::Masked => {
                if self.me == 2 {
                    return Ok(Payload::zeroed(0));
                }
                let m = combined(1, &["P0 and P2", "P1 and P2"].map(mask_key));
                (m.clone(), Payload::from_bytes(&m))
            }
            Sharing::MaskedReplicated => {
                let m = combined(-1, &["P0 and P2", "P0 and P1", "P1 and P2"].map(mask_key));
                (m.clone(), Payload::from_bytes(&m))
            }
            Sharing::Replicated => {
                let (key_0, zero) = self.component(&input.name, 0, 0b101);
                let (key_2, two) = self.component(&input.name, 2, 0b110);
                if self.me == 2 {
                    let both = [key_2.expose().as_slice(), key_0.expose().as_slice()].concat();
                    return Ok(Payload::from_bytes(&both));
                }
                let rest = combined(-1, &[read(&zero), read(&two)]);
                let key = if self.me == 0 { key_0 } else { key_2 };
                let payload = Payload::from_bytes(&[key.expose().as_slice(), &rest].concat());
                (rest, payload)
            }
            Sharing::Additive => {
                let (_, name) = self.component(&input.name, 0, 0);
                let zero = read(&name);
                let words = match self.me {
                    0 => (0..n).map(|e| zero.at(e, 0)).collect(),
                    1 => combined(-1, &[zero]),
                    _ => return Ok(Payload::zeroed(0)),
                };
                let payload = Payload::from_bytes(&words);
                (words, payload)
            }
        };
        let places = read_places(&words, lanes);
        let mut inputs = self.inputs.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for (q, values) in places.into_iter().enumerate() {
            let name = format!("data of {}[{q}]", input.name);
            inputs.push((self.me, Element { name, modulus: 1 << self.ring, values }));
        }
        Ok(payload)
    }

    fn output(&mut self, _: &Output, share: Payload) -> Result<(), Error> {
        self.outputs.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((self.me, share));
        Ok(())
    }
}

fn read_places(words: &[u8], lanes: usize) -> Vec<Vec<u8>> {
    words.chunks_exact(lanes).map(<[u8]>::to_vec).collect()
}

/// Runs a plan whose inputs are `secrets`, by lane as the world says.
pub fn run(
    suite: &Suite,
    sharing: Sharing,
    plan: &Plan,
    secrets: &[Vec<i64>],
    world: &Arc<World>,
) -> Result<Transcript, Broken> {
    let (ring, lanes) = (suite.ring(), world.lanes);
    let tap = Tap::default();
    let (inputs, outputs) = (Mutex::default(), Mutex::default());
    let networks =
        Network::in_memory(3, &NetProfile::loopback(), ClockKind::Virtual, Duration::from_secs(120));
    let part = |network: Network| {
        let me = network.me();
        let device = Enumerating::new(me, world.clone());
        let mut party = Party::start(network.clone(), device)?;
        party.tap(tap.clone());
        party.probe(world.clone());
        let mut owner = Owner { me, world, sharing, ring, secrets, inputs: &inputs, outputs: &outputs, plan };
        let stored = &mut HashMap::new();
        serve(suite, plan, &mut party, stored, None, &mut owner, Options::default()).map_err(|e| match e {
            Error::Net(e) if e.abort().is_some() => Error::Net(e),
            e => Error::Net(network.fail(&e.to_string())),
        })
    };
    let ended: Vec<Result<_, Error>> = std::thread::scope(|scope| {
        let part = &part;
        let running: Vec<_> = networks.into_iter().map(|n| scope.spawn(move || part(n))).collect();
        running.into_iter().map(|r| r.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    for result in ended {
        result.map_err(|e| Broken(e.to_string()))?;
    }
    let mut views: [Vec<Element>; 3] = Default::default();
    for (party, element) in inputs.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        views[party].push(element);
    }
    let mut sent: Vec<Sent> =
        std::mem::take(&mut *tap.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    // The keys of permutations are public, and one for all lanes.
    sent.retain(|s| s.phase != Phase::Setup && !s.name.ends_with("/permutations"));
    sent.sort_by(|a, b| (a.phase as u8, &a.name, a.from, a.to).cmp(&(b.phase as u8, &b.name, b.from, b.to)));
    for message in sent {
        let Some(format) = world.format(&message.bytes) else {
            return Err(Broken(format!("the message {} was never downloaded", message.name)));
        };
        let format = match format {
            // The dealer's tables stand element by element.
            Format::Bits { .. } if message.name.ends_with("/table") => Format::Bits { run: world.table },
            other => other,
        };
        for (q, values) in read(&message.bytes, format, lanes).into_iter().enumerate() {
            let name = format!("{:?} P{} {}[{q}]", message.phase, message.from, message.name);
            views[message.to].push(Element { name, modulus: modulus(format, ring), values });
        }
    }
    views.iter_mut().for_each(|view| view.sort_by(|a, b| a.name.cmp(&b.name)));
    let shares =
        outputs.into_inner().unwrap_or_else(|poisoned: std::sync::PoisonError<_>| poisoned.into_inner());
    let mut by_party: [Vec<Payload>; 3] = Default::default();
    shares.into_iter().for_each(|(party, share)| by_party[party].push(share));
    let (mut seen, mut results) = (vec![], vec![]);
    for (i, output) in plan.outputs.iter().enumerate() {
        let value = plan.value(output.value);
        let messages: Vec<Payload> = by_party.iter().map(|shares| shares[i].clone()).collect();
        let format = if value.kind == Kind::Bit && sharing != Sharing::Additive {
            Format::Bits { run: 1 }
        } else {
            Format::Ring
        };
        for (party, message) in messages.iter().enumerate() {
            for (q, values) in read(message.as_bytes(), format, lanes).into_iter().enumerate() {
                let name = format!("output {} from P{party}[{q}]", output.name);
                seen.push((party, Element { name, modulus: modulus(format, ring), values }));
            }
        }
        let words = suite.reconstruct(value, &messages).map_err(|e| Broken(e.to_string()))?;
        let words: Vec<u8> = words.iter().map(|&w| w as u8).collect();
        results.extend(read_places(&words, lanes));
    }
    Ok(Transcript { views, outputs: seen, results })
}
