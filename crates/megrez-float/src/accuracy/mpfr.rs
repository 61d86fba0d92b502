//! MPFR, loaded at run time: the truth to 300 bits, for the few inputs that decide a largest error.
//!
//! Nothing of MPFR is needed to build. The library is there wherever a C compiler is (`libmpfr6` on
//! Debian), which uses it.

use libloading::Library;
use std::ffi::{c_char, c_int, c_long};

/// Names under which the library is looked for.
const NAMES: [&str; 4] = ["libmpfr.so.6", "libmpfr.so", "libmpfr.6.dylib", "libmpfr.dylib"];
/// Bits of all numbers.
const PRECISION: c_long = 300;
/// MPFR_RNDN and MPFR_RNDZ.
const NEAREST: c_int = 0;
const TO_ZERO: c_int = 1;

/// An `mpfr_t`: on all platforms at most a precision, a sign, an exponent and a pointer, each of at
/// most a word.
#[repr(C)]
struct Raw([u64; 4]);

type Unary = unsafe extern "C" fn(*mut Raw, *const Raw, c_int) -> c_int;

/// The loaded library.
pub struct Mpfr {
    library: Library,
    /// Its version.
    pub version: String,
}

/// Why there is no MPFR.
#[derive(Debug, thiserror::Error)]
pub enum Missing {
    /// No library of any of the usual names.
    #[error("MPFR is not installed (libmpfr6 on Debian and Ubuntu)")]
    Library,
    /// The library is too old to know a function.
    #[error("this MPFR has no `{0}`; version 4.2 has")]
    Symbol(String),
}

/// A number of `PRECISION` bits that frees itself.
struct Number<'a> {
    mpfr: &'a Mpfr,
    raw: Raw,
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        if let Ok(clear) = self.mpfr.symbol::<unsafe extern "C" fn(*mut Raw)>("mpfr_clear") {
            // SAFETY: `raw` was initialised by mpfr_init2 and is not used again.
            unsafe { clear(&mut self.raw) }
        }
    }
}

impl Mpfr {
    /// Loads the library.
    ///
    /// # Errors
    /// If there is none.
    pub fn load() -> Result<Self, Missing> {
        // SAFETY: MPFR's initialisers have no requirements; it is the same library that compilers
        // load.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok());
        let mut mpfr = Self { library: library.ok_or(Missing::Library)?, version: String::new() };
        let version: unsafe extern "C" fn() -> *const c_char = mpfr.symbol("mpfr_get_version")?;
        // SAFETY: the function returns a static C string.
        mpfr.version = unsafe { std::ffi::CStr::from_ptr(version()) }.to_string_lossy().into_owned();
        Ok(mpfr)
    }

    fn symbol<T: Copy>(&self, name: &str) -> Result<T, Missing> {
        // SAFETY: every caller asks for a function of MPFR's documented interface with its
        // documented type.
        let symbol = unsafe { self.library.get::<T>(name.as_bytes()) };
        symbol.map(|s| *s).map_err(|_| Missing::Symbol(name.into()))
    }

    fn number(&self, value: f64) -> Result<Number<'_>, Missing> {
        let init: unsafe extern "C" fn(*mut Raw, c_long) = self.symbol("mpfr_init2")?;
        let set: unsafe extern "C" fn(*mut Raw, f64, c_int) -> c_int = self.symbol("mpfr_set_d")?;
        let mut raw = Raw([0; 4]);
        // SAFETY: `raw` is large enough for an mpfr_t, and MPFR keeps no pointer to it.
        unsafe {
            init(&mut raw, PRECISION);
            set(&mut raw, value, NEAREST);
        }
        Ok(Number { mpfr: self, raw })
    }

    fn double(&self, x: &Number<'_>) -> Result<f64, Missing> {
        let get: unsafe extern "C" fn(*const Raw, c_int) -> f64 = self.symbol("mpfr_get_d")?;
        // SAFETY: `x` is initialised.
        Ok(unsafe { get(&x.raw, TO_ZERO) })
    }

    /// The function of that name ("mpfr_" and `name`, or sigmoid) at `x`: as a double rounded
    /// towards zero, and `got` minus it.
    ///
    /// # Errors
    /// If the library does not have the function.
    pub fn compare(&self, name: &str, x: f64, got: f64) -> Result<(f64, f64), Missing> {
        let mut y = self.number(x)?;
        if name == "sigmoid" {
            self.apply("neg", &mut y)?;
            self.apply("exp", &mut y)?;
            let add: unsafe extern "C" fn(*mut Raw, *const Raw, u64, c_int) -> c_int =
                self.symbol("mpfr_add_ui")?;
            let divide: unsafe extern "C" fn(*mut Raw, u64, *const Raw, c_int) -> c_int =
                self.symbol("mpfr_ui_div")?;
            let raw: *mut Raw = &mut y.raw;
            // SAFETY: `raw` is initialised; MPFR allows results in place of operands.
            unsafe {
                add(raw, raw, 1, NEAREST);
                divide(raw, 1, raw, NEAREST);
            }
        } else {
            let name = match name {
                "ln" => "log",
                "round" => "rint_roundeven",
                "floor" => "rint_floor",
                "ceil" => "rint_ceil",
                "trunc" => "rint_trunc",
                name => name,
            };
            self.apply(name, &mut y)?;
        }
        let mut rest = self.number(got)?;
        let subtract: unsafe extern "C" fn(*mut Raw, *const Raw, *const Raw, c_int) -> c_int =
            self.symbol("mpfr_sub")?;
        let raw: *mut Raw = &mut rest.raw;
        // SAFETY: both are initialised; MPFR allows results in place of operands.
        unsafe { subtract(raw, raw, &y.raw, NEAREST) };
        Ok((self.double(&y)?, self.double(&rest)?))
    }

    fn apply(&self, name: &str, x: &mut Number<'_>) -> Result<(), Missing> {
        let function: Unary = self.symbol(&format!("mpfr_{name}"))?;
        let raw: *mut Raw = &mut x.raw;
        // SAFETY: `raw` is initialised; MPFR allows results in place of operands.
        unsafe { function(raw, raw, NEAREST) };
        Ok(())
    }
}
