//! The search over variants of a plan: each is made and estimated, and the cheapest is taken.

/// What a variant costs its network: seconds first, and among equals bits.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Estimate {
    /// Seconds of the critical path.
    pub seconds: f64,
    /// Bits over all parties.
    pub bits: f64,
}

/// The cheapest of the variants that have an estimate; of equals the first.
///
/// # Errors
/// If none has an estimate: why the last has none, or `None` if there are no variants.
pub fn choose<V, E>(
    variants: impl IntoIterator<Item = V>,
    mut estimate: impl FnMut(&V) -> Result<Estimate, E>,
) -> Result<V, Option<E>> {
    let mut best: Option<(Estimate, V)> = None;
    let mut last = None;
    for variant in variants {
        match estimate(&variant) {
            Err(e) => last = Some(e),
            Ok(found) if best.as_ref().is_none_or(|(least, _)| found < *least) => {
                best = Some((found, variant));
            }
            Ok(_) => {}
        }
    }
    best.map(|(_, variant)| variant).ok_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_wins_then_the_smallest_then_the_first() {
        let of = |&(seconds, bits, _): &(f64, f64, char)| Ok::<_, ()>(Estimate { seconds, bits });
        let variants = [(2.0, 1.0, 'a'), (1.0, 9.0, 'b'), (1.0, 8.0, 'c'), (1.0, 8.0, 'd')];
        assert_eq!(choose(variants, of).unwrap().2, 'c');
    }

    #[test]
    fn what_has_no_price_is_left_out_unless_nothing_has_one() {
        let of = |&n: &u32| if n < 2 { Err(n) } else { Ok(Estimate { seconds: f64::from(n), bits: 0.0 }) };
        assert_eq!(choose([1, 3, 2, 0], of), Ok(2));
        assert_eq!(choose([1, 0], of), Err(Some(0)));
        assert_eq!(choose([], of), Err(None));
    }
}
