//! MPFR.
