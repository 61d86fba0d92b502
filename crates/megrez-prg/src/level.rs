//! Which vector instructions this machine has.

/// A set of vector instructions that this machine has: holding one proves that its instructions may
/// run. Levels exist so that tests can compare them; everything else uses [`Level::detect`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Level(Kind);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Level {
    /// What every machine has.
    pub const PORTABLE: Level = Level(Kind::Portable);

    /// The best that this machine has. Under Miri that is the portable code.
    pub fn detect() -> Level {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512ifma")
                && is_x86_feature_detected!("avx512vbmi");
            if avx512 && is_x86_feature_detected!("bmi2") {
                return Level(Kind::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
                return Level(Kind::Avx2);
            }
        }
        Level::PORTABLE
    }

    /// Every level that this machine has, the portable one first.
    pub fn all() -> Vec<Level> {
        let every = [
            Kind::Portable,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2,
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512,
        ];
        every.into_iter().map(Level).filter(|&l| l <= Level::detect()).collect()
    }

    /// Whether AVX-512 F, BW, DQ, VL, IFMA and VBMI may run (and all of AVX2).
    #[inline(always)]
    pub fn has_avx512(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 == Kind::Avx512;
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Whether AVX2 and BMI2 may run.
    #[inline(always)]
    pub fn has_avx2(self) -> bool {
        self.0 > Kind::Portable
    }

    /// For reports: `avx512`, `avx2` or `portable`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
        }
    }
}
