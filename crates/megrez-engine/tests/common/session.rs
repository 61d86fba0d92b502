//! Sessions in this process with hand-made parties and clients, so that a test sees everything that
//! a party or an owner sees, and can make any of them misbehave.

use megrez_device::AnyDevice;
use megrez_engine::client::{PartyPort, collect, provide};
use megrez_engine::{Clients, Options, Prepared, serve};
use megrez_net::{ClockKind, NetProfile, Network, Payload};
use megrez_plan::{Input, Kind, Output, Plan};
use megrez_prg::Key;
use megrez_protocols::AnySuite;
use megrez_protocols::aby3::Aby3;
use megrez_protocols::alkaid::Alkaid;
use megrez_protocols::mizar::Mizar;
use megrez_ring::Word;
use megrez_session::{Error, Name, Party, Phase, Probe, Sent, Tap};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The client's end of its link to one party, with what went over it.
pub struct Port {
    mask_keys: Receiver<Vec<u8>>,
    data: Sender<Payload>,
    outputs: Receiver<Payload>,
    pub seen: Seen,
}

/// What went over a client's link.
#[derive(Default)]
pub struct Seen {
    pub mask_keys: Vec<Vec<u8>>,
    pub data: Vec<Payload>,
    pub outputs: Vec<Payload>,
}

/// The party's end.
pub struct Ends {
    mask_keys: Sender<Vec<u8>>,
    data: Receiver<Payload>,
    outputs: Sender<Payload>,
}

pub fn link() -> (Port, Ends) {
    let ((keys_in, mask_keys), (data, data_out), (outputs_in, outputs)) = (channel(), channel(), channel());
    let port = Port { mask_keys, data, outputs, seen: Seen::default() };
    (port, Ends { mask_keys: keys_in, data: data_out, outputs: outputs_in })
}

fn gone<E>(_: E) -> Error {
    Error::Refused("the other side of the run went away".into())
}

impl PartyPort for Port {
    fn mask_key(&mut self) -> Result<Vec<u8>, Error> {
        let mask_key = self.mask_keys.recv().map_err(gone)?;
        self.seen.mask_keys.push(mask_key.clone());
        Ok(mask_key)
    }
    fn send(&mut self, share: Payload) -> Result<(), Error> {
        self.seen.data.push(share.clone());
        self.data.send(share).map_err(gone)
    }
    fn output(&mut self, _: usize) -> Result<Payload, Error> {
        let share = self.outputs.recv().map_err(gone)?;
        self.seen.outputs.push(share.clone());
        Ok(share)
    }
}

impl Clients for Ends {
    fn mask_key(&mut self, _: &Input, mask_key: Vec<u8>) -> Result<(), Error> {
        self.mask_keys.send(mask_key).map_err(gone)
    }
    fn data(&mut self, _: &Input, _: usize) -> Result<Payload, Error> {
        self.data.recv().map_err(gone)
    }
    fn output(&mut self, _: &Output, share: Payload) -> Result<(), Error> {
        self.outputs.send(share).map_err(gone)
    }
}

/// One party's part, given its handle and its link to the client.
pub type Part<'a, T> = Box<dyn FnOnce(&mut Party<AnyDevice>, &mut Ends) -> Result<T, Error> + Send + 'a>;

