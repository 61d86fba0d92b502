//! Local operations on one component of a linear sharing: every suite applies them to each
//! component that a party holds.

use crate::{Call, Unsupported};
use megrez_kernels::{Bits, Device, DeviceError, Placement, Tensor};
use megrez_plan::{BitMatrices, ConvGeometry, Kind, Op, PublicMatrix, Value, View};
use megrez_ring::{Shape, Word};

/// [outer, axis, inner] of a shape around one of its dimensions.
fn around(shape: &Shape, axis: usize) -> [usize; 3] {
    let dims = shape.dims();
    [dims[..axis].iter().product(), dims[axis], dims[axis + 1..].iter().product()]
}

/// A linear primitive on one component; `public` says that this component takes the public summand.
pub(crate) fn linear<W: Word, D: Device>(
    device: &D,
    op: &Op,
    inputs: &[&Tensor<W, D>],
    output: &Value,
    public: bool,
) -> Result<Tensor<W, D>, DeviceError> {
    let n = output.shape.elements();
    let x = inputs[0];
    let buf = match op {
        Op::Combine { coefficients, constant } => {
            let terms: Vec<_> =
                coefficients.iter().zip(inputs).map(|(&c, x)| (W::from_i64(c), &x.buf)).collect();
            device.combine(&terms, if public { W::from_i64(*constant) } else { W::ZERO }, n)?
        }
        Op::View(view) if view.is_contiguous() && n == x.elements() => x.buf.clone(),
        Op::View(view) => device.view(&x.buf, view)?,
        Op::Concat { axis } => {
            let strides: Vec<isize> = output.shape.strides().iter().map(|&s| s as isize).collect();
            let mut at = 0;
            let parts: Vec<_> = inputs
                .iter()
                .map(|x| {
                    let offset = at * strides[*axis] as usize;
                    at += x.shape.dims()[*axis];
                    let target = View { shape: x.shape.clone(), strides: strides.clone(), offset };
                    Placement { source: &x.buf, target }
                })
                .collect();
            device.place(&parts, n)?
        }
        Op::Pad { before, .. } => {
            let strides = output.shape.strides();
            let target = View {
                shape: x.shape.clone(),
                strides: strides.iter().map(|&s| s as isize).collect(),
                offset: before.iter().zip(&strides).map(|(b, s)| b * s).sum(),
            };
            device.place(&[Placement { source: &x.buf, target }], n)?
        }
        Op::Sum { axis } => device.sum(&x.buf, around(&x.shape, *axis))?,
        Op::Gather { axis, indices } => device.gather(&x.buf, around(&x.shape, *axis), indices)?,
        Op::Rescale { .. } => x.buf.clone(),
        Op::TimesPublic(public) => match public.matrix() {
            Some(matrix) => device.times_public(&x.buf, matrix)?,
            None => return Err(not_bound(device, public)),
        },
        other => unreachable!("{other:?} is not linear"),
    };
    Ok(Tensor::new(output.shape.clone(), buf))
}

/// Why a step has no public weights: a plan that came as bytes was not bound to them.
fn not_bound<D: Device>(device: &D, public: &PublicMatrix) -> DeviceError {
    let what = format!("the public weights {} were not looked for before the plan ran", public.digest());
    DeviceError { device: device.describe(), what }
}

/// A public tensor.
pub(crate) fn constant<W: Word, D: Device>(
    device: &D,
    shape: &Shape,
    words: &[i64],
) -> Result<Tensor<W, D>, DeviceError> {
    let words = words.iter().map(|&w| W::from_i64(w)).collect();
    Ok(Tensor::new(shape.clone(), device.upload(words)?))
}

/// A step that is the same map on every component of a share of bits, but for a negation, which one
/// component takes.
pub(crate) struct BitLinear<'a> {
    op: &'a Op,
    shape: &'a Shape,
}

