//! Named bit planes at one party, and what circuits on shares are written with.

use crate::rss::Rss;
use crate::steps::tree::Span;
use megrez_kernels::{Circuit, Device, DeviceError, Placement, Wire};
use megrez_plan::View;
use megrez_ring::bits;
use megrez_session::{Error, Party};
use std::collections::HashMap;

/// The lanes of a plane: `groups` times `n` values, each group from a word of its own on, as for a
/// value against several thresholds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lanes {
    pub groups: usize,
    pub n: usize,
}

impl From<usize> for Lanes {
    fn from(n: usize) -> Self {
        Lanes { groups: 1, n }
    }
}

impl Lanes {
    /// Words of a plane.
    pub(crate) fn words(self) -> usize {
        self.groups * bits::words(self.n)
    }

    /// How many values there are.
    pub(crate) fn values(self) -> usize {
        self.groups * self.n
    }

    /// Joins `planes` planes of every group, made group by group.
    pub(crate) fn join<D: Device>(
        self,
        device: &D,
        groups: &[D::Buf<u64>],
        planes: usize,
    ) -> Result<D::Buf<u64>, DeviceError> {
        let words = bits::words(self.n);
        let place = |(i, source)| {
            let strides = vec![self.words() as isize, 1];
            Placement { source, target: View { shape: [planes, words].into(), strides, offset: i * words } }
        };
        let parts: Vec<_> = groups.iter().enumerate().map(place).collect();
        device.place(&parts, planes * self.words())
    }
}

/// A bit of the addition u + v.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Signal {
    /// Bit i of u.
    U(usize),
    /// Bit i of v.
    V(usize),
    /// Whether the span makes a carry by itself.
    Generate(Span),
    /// Whether the span hands a carry on.
    Propagate(Span),
}

/// What a party knows of a signal. Components are numbered as in [`crate::rss`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Plane {
    /// A component of the signal.
    Share(Signal, usize),
    /// The masked signal m, known to all.
    Masked(Signal),
    /// A component of its mask r.
    Mask(Signal, usize),
    /// A component of the product of two masks.
    Pair(Signal, Signal, usize),
    /// A component of the product of the mask of a leaf's propagate signal and of u's and v's masks
    /// at a position.
    Deep(usize, usize, usize),
    /// The added and the subtracted summand of a sharing of zero.
    Zero(usize, bool),
}

/// Planes by name, in buffers of many. A name that is not there is a plane of zeros: masks and
/// shares have components that are zero by construction.
pub(crate) struct Sheet<D: Device> {
    buffers: Vec<D::Buf<u64>>,
    places: HashMap<Plane, (usize, usize)>,
}

impl<D: Device> Sheet<D> {
    pub(crate) fn new() -> Self {
        Sheet { buffers: vec![], places: HashMap::new() }
    }

    /// Adds a buffer of planes in this order.
    pub(crate) fn add(&mut self, buffer: D::Buf<u64>, names: impl IntoIterator<Item = Plane>) {
        let number = self.buffers.len();
        names.into_iter().enumerate().for_each(|(plane, name)| {
            self.places.insert(name, (number, plane));
        });
        self.buffers.push(buffer);
    }

    /// Adds both components of planes at party `me`; `names` gives those of a component, in order.
    pub(crate) fn add_rss(
        &mut self,
        me: usize,
        planes: Rss<D::Buf<u64>>,
        names: impl Fn(usize) -> Vec<Plane>,
    ) {
        self.add(planes.own, names(me));
        self.add(planes.next, names(crate::rss::after(me)));
    }

    pub(crate) fn has(&self, name: Plane) -> bool {
        self.places.contains_key(&name)
    }

    pub(crate) fn wire(&self, circuit: &mut Circuit, name: Plane) -> Wire {
        self.places.get(&name).map_or(Circuit::ZERO, |&(buffer, plane)| circuit.input(buffer, plane))
    }

