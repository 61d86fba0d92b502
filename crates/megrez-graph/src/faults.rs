//! For tests of readers of untrusted bytes: valid files, damaged in all the ways that disks,
//! networks and people have.

/// So many damaged files by default; `MEGREZ_FAULTS` says another number.
const FEW: usize = 4000;

/// Calls `read` with damaged files made of valid ones, always the same for the same number. A panic
/// names none of them: it comes with the number of the file, which goes to standard error.
pub fn each(valid: &[Vec<u8>], mut read: impl FnMut(&[u8])) {
    let count = std::env::var("MEGREZ_FAULTS").ok().and_then(|n| n.parse().ok()).unwrap_or(FEW);
    for number in 0..count {
        let bytes = damaged(valid, number);
        let told = Told(number);
        read(&bytes);
        std::mem::forget(told);
    }
}

/// Says which file it was when a reader panics.
struct Told(usize);

impl Drop for Told {
    fn drop(&mut self) {
        eprintln!("damaged file {} of MEGREZ_FAULTS", self.0);
    }
}

/// SplitMix64: tests need neither more nor other.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// Damaged file `number`: one to four changes of one of the valid files.
fn damaged(valid: &[Vec<u8>], number: usize) -> Vec<u8> {
    let mut random = Random(number as u64);
    let mut bytes = valid[number % valid.len()].clone();
    for _ in 0..=random.below(4) {
        let (at, length) = (random.below(bytes.len()), random.below(16) + 1);
        let end = (at + length).min(bytes.len());
        match random.below(8) {
            _ if bytes.is_empty() => bytes.push(random.below(256) as u8),
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes[at] = bytes[at].wrapping_add(1),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let again = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, again));
            }
            6 => bytes[at..end].fill([0, 0xff][random.below(2)]),
            _ => {
                // A part of another file.
                let other = &valid[random.below(valid.len())];
                let from = random.below(other.len());
                let part = other[from..(from + length).min(other.len())].to_vec();
                drop(bytes.splice(at..end, part));
            }
        }
    }
    bytes
}