/// Runs three parties in threads and the client here. A party that fails ends the session, as every
/// real one does.
pub fn session<T: Send, R>(
    timeout: Duration,
    parts: [Part<'_, T>; 3],
    client: impl FnOnce(&mut [Port; 3]) -> R,
) -> ([Result<T, Error>; 3], R) {
    session_in((&NetProfile::loopback(), ClockKind::Virtual), timeout, parts, client)
}

/// As [`session`], over a network of this kind.
pub fn session_in<T: Send, R>(
    (net, clock): (&NetProfile, ClockKind),
    timeout: Duration,
    parts: [Part<'_, T>; 3],
    client: impl FnOnce(&mut [Port; 3]) -> R,
) -> ([Result<T, Error>; 3], R) {
    let networks = Network::in_memory(3, net, clock, timeout);
    std::thread::scope(|scope| {
        let mut ports = vec![];
        let mut running = vec![];
        for (network, part) in networks.into_iter().zip(parts) {
            let (port, mut ends) = link();
            ports.push(port);
            running.push(scope.spawn(move || {
                // `ends` outlives the failure's report: the client must not notice first.
                let run = |ends| part(&mut Party::start(network.clone(), AnyDevice::default())?, ends);
                run(&mut ends).map_err(|e| match e {
                    Error::Net(e) if e.abort().is_some() => Error::Net(e),
                    e => Error::Net(network.fail(&e.to_string())),
                })
            }));
        }
        let mut ports: [Port; 3] = ports.try_into().ok().expect("three parties");
        let result = client(&mut ports);
        drop(ports);
        let results: Vec<_> = running.into_iter().map(|r| r.join().expect("no party panics")).collect();
        (results.try_into().ok().expect("three parties"), result)
    })
}

/// Three equal parts.
pub fn each<'a, T>(
    part: impl Fn(&mut Party<AnyDevice>, &mut Ends) -> Result<T, Error> + Clone + Send + 'a,
) -> [Part<'a, T>; 3] {
    [0; 3].map(|_| Box::new(part.clone()) as Part<'a, T>)
}

/// The client's part in one run: gives every input, learns every output.
pub fn give_and_take<W: Word>(
    plan: &Plan,
    inputs: &HashMap<String, Vec<W>>,
    ports: &mut [Port; 3],
) -> Result<Vec<Vec<W>>, Error> {
    give_and_take_under(&Mizar::<W, AnyDevice>::default(), plan, inputs, ports)
}

/// As [`give_and_take`], under any suite.
pub fn give_and_take_under<W: Word>(
    suite: &dyn AnySuite<AnyDevice>,
    plan: &Plan,
    inputs: &HashMap<String, Vec<W>>,
    ports: &mut [Port; 3],
) -> Result<Vec<Vec<W>>, Error> {
    let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
    let words = |input: &Input| Ok(inputs[&input.name].iter().map(|word| word.to_u64()).collect());
    provide(suite, plan, &|_| true, &words, &mut ports)?;
    let outputs = collect(suite, plan, "owner", &mut ports)?;
    Ok(outputs.into_iter().map(|words| words.into_iter().map(W::from_u64).collect()).collect())
}

/// Everything that three parties and the owner of all inputs saw of one run on the ring of bytes.
pub struct Transcript {
    pub sent: Vec<Sent>,
    pub seen: [Seen; 3],
    pub outputs: Vec<Vec<u8>>,
}

/// One run of a plan on the ring of bytes, under `mizar`.
pub fn transcript(plan: &Plan, inputs: &HashMap<String, Vec<u8>>) -> Transcript {
    transcript_under(&Mizar::<u8, AnyDevice>::default(), plan, inputs)
}

/// The keys of the sharings of zero under which outputs leave, by party, peer and output.
#[derive(Default)]
struct Zeros(Mutex<HashMap<(usize, usize, String), Key>>);

impl Probe for Zeros {
    fn stream(&self, name: &Name, key: Key) -> Key {
        if name.phase == Phase::Output {
            let [me, peer] = name.parties;
            self.0.lock().unwrap().insert((me, peer, name.place.clone()), key.clone());
        }
        key
    }
}

impl Zeros {
    /// The share that party `me` holds, from what it sent to the recipient of a value.
    fn held(&self, me: usize, output: &Output, kind: Kind, sent: &Payload) -> Payload {
        let keys = self.0.lock().unwrap();
        let place = format!("output/{}", output.name);
        let zero = |peer: usize| {
            let words = keys.get(&(me, peer % 3, place.clone()))?.stream().words(sent.len().div_ceil(8));
            Some(words.iter().flat_map(|w| w.to_le_bytes()).take(sent.len()).collect::<Vec<u8>>())
        };
        let (minus, plus): (fn(u8, u8) -> u8, fn(u8, u8) -> u8) = match kind {
            Kind::Bit => (|a, b| a ^ b, |a, b| a ^ b),
            _ => (u8::wrapping_sub, u8::wrapping_add),
        };
        // Among three, P_i adds a stream with its successor and subtracts one with its predecessor;
        // of two, worker 0 adds.
        let held = match (zero(me + 1), zero(me + 2)) {
            (Some(after), Some(before)) => zip(&zip(sent.as_bytes(), &after, minus), &before, plus),
            (Some(z), None) if me == 0 => zip(sent.as_bytes(), &z, minus),
            (None, Some(z)) => zip(sent.as_bytes(), &z, plus),
            _ => sent.as_bytes().to_vec(),
        };
        Payload::from_bytes(&held)
    }
}

/// As [`transcript`], under a protocol on replicated values.
pub fn transcript_of(protocol: &str, plan: &Plan, inputs: &HashMap<String, Vec<u8>>) -> Transcript {
    match protocol {
        "aby3" => transcript_under(&Aby3::<u8, AnyDevice>::default(), plan, inputs),
        "alkaid" => transcript_under(&Alkaid::<u8, AnyDevice>::default(), plan, inputs),
        other => panic!("`{other}` is none of the protocols on replicated values"),
    }
}

/// As [`transcript`], under any suite. What a party sent for an output is given as the share that
/// it held, without its sharing of zero.
pub fn transcript_under(
    suite: &dyn AnySuite<AnyDevice>,
    plan: &Plan,
    inputs: &HashMap<String, Vec<u8>>,
) -> Transcript {
    let (tap, zeros) = (Tap::default(), Arc::new(Zeros::default()));
    let part = |party: &mut Party<AnyDevice>, ends: &mut Ends| {
        party.tap(tap.clone());
        party.probe(zeros.clone());
        serve(suite, plan, party, &mut HashMap::new(), None, ends, Options::default())
    };
    let (results, (outputs, mut seen)) = session(Duration::from_secs(60), each(part), |ports| {
        let outputs = give_and_take_under(suite, plan, inputs, ports);
        (outputs, [0, 1, 2].map(|j| std::mem::take(&mut ports[j].seen)))
    });
    results.into_iter().for_each(|r| drop(r.unwrap()));
    for (j, seen) in seen.iter_mut().enumerate() {
        for (output, sent) in plan.outputs.iter().zip(&mut seen.outputs) {
            *sent = zeros.held(j, output, plan.value(output.value).kind, sent);
        }
    }
    let sent = std::mem::take(&mut *tap.lock().unwrap());
    Transcript { sent, seen, outputs: outputs.unwrap() }
}

impl Transcript {
    /// The bytes of a message.
    pub fn message(&self, phase: Phase, from: usize, to: usize, name: &str) -> &[u8] {
        let mut found =
            self.sent.iter().filter(|s| s.phase == phase && (s.from, s.to) == (from, to) && s.name == name);
        let message = found.next().unwrap_or_else(|| {
            let names: Vec<_> = self.sent.iter().map(|s| (s.phase, s.from, s.to, &s.name)).collect();
            panic!("no message {phase:?} {name} {from} → {to} in {names:?}")
        });
        assert!(found.next().is_none(), "two messages {name}");
        &message.bytes
    }

    /// A message of bits, one to a byte.
    pub fn bits(&self, phase: Phase, from: usize, to: usize, name: &str, n: usize) -> Vec<u8> {
        unpack(self.message(phase, from, to, name), 1, n)
    }

    /// r_j of an input, as the input-mask key gives it.
    pub fn input_mask(&self, j: usize, input: usize, n: usize) -> Vec<u8> {
        let key: [u8; 32] = self.seen[j].mask_keys[input].as_slice().try_into().expect("a key");
        let words = Key::from_bytes(key).stream().words(n.div_ceil(8));
        words.iter().flat_map(|w| w.to_le_bytes()).take(n).collect()
    }

    /// m of an input.
    pub fn masked_input(&self, input: usize) -> Vec<u8> {
        assert_eq!(self.seen[0].data[input].as_bytes(), self.seen[1].data[input].as_bytes());
        assert!(self.seen[2].data[input].is_empty(), "the dealer learns no masked value");
        self.seen[0].data[input].as_bytes().to_vec()
    }

    /// The ring output's masked value and both shares of its mask, from what the workers sent to
    /// the recipient and the shares that they opened to each other under `name`.
    pub fn opened(&self, name: &str) -> Opened {
        let shares = [self.message(Phase::Online, 0, 1, name), self.message(Phase::Online, 1, 0, name)];
        let m = zip(shares[0], shares[1], u8::wrapping_add);
        let outputs = [0, 1].map(|j: usize| self.seen[j].outputs[0].as_bytes());
        let masks =
            [zip(&m, outputs[0], u8::wrapping_sub), outputs[1].iter().map(|x| x.wrapping_neg()).collect()];
        Opened { shares: shares.map(<[u8]>::to_vec), m, masks }
    }
}

/// A value that the workers opened.
pub struct Opened {
    pub shares: [Vec<u8>; 2],
    pub m: Vec<u8>,
    pub masks: [Vec<u8>; 2],
}

pub fn zip(a: &[u8], b: &[u8], f: impl Fn(u8, u8) -> u8) -> Vec<u8> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

/// `n` values of `width` bits from dense bytes.
pub fn unpack(bytes: &[u8], width: u32, n: usize) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len().div_ceil(8) * 8, 0);
    let words: Vec<u64> = padded.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    (0..n).map(|i| megrez_ring::bits::get_low(&words, i, width) as u8).collect()
}

/// `n` field elements from the words of the wire.
pub fn unpack_field(bytes: &[u8], prime: megrez_ring::Prime, n: usize) -> Vec<u8> {
    let words: Vec<u64> = bytes.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
    prime.unpack(&words, n)
}

/// The offline phase of a plan at this party.
pub fn prepare(
    suite: &dyn AnySuite<AnyDevice>,
    plan: &Plan,
    party: &mut Party<AnyDevice>,
) -> Result<Prepared, Error> {
    megrez_engine::offline(suite, plan, party, 0, &|_| None, &mut vec![])
}
