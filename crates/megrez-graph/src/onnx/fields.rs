//! Fields of messages as numbers and names, in lists that are bounded.

use super::protobuf::{Field, Malformed, Reader};

const MAX_NAME: usize = 1 << 12;

/// What a part of the file fails with: a short description, or nothing more than that the bytes are
/// malformed.
pub type Decoded<T> = Result<T, String>;

impl From<Malformed> for String {
    fn from(_: Malformed) -> Self {
        "the file is damaged, or no ONNX model".into()
    }
}

pub fn push<T>(list: &mut Vec<T>, item: T, limit: usize, what: &str) -> Decoded<()> {
    if list.len() >= limit {
        return Err(format!("has more than {limit} {what}"));
    }
    list.push(item);
    Ok(())
}

pub fn name<'a>(field: Field<'a>) -> Decoded<&'a str> {
    let name = field.string()?;
    if name.len() > MAX_NAME { Err(format!("a name has more than {MAX_NAME} bytes")) } else { Ok(name) }
}

pub fn words<const N: usize, T>(raw: &[u8], read: impl Fn([u8; N]) -> T) -> Decoded<Vec<T>> {
    let words = raw.chunks_exact(N);
    if !words.remainder().is_empty() {
        return Err(Malformed.into());
    }
    Ok(words.map(|w| read(w.try_into().expect("chunks of N"))).collect())
}

pub fn each_int(field: Field, mut f: impl FnMut(i64) -> Decoded<()>) -> Decoded<()> {
    let Field::Bytes(packed) = field else { return f(field.int()?) };
    let mut reader = Reader::new(packed);
    while let Some(v) = reader.next_packed()? {
        f(v as i64)?;
    }
    Ok(())
}

pub fn each_float(field: Field, mut f: impl FnMut(f32) -> Decoded<()>) -> Decoded<()> {
    let Field::Bytes(packed) = field else { return f(field.float()?) };
    words(packed, f32::from_le_bytes)?.into_iter().try_for_each(f)
}

pub fn each_double(field: Field, mut f: impl FnMut(f32) -> Decoded<()>) -> Decoded<()> {
    match field {
        Field::Fixed64(bytes) => f(f64::from_le_bytes(bytes) as f32),
        Field::Bytes(packed) => words(packed, |b| f64::from_le_bytes(b) as f32)?.into_iter().try_for_each(f),
        _ => Err(Malformed.into()),
    }
}
