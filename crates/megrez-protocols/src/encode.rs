//! Material and masks as bytes, so that the offline phase can be made ahead and kept. Reading
//! treats the bytes as untrusted: sizes are checked before anything is allocated.

use megrez_kernels::{Bits, Device, DeviceError, Elem, Tensor};
use megrez_prg::Key;
use megrez_ring::{Shape, bits};

/// Stored bytes that cannot be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The bytes are cut off or are something else.
    #[error("the stored bytes are damaged or of another version: make the material again")]
    Damaged,
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<EncodeError> for megrez_session::Error {
    fn from(e: EncodeError) -> Self {
        megrez_session::Error::Refused(e.to_string())
    }
}

/// What can be written to bytes and read back on device `D`.
pub trait Encode<D: Device>: Sized {
    /// Appends the bytes of this value.
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// Takes a value off the front of the bytes.
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError>;
}

/// Takes `n` bytes off the front.
pub(crate) fn take<'a>(input: &mut &'a [u8], n: usize) -> Result<&'a [u8], EncodeError> {
    let (head, rest) = input.split_at_checked(n).ok_or(EncodeError::Damaged)?;
    *input = rest;
    Ok(head)
}

fn read_usize(input: &mut &[u8]) -> Result<usize, EncodeError> {
    let bytes = take(input, 8)?.try_into().expect("eight bytes");
    usize::try_from(u64::from_le_bytes(bytes)).map_err(|_| EncodeError::Damaged)
}

fn write_buf<T: Elem, D: Device>(device: &D, buf: &D::Buf<T>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let host = device.download(buf.clone())?;
    out.extend_from_slice(&(host.len() as u64).to_le_bytes());
    out.extend_from_slice(bytemuck::cast_slice(&host));
    Ok(())
}

fn read_buf<T: Elem, D: Device>(device: &D, input: &mut &[u8]) -> Result<(usize, D::Buf<T>), EncodeError> {
    let n = read_usize(input)?;
    let bytes = take(input, n.checked_mul(size_of::<T>()).ok_or(EncodeError::Damaged)?)?;
    Ok((n, device.upload(bytemuck::pod_collect_to_vec(bytes))?))
}

fn write_shape(shape: &Shape, out: &mut Vec<u8>) {
    out.push(shape.rank() as u8);
    shape.dims().iter().for_each(|&d| out.extend_from_slice(&(d as u64).to_le_bytes()));
}

fn read_shape(input: &mut &[u8]) -> Result<Shape, EncodeError> {
    let rank = take(input, 1)?[0];
    let dims: Vec<usize> = (0..rank).map(|_| read_usize(input)).collect::<Result<_, _>>()?;
    Shape::new(dims).checked().map_err(|_| EncodeError::Damaged)
}

impl<T: Elem, D: Device> Encode<D> for Tensor<T, D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_shape(&self.shape, out);
        write_buf::<T, D>(device, &self.buf, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        let shape = read_shape(input)?;
        let (n, buf) = read_buf::<T, D>(device, input)?;
        if n != shape.elements() {
            return Err(EncodeError::Damaged);
        }
        Ok(Tensor { shape, buf })
    }
}

impl<D: Device> Encode<D> for Bits<D> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_shape(&self.shape, out);
        write_buf::<u64, D>(device, &self.buf, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        let shape = read_shape(input)?;
        let (n, buf) = read_buf::<u64, D>(device, input)?;
        if n != bits::words(shape.elements()) {
            return Err(EncodeError::Damaged);
        }
        Ok(Bits { shape, buf })
    }
}

impl<D: Device> Encode<D> for Key {
    fn write(&self, _: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(self.expose());
        Ok(())
    }
    fn read(_: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Key::from_bytes(take(input, 32)?.try_into().expect("32 bytes")))
    }
}

impl<D: Device> Encode<D> for Vec<u8> {
    fn write(&self, _: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        out.extend_from_slice(self);
        Ok(())
    }
    fn read(_: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        let n = read_usize(input)?;
        Ok(take(input, n)?.to_vec())
    }
}

impl<D: Device> Encode<D> for Shape {
    fn write(&self, _: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_shape(self, out);
        Ok(())
    }
    fn read(_: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        read_shape(input)
    }
}

impl<D: Device> Encode<D> for () {
    fn write(&self, _: &D, _: &mut Vec<u8>) -> Result<(), EncodeError> {
        Ok(())
    }
    fn read(_: &D, _: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(())
    }
}

impl<D: Device, A: Encode<D>> Encode<D> for Option<A> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(u8::from(self.is_some()));
        self.as_ref().map_or(Ok(()), |value| value.write(device, out))
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        match take(input, 1)?[0] {
            0 => Ok(None),
            1 => Ok(Some(A::read(device, input)?)),
            _ => Err(EncodeError::Damaged),
        }
    }
}

impl<D: Device, A: Encode<D>> Encode<D> for Box<A> {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        A::write(self, device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok(Box::new(A::read(device, input)?))
    }
}

impl<D: Device, A: Encode<D>, B: Encode<D>> Encode<D> for (A, B) {
    fn write(&self, device: &D, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.0.write(device, out)?;
        self.1.write(device, out)
    }
    fn read(device: &D, input: &mut &[u8]) -> Result<Self, EncodeError> {
        Ok((A::read(device, input)?, B::read(device, input)?))
    }
}

/// Implements [`Encode`] for a struct from its fields, in order.
macro_rules! encode_struct {
    ($name:ident[$w:ident, $d:ident] => $($field:ident),+) => {
        impl<$w: megrez_ring::Word, $d: megrez_kernels::Device> $crate::Encode<$d> for $name<$w, $d> {
            fn write(&self, device: &$d, out: &mut Vec<u8>) -> Result<(), $crate::EncodeError> {
                $($crate::Encode::<$d>::write(&self.$field, device, out)?;)+
                Ok(())
            }
            fn read(device: &$d, input: &mut &[u8]) -> Result<Self, $crate::EncodeError> {
                Ok($name { $($field: $crate::Encode::<$d>::read(device, input)?),+ })
            }
        }
    };
}

/// Implements [`Encode`] for an enum of one-field variants: a tag byte, then the field.
macro_rules! encode_enum {
    ($name:ident[$($g:ident: $bound:path),+] on $d:ident => $($tag:literal = $variant:ident),+) => {
        impl<$($g: $bound),+> $crate::Encode<$d> for $name<$($g),+> {
            fn write(&self, device: &$d, out: &mut Vec<u8>) -> Result<(), $crate::EncodeError> {
                match self {
                    $($name::$variant(inner) => {
                        out.push($tag);
                        $crate::Encode::<$d>::write(inner, device, out)
                    })+
                }
            }
            fn read(device: &$d, input: &mut &[u8]) -> Result<Self, $crate::EncodeError> {
                match $crate::encode::take(input, 1)?[0] {
                    $($tag => Ok($name::$variant($crate::Encode::<$d>::read(device, input)?)),)+
                    _ => Err($crate::EncodeError::Damaged),
                }
            }
        }
    };
}