impl<'a> BitLinear<'a> {
    pub(crate) fn of(call: Call<'a>) -> Option<Self> {
        // Along the first dimension bits lie together.
        let answers = match call.op {
            Op::View(_) | Op::Xor | Op::Not | Op::Concat { axis: 0 } | Op::Gather { axis: 0, .. } => {
                call.output.kind == Kind::Bit
            }
            _ => false,
        };
        answers.then_some(BitLinear { op: call.op, shape: call.shape() })
    }

    /// On one component; `public` says that it takes the negation.
    pub(crate) fn apply<D: Device>(
        &self,
        device: &D,
        operands: &[&Bits<D>],
        public: bool,
    ) -> Result<Bits<D>, DeviceError> {
        let buf = match self.op {
            Op::View(view) => device.view_bits(&operands[0].buf, view)?,
            Op::Concat { .. } => {
                let parts: Vec<_> = operands.iter().map(|x| (&x.buf, x.shape.elements())).collect();
                device.join_bits(&parts)?
            }
            Op::Gather { indices, .. } => {
                let inner = self.shape.elements() / indices.len().max(1);
                let row = |&i: &usize| View { offset: i * inner, ..View::whole([inner].into()) };
                let rows = indices.iter().map(|i| device.view_bits(&operands[0].buf, &row(i)));
                let rows = rows.collect::<Result<Vec<_>, _>>()?;
                device.join_bits(&rows.iter().map(|row| (row, inner)).collect::<Vec<_>>())?
            }
            op => {
                let parts: Vec<_> = operands.iter().map(|x| &x.buf).collect();
                device.xor(&parts, *op == Op::Not && public, self.shape.elements())?
            }
        };
        Ok(Bits::new(self.shape.clone(), buf))
    }
}

/// Why a suite has no step for a call.
pub(crate) fn refuse(suite: &str, call: Call<'_>) -> Unsupported {
    Unsupported(match call.op {
        Op::Truncate { .. } | Op::Relu(_) if call.of_sum() => {
            format!("{suite} truncates what is shared: share the sum before")
        }
        op if op.is_linear() && call.of_bits() => {
            format!("{suite} rearranges bits by views and along the first dimension only")
        }
        Op::Mul | Op::And if call.inputs.len() > 2 => two_at_a_time(suite),
        Op::Maximum(_) => format!("{suite} has no maximum of all pairs: use --pool tournament"),
        op if is_table(op) => no_tables(suite),
        Op::Noise { .. } => format!("{suite} makes no noise: use a protocol that does, such as mizar"),
        Op::Select { truncate: 1.. } | Op::SelectSum { .. } => selects_apart(suite),
        Op::MulTruncated { .. } => multiplies_apart(suite),
        op if is_of_bit_matrices(op) => no_bit_matrices(suite),
        other => format!("{suite} has no {other:?}"),
    })
}

/// Whether a step is of matrices of bits, or of what their results become.
pub(crate) fn is_of_bit_matrices(op: &Op) -> bool {
    match op {
        Op::Additive(step) => **step == Op::BitToRing,
        op => matches!(op, Op::LowBit | Op::BitMatMul | Op::BitPolynomials { .. }),
    }
}

/// Why a suite that has none of these refuses them.
pub(crate) fn no_bit_matrices(suite: &str) -> String {
    format!(
        "{suite} multiplies no matrices of bits, and opens bits as numbers at once: the plan is another's, compile it for this protocol"
    )
}

/// A table or tables of pairs, by whomever they are dealt.
pub(crate) fn is_table(op: &Op) -> bool {
    match op {
        Op::Offloaded(step) | Op::Additive(step) => is_table(step),
        op => matches!(op, Op::Lookup(_) | Op::Winner(_)),
    }
}

/// Why a suite has no step for a table: without the table, which may be long.
pub(crate) fn no_tables(suite: &str) -> String {
    format!(
        "{suite} looks up no tables dealt so: use --activations minimax, or a protocol that does, such as mizar"
    )
}

/// Why a suite that truncates or adds up what it selects in a step of its own refuses to do both in
/// one.
pub(crate) fn selects_apart(suite: &str) -> String {
    format!(
        "{suite} selects, and truncates or adds up after that: the plan is another's, compile it for this protocol"
    )
}

