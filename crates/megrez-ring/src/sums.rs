//! Sums in double precision, for what is computed in the clear: here, because crates that only lay
//! plans out may be compiled for size.

/// sums + a · row.
#[inline(never)]
pub fn add_singles(sums: &mut [f64], a: f64, row: &[f32]) {
    sums.iter_mut().zip(row).for_each(|(sum, &v)| *sum += a * f64::from(v));
}

/// sums + a · row.
#[inline(never)]
pub fn add_doubles(sums: &mut [f64], a: f64, row: &[f64]) {
    sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += a * v);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_as_far_as_both_go() {
        let mut sums = [1.0, 2.0, 3.0];
        add_singles(&mut sums, 2.0, &[0.5, -1.0]);
        add_doubles(&mut sums, -1.0, &[0.0, 0.0, 4.0, 9.0]);
        assert_eq!(sums, [2.0, 0.0, -1.0]);
    }
}
