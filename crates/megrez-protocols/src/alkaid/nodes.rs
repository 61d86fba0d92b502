//! The nodes of a tree on masked bits ([`super::adder`]): products of two or three without a
//! message, and the opening of a level.

use super::schedule::Schedule;
use crate::rss::{Rss, after, before};
use crate::steps::planes::{Lanes, Plane, ReplicatedBit, Sheet, Signal, add_zero, masked, recv, send};
use crate::steps::tree::{Node, Span, Tree};
use megrez_kernels::{Circuit, Device, Wire};
use megrez_session::{Error, Party};

/// Both components of a signal's mask: leaves' propagate bits are sums of u's and v's, digits' have
/// masks of their own.
pub(super) fn mask<D: Device>(
    sheet: &Sheet<D>,
    circuit: &mut Circuit,
    me: usize,
    signal: Signal,
) -> ReplicatedBit {
    ReplicatedBit::of(me, |c| match signal {
        Signal::Propagate(span) if span.is_leaf() && !sheet.has(Plane::Mask(signal, c)) => {
            let u = sheet.wire(circuit, Plane::Mask(Signal::U(span.low), c));
            let v = sheet.wire(circuit, Plane::Mask(Signal::V(span.low), c));
            circuit.xor(u, v)
        }
        signal => sheet.wire(circuit, Plane::Mask(signal, c)),
    })
}

/// m of a signal: leaves' propagate bits are sums of u's and v's, digits' are opened.
fn opened<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, signal: Signal) -> Wire {
    match signal {
        Signal::Propagate(span) if span.is_leaf() && !sheet.has(Plane::Masked(signal)) => {
            let u = sheet.wire(circuit, Plane::Masked(Signal::U(span.low)));
            let v = sheet.wire(circuit, Plane::Masked(Signal::V(span.low)));
            circuit.xor(u, v)
        }
        signal => sheet.wire(circuit, Plane::Masked(signal)),
    }
}

/// The products of a plan's masked bits as replicated ones; no messages.
pub(super) struct Local<'a, D: Device> {
    pub sheet: &'a Sheet<D>,
    pub me: usize,
}

impl<D: Device> Local<'_, D> {
    /// Whether the generate bit of a span is a product of u's bit and v's: that of a leaf which is
    /// no digit.
    fn is_product(&self, span: Span) -> bool {
        span.is_leaf() && !self.sheet.has(Plane::Masked(Signal::Generate(span)))
    }

    /// A masked bit; a leaf's generate bit is a product.
    pub fn bit(&self, circuit: &mut Circuit, signal: Signal) -> ReplicatedBit {
        if let Signal::Generate(span) = signal
            && self.is_product(span)
        {
            return self.pair(circuit, Signal::U(span.low), Signal::V(span.low));
        }
        let m = opened(self.sheet, circuit, signal);
        let r = mask(self.sheet, circuit, self.me, signal);
        self.with_public(circuit, r, m)
    }

    /// Adds a public bit: it enters component 0.
    fn with_public(&self, circuit: &mut Circuit, r: ReplicatedBit, m: Wire) -> ReplicatedBit {
        match self.me {
            0 => ReplicatedBit { own: circuit.xor(r.own, m), ..r },
            2 => ReplicatedBit { next: circuit.xor(r.next, m), ..r },
            _ => r,
        }
    }

    /// a·b = m_a·m_b ⊕ m_a·r_b ⊕ m_b·r_a ⊕ r_a·r_b.
    fn pair(&self, circuit: &mut Circuit, a: Signal, b: Signal) -> ReplicatedBit {
        let (m_a, m_b) = (opened(self.sheet, circuit, a), opened(self.sheet, circuit, b));
        let (r_a, r_b) = (mask(self.sheet, circuit, self.me, a), mask(self.sheet, circuit, self.me, b));
        let both = ReplicatedBit::of(self.me, |c| self.sheet.wire(circuit, Plane::Pair(a, b, c)));
        let component = |circuit: &mut Circuit, r_a, r_b, both| {
            let products = [circuit.and(m_a, r_b), circuit.and(m_b, r_a)];
            circuit.sum(&[products[0], products[1], both])
        };
        let r = ReplicatedBit {
            own: component(circuit, r_a.own, r_b.own, both.own),
            next: component(circuit, r_a.next, r_b.next, both.next),
        };
        let m = circuit.and(m_a, m_b);
        self.with_public(circuit, r, m)
    }

    /// p·u·v for the propagate bit of one leaf and the inputs of another.
    fn deep(&self, circuit: &mut Circuit, p_at: usize, at: usize) -> ReplicatedBit {
        let (p, u, v) = (Signal::Propagate(Span::leaf(p_at)), Signal::U(at), Signal::V(at));
        let [m_p, m_u, m_v] = [p, u, v].map(|s| opened(self.sheet, circuit, s));
        let [m_pu, m_pv, m_uv] = [circuit.and(m_p, m_u), circuit.and(m_p, m_v), circuit.and(m_u, m_v)];
        let r = ReplicatedBit::of(self.me, |c| {
            let r_p = {
                let u = self.sheet.wire(circuit, Plane::Mask(Signal::U(p_at), c));
                let v = self.sheet.wire(circuit, Plane::Mask(Signal::V(p_at), c));
                circuit.xor(u, v)
            };
            let names = [
                (m_pu, Plane::Mask(v, c)),
                (m_pv, Plane::Mask(u, c)),
                (m_p, Plane::Pair(u, v, c)),
                (m_u, Plane::Pair(p, v, c)),
                (m_v, Plane::Pair(p, u, c)),
            ];
            let mut sum = circuit.and(m_uv, r_p);
            for (m, name) in names {
                let wire = self.sheet.wire(circuit, name);
                let product = circuit.and(m, wire);
                sum = circuit.xor(sum, product);
            }
            let all = self.sheet.wire(circuit, Plane::Deep(p_at, at, c));
            circuit.xor(sum, all)
        });
        let m = circuit.and(m_pu, m_v);
        self.with_public(circuit, r, m)
    }

    /// This party's additive share of a node's signal.
    pub fn additive(&self, circuit: &mut Circuit, node: &Node, signal: Signal) -> Wire {
        let parts = &node.parts;
        let p = |i: usize| Signal::Propagate(parts[i]);
        let g = |i: usize| Signal::Generate(parts[i]);
        let upper = match parts.len() {
            2 => self.bit(circuit, p(0)),
            _ => self.pair(circuit, p(0), p(1)),
        };
        if signal == Signal::Propagate(node.span) {
            let lower = match parts.len() {
                4 => self.pair(circuit, p(2), p(3)),
                k => self.bit(circuit, p(k - 1)),
            };
            return upper.and(circuit, lower);
        }
        let g1 = self.bit(circuit, g(0));
        let g2 = self.bit(circuit, g(1));
        if parts.len() == 2 {
            let product = upper.and(circuit, g2);
            return circuit.xor(g1.own, product);
        }
        let p1 = self.bit(circuit, p(0));
        let mut lower = self.bit(circuit, g(2));
        if parts.len() == 4 {
            let product = match self.is_product(parts[3]) {
                true => self.deep(circuit, parts[2].low, parts[3].low),
                false => self.pair(circuit, p(2), g(3)),
            };
            lower = lower.xor(circuit, product);
        }
        let products = [p1.and(circuit, g2), upper.and(circuit, lower)];
        circuit.sum(&[g1.own, products[0], products[1]])
    }
}