/// Why a suite that truncates factors in steps of their own refuses to do both in one.
pub(crate) fn multiplies_apart(suite: &str) -> String {
    format!(
        "{suite} truncates, and multiplies after that: the plan is another's, compile it for this protocol"
    )
}

/// The sums over groups of neighbours along the first dimension of a value whose slices there have
/// `inner` elements.
pub(crate) fn group_sums<W: Word, D: Device>(
    device: &D,
    x: &D::Buf<W>,
    groups: &[usize],
    inner: usize,
) -> Result<D::Buf<W>, DeviceError> {
    if let Some(&size) = groups.first()
        && groups.iter().all(|&n| n == size)
    {
        return device.sum(x, [groups.len(), size, inner]);
    }
    let mut first = 0;
    let sums = groups.iter().map(|&n| {
        let group = View { offset: first * inner, ..View::whole([n, inner].into()) };
        first += n;
        device.sum(&device.view(x, &group)?, [1, n, inner])
    });
    let sums = sums.collect::<Result<Vec<_>, _>>()?;
    let place =
        |(i, source)| Placement { source, target: View { offset: i * inner, ..View::whole([inner].into()) } };
    device.place(&sums.iter().enumerate().map(place).collect::<Vec<_>>(), groups.len() * inner)
}

/// Why a suite that multiplies two values at a time refuses more.
pub(crate) fn two_at_a_time(suite: &str) -> String {
    format!("{suite} multiplies two values at a time: multiply one after the other, or use meteor")
}

/// A product of two tensors: element by element, of matrices, or a convolution.
pub(crate) enum Product<'a> {
    Elements,
    Matrices,
    Convolution(&'a ConvGeometry),
}

impl<'a> Product<'a> {
    pub(crate) fn of(op: &'a Op) -> Option<Self> {
        match op {
            Op::Mul => Some(Product::Elements),
            Op::MatMul => Some(Product::Matrices),
            Op::Conv(geometry) => Some(Product::Convolution(geometry)),
            _ => None,
        }
    }

    /// The product of two operands of which one is public.
    pub(crate) fn with_public(call: Call<'a>) -> Option<Self> {
        if call.has_public() && call.inputs.len() == 2 { Product::of(call.op) } else { None }
    }

    /// The product of two secrets.
    pub(crate) fn of_secrets(call: Call<'a>) -> Option<Self> {
        if !call.has_public() && call.inputs.len() == 2 { Product::of(call.op) } else { None }
    }

    /// x · y.
    pub(crate) fn apply<W: Word, D: Device>(
        &self,
        device: &D,
        x: &Tensor<W, D>,
        y: &Tensor<W, D>,
        output: &Shape,
    ) -> Result<Tensor<W, D>, DeviceError> {
        let buf = match self {
            Product::Elements => device.products(&[(W::ONE, &x.buf, &y.buf)], &[])?,
            Product::Matrices => {
                let (dims, rank) = (x.shape.dims(), x.shape.rank());
                let batch = dims[..rank - 2].iter().product();
                let sizes = [dims[rank - 2], dims[rank - 1], y.shape.dims()[rank - 1]];
                device.matmul(&x.buf, &y.buf, batch, sizes)?
            }
            Product::Convolution(geometry) => device.conv(&x.buf, &x.shape, &y.buf, &y.shape, geometry)?,
        };
        Ok(Tensor::new(output.clone(), buf))
    }