    pub(crate) fn run(&self, device: &D, circuit: &Circuit, words: usize) -> Result<Vec<D::Buf<u64>>, Error> {
        let inputs: Vec<&D::Buf<u64>> = self.buffers.iter().collect();
        Ok(device.run_circuit(&circuit.compile(), &inputs, words)?)
    }
}

/// Both components of a bit, as wires.
#[derive(Clone, Copy)]
pub(crate) struct ReplicatedBit {
    pub own: Wire,
    pub next: Wire,
}

impl ReplicatedBit {
    pub(crate) fn of(me: usize, mut component: impl FnMut(usize) -> Wire) -> Self {
        ReplicatedBit { own: component(me), next: component(crate::rss::after(me)) }
    }

    pub(crate) fn xor(self, circuit: &mut Circuit, other: ReplicatedBit) -> ReplicatedBit {
        ReplicatedBit { own: circuit.xor(self.own, other.own), next: circuit.xor(self.next, other.next) }
    }

    /// This party's additive share of the product: (x_i ⊕ x_{i+1})·y_i ⊕ x_i·y_{i+1}.
    pub(crate) fn and(self, circuit: &mut Circuit, other: ReplicatedBit) -> Wire {
        let both = circuit.xor(self.own, self.next);
        let (first, second) = (circuit.and(both, other.own), circuit.and(self.own, other.next));
        circuit.xor(first, second)
    }
}

/// Sends `planes` planes, densely.
pub(crate) fn send<D: Device>(
    party: &mut Party<D>,
    to: usize,
    label: &str,
    buffer: &D::Buf<u64>,
    planes: usize,
    lanes: impl Into<Lanes>,
) -> Result<(), Error> {
    let lanes = lanes.into();
    let packed = party.device().pack_planes(buffer, planes * lanes.groups, lanes.n)?;
    party.send_bits(to, label, packed, planes * lanes.values())
}

/// Receives what [`send`] sends.
pub(crate) fn recv<D: Device>(
    party: &mut Party<D>,
    from: usize,
    label: &str,
    planes: usize,
    lanes: impl Into<Lanes>,
) -> Result<D::Buf<u64>, Error> {
    let lanes = lanes.into();
    let packed = party.recv_bits(from, label, planes * lanes.values())?;
    Ok(party.device().unpack_planes(&packed, planes * lanes.groups, lanes.n)?)
}

/// Additive shares of planes, masked already, become components: P_i sends to P_{i−1}.
pub(crate) fn reshare<D: Device>(
    party: &mut Party<D>,
    label: &str,
    share: D::Buf<u64>,
    planes: usize,
    lanes: impl Into<Lanes>,
) -> Result<Rss<D::Buf<u64>>, Error> {
    let (me, lanes) = (party.me(), lanes.into());
    send(party, crate::rss::before(me), label, &share, planes, lanes)?;
    let next = recv(party, crate::rss::after(me), label, planes, lanes)?;
    Ok(Rss { own: share, next })
}

/// Adds this party's sharing of zero for `planes` planes.
pub(crate) fn add_zero<D: Device>(
    party: &mut Party<D>,
    sheet: &mut Sheet<D>,
    label: &str,
    planes: usize,
    lanes: impl Into<Lanes>,
) -> Result<(), Error> {
    let streams = crate::rss::zero::<u64, D>(party, label, planes * lanes.into().words())?;
    for (plus, stream) in [true, false].into_iter().zip(streams) {
        sheet.add(stream, (0..planes).map(|k| Plane::Zero(k, plus)));
    }
    Ok(())
}

/// A wire plus the k-th sharing of zero.
pub(crate) fn masked<D: Device>(sheet: &Sheet<D>, circuit: &mut Circuit, k: usize, wire: Wire) -> Wire {
    let zeros = [sheet.wire(circuit, Plane::Zero(k, true)), sheet.wire(circuit, Plane::Zero(k, false))];
    circuit.sum(&[wire, zeros[0], zeros[1]])
}
