//! Reading the protobuf wire format from borrowed bytes.
//!
//! Written out here because a model comes from an untrusted file: generated readers build the whole
//! tree of messages before anybody can count it (two bytes on the wire become a message of 150),
//! and copy every weight. This reader allocates nothing.

/// The bytes are not what they claim to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Field<'a> {
    /// An integer.
    Varint(u64),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// A string, a message or packed numbers.
    Bytes(&'a [u8]),
}

/// The fields of one message, in the order of the bytes.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the message in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// The next field and its number, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u32, Field<'a>)>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        let field = match key & 7 {
            0 => Field::Varint(self.varint()?),
            1 => Field::Fixed64(self.array()?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(self.array()?),
            // Groups are deprecated since before ONNX.
            _ => return Err(Malformed),
        };
        if number == 0 { Err(Malformed) } else { Ok(Some((number, field))) }
    }

    /// The next integer of a packed list, or `None` at its end.
    pub fn next_packed(&mut self) -> Result<Option<u64>, Malformed> {
        if self.0.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).ok_or(Malformed)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = tail;
        Ok(head)
    }
}

impl<'a> Field<'a> {
    /// As bytes.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Field::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    /// As a string.
    pub fn string(self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// As an integer; negative ones are in two's complement.
    pub fn int(self) -> Result<i64, Malformed> {
        match self {
            Field::Varint(v) => Ok(v as i64),
            _ => Err(Malformed),
        }
    }

    /// As a real number.
    pub fn float(self) -> Result<f32, Malformed> {
        match self {
            Field::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_in_order() {
        // 1: 150, 2: "hi", 3: 1.0f32, 4: 1.0f64
        let bytes = [8, 0x96, 1, 18, 2, b'h', b'i', 29, 0, 0, 0x80, 63, 33, 0, 0, 0, 0, 0, 0, 0xf0, 63];
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.next(), Ok(Some((1, Field::Varint(150)))));
        assert_eq!(reader.next().unwrap().unwrap().1.string(), Ok("hi"));
        assert_eq!(reader.next().unwrap().unwrap().1.float(), Ok(1.0));
        assert_eq!(reader.next(), Ok(Some((4, Field::Fixed64(1f64.to_le_bytes())))));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn lies_are_refused() {
        fn first(bytes: &[u8]) -> Result<Option<(u32, Field<'_>)>, Malformed> {
            Reader::new(bytes).next()
        }
        assert_eq!(first(&[18, 200]), Err(Malformed), "a length that does not end");
        assert_eq!(first(&[18, 5, 1]), Err(Malformed), "a length beyond the bytes");
        assert_eq!(first(&[0xff; 11]), Err(Malformed), "a number of more than 64 bits");
        assert_eq!(first(&[11]), Err(Malformed), "a group");
        assert_eq!(first(&[0, 1]), Err(Malformed), "field 0");
    }
}