    /// B(m_x, ψ_y) + B(ψ_x, m_y) + public·B(m_x, m_y), as two products: the public one goes with a
    /// sum of the smaller operand.
    pub(crate) fn cross<W: Word, D: Device>(
        &self,
        device: &D,
        (m_x, psi_x): (&Tensor<W, D>, &Tensor<W, D>),
        (m_y, psi_y): (&Tensor<W, D>, &Tensor<W, D>),
        public: W,
        output: &Shape,
    ) -> Result<[Tensor<W, D>; 2], DeviceError> {
        let apply = |x: &Tensor<W, D>, y: &Tensor<W, D>| self.apply(device, x, y, output);
        let with = |m: &Tensor<W, D>, psi: &Tensor<W, D>| -> Result<Tensor<W, D>, DeviceError> {
            let sum = device.combine(&[(public, &m.buf), (W::ONE, &psi.buf)], W::ZERO, m.elements())?;
            Ok(Tensor::new(m.shape.clone(), sum))
        };
        Ok(if public == W::ZERO {
            [apply(m_x, psi_y)?, apply(psi_x, m_y)?]
        } else if m_x.elements() <= m_y.elements() {
            [apply(m_x, psi_y)?, apply(&with(m_x, psi_x)?, m_y)?]
        } else {
            [apply(m_x, &with(m_y, psi_y)?)?, apply(psi_x, m_y)?]
        })
    }

    /// B(x_0 + x_1, y_0 + y_1).
    pub(crate) fn of_sums<W: Word, D: Device>(
        &self,
        device: &D,
        [x, more_x]: [&Tensor<W, D>; 2],
        [y, more_y]: [&Tensor<W, D>; 2],
        output: &Shape,
    ) -> Result<Tensor<W, D>, DeviceError> {
        let apply = |x: &Tensor<W, D>, y: &Tensor<W, D>| self.apply(device, x, y, output);
        let sum = |x: &Tensor<W, D>, y: &Tensor<W, D>| sum(device, x, y);
        if !is_rarely_used(x, y, output) {
            apply(&sum(x, more_x)?, &sum(y, more_y)?)
        } else if x.elements() <= y.elements() {
            let x = sum(x, more_x)?;
            sum(&apply(&x, y)?, &apply(&x, more_y)?)
        } else {
            let y = sum(y, more_y)?;
            sum(&apply(x, &y)?, &apply(more_x, &y)?)
        }
    }
}

/// A product of bits over F_2: bit by bit, or of matrices.
#[derive(Clone, Copy)]
pub(crate) enum BitProduct {
    Bits,
    Matrices(BitMatrices),
}

impl BitProduct {
    /// That of two operands.
    pub(crate) fn of_two(call: Call<'_>) -> Option<Self> {
        match (call.op, call.inputs) {
            (Op::And, [_, _]) => Some(BitProduct::Bits),
            (Op::BitMatMul, [x, y]) => BitMatrices::of(&x.shape, &y.shape).map(BitProduct::Matrices),
            _ => None,
        }
    }

    /// B(x, y).
    pub(crate) fn apply<D: Device>(
        self,
        device: &D,
        x: &D::Buf<u64>,
        y: &D::Buf<u64>,
    ) -> Result<D::Buf<u64>, DeviceError> {
        match self {
            BitProduct::Bits => device.and(x, y),
            BitProduct::Matrices(sizes) => device.bit_product(x, y, sizes),
        }
    }
}

/// The lowest bits of one component.
pub(crate) fn low_bits<W: Word, D: Device>(device: &D, x: &Tensor<W, D>) -> Result<Bits<D>, DeviceError> {
    Ok(Bits::new(x.shape.clone(), device.pack_low(&x.buf, 1)?))
}

/// Whether each element of the larger operand of a product is used a few times only, so that
/// another product is cheaper than a sum with it.
pub(crate) fn is_rarely_used<W: Word, D: Device>(x: &Tensor<W, D>, y: &Tensor<W, D>, output: &Shape) -> bool {
    output.elements() < x.elements().max(y.elements()) / 4
}

/// x + y.
pub(crate) fn sum<W: Word, D: Device>(
    device: &D,
    x: &Tensor<W, D>,
    y: &Tensor<W, D>,
) -> Result<Tensor<W, D>, DeviceError> {
    let sum = device.combine(&[(W::ONE, &x.buf), (W::ONE, &y.buf)], W::ZERO, x.elements())?;
    Ok(Tensor::new(x.shape.clone(), sum))
}