/// Sends additive shares of planes to both others.
pub(super) fn send_opening<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: &D::Buf<u64>,
    planes: usize,
    lanes: Lanes,
) -> Result<(), Error> {
    [before(party.me()), after(party.me())]
        .into_iter()
        .try_for_each(|peer| send(party, peer, label, share, planes, lanes))
}

/// What the planes are, with the shares of both others.
pub(super) fn receive_opening<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: &D::Buf<u64>,
    planes: usize,
    lanes: Lanes,
) -> Result<D::Buf<u64>, Error> {
    let [a, b] = [before(party.me()), after(party.me())].map(|peer| recv(party, peer, label, planes, lanes));
    Ok(party.device().xor(&[share, &a?, &b?], false, planes * lanes.words() * 64)?)
}

/// Computes a level: opens what other nodes read, and reshares the results if they are wanted.
pub(super) fn level<D: Device>(
    party: &mut Party<D>,
    tree: &Tree,
    schedule: &Schedule,
    depth: usize,
    lanes: Lanes,
    sheet: &mut Sheet<D>,
    with_results: bool,
) -> Result<(), Error> {
    let me = party.me();
    let nodes = &tree.levels[depth];
    let (opened, results) = &schedule.levels[depth];
    let results = if with_results { results.as_slice() } else { &[] };
    if opened.is_empty() && results.is_empty() {
        return Ok(());
    }
    let label = format!("level{depth}");
    let node = |signal: Signal| {
        let (Signal::Generate(span) | Signal::Propagate(span)) = signal else {
            unreachable!("a level makes no inputs")
        };
        nodes.iter().find(|node| node.span == span).expect("a node of the level")
    };
    add_zero(party, sheet, &label, opened.len() + results.len(), lanes)?;
    let mut circuit = Circuit::default();
    let local = Local { sheet, me };
    let mut share = |k: usize, signal: Signal| {
        let share = local.additive(&mut circuit, node(signal), signal);
        let share = masked(sheet, &mut circuit, k, share);
        match k < opened.len() {
            true => {
                let r = mask(sheet, &mut circuit, me, signal);
                circuit.xor(share, r.own)
            }
            false => share,
        }
    };
    let shares: Vec<Wire> =
        opened.iter().chain(results).enumerate().map(|(k, &signal)| share(k, signal)).collect();
    let results_shares = shares[opened.len()..].to_vec();
    circuit.output(shares[..opened.len()].to_vec());
    circuit.output(results_shares);
    let mut made = sheet.run(party.device(), &circuit, lanes.words())?;
    let (result, share) = (made.pop().expect("two outputs"), made.pop().expect("two outputs"));
    // Everything is sent before anybody waits.
    let open_label = format!("{label}/open");
    if !opened.is_empty() {
        send_opening(party, &open_label, &share, opened.len(), lanes)?;
    }
    if !results.is_empty() {
        send(party, before(me), &label, &result, results.len(), lanes)?;
    }
    if !opened.is_empty() {
        let m = receive_opening(party, &open_label, &share, opened.len(), lanes)?;
        sheet.add(m, opened.iter().map(|&s| Plane::Masked(s)));
    }
    if !results.is_empty() {
        let next = recv(party, after(me), &label, results.len(), lanes)?;
        sheet.add_rss(me, Rss { own: result, next }, |c| {
            results.iter().map(|&s| Plane::Share(s, c)).collect()
        });
    }
    Ok(())
}
