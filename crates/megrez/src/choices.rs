//! The choices that a compile request offers, by the names that users know.

use megrez_graph::{Activations, ListStyle, PoolForm, Publisher, RangePolicy, TreeForm};
use megrez_plan::{Fewest, ReluForm};
use megrez_service::Error;
use megrez_service::protocols::Protocol;
use megrez_weights::{Folder, Width};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An enum whose variants have names: read from text and from JSON, written the same.
macro_rules! choice {
    ($(#[$about:meta])* $name:ident, $what:literal: $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum $name {
            $($(#[$of])* $variant),+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The name.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text),+
                }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = $name::ALL.iter().copied();
                known.clone().find(|choice| choice.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
                    let names: Vec<&str> = known.map($name::name).collect();
                    format!(concat!("the ", $what, " is {}, not `{}`"), listed(&names), text)
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(choice: $name) -> String {
                choice.name().into()
            }
        }
    };
}

/// `a, b or c`.
fn listed(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        names => names.concat(),
    }
}

choice! {
    /// What a model computes with.
    Numbers, "kind of numbers":
    /// Fixed point on a ring.
    #[default]
    Fixed = "fixed",
    /// IEEE single precision, correctly rounded.
    Float32 = "float32",
}

choice! {
    /// What to do about a layer whose range cannot be proven to fit the ring.
    Ranges, "policy of ranges":
    /// Refuse the model, naming the layer.
    #[default]
    Prove = "prove",
    /// Take what was measured on data, with its margin; reports say so.
    Calibrated = "calibrated",
    /// Run it anyway; reports say so.
    Assume = "assume",
}

choice! {
    /// How two workers and a dealer compare with zero.
    List, "list":
    /// Bits.
    Bits = "bits",
    /// Digits of several bits: fewer and longer elements.
    #[default]
    Digits = "digits",
    /// A tree of digits: the dealer takes no part online, and fewer bits are sent in all.
    Tree = "tree",
}

choice! {
    /// The form of ReLU.
    Form, "form of ReLU":
    /// Three rounds.
    #[default]
    ThreeRounds = "3r",
    /// Two rounds.
    TwoRounds = "2r",
    /// Two rounds, with fresh masks.
    TwoRoundsFresh = "2r-fresh",
    /// A table.
    Table = "table",
    /// A dealt key: one round, the fewest bits online, the most offline.
    Key = "key",
    /// Dealt tables of digits: two rounds, few bits online, the dealer only before.
    DigitTables = "digit-tables",
    /// What is fastest for the protocol on the network.
    Auto = "auto",
}

choice! {
    /// How pools find a maximum.
    Pool, "form of pools":
    /// By ReLUs, two values at a time: every protocol has it.
    #[default]
    Tournament = "tournament",
    /// Up to four values at a time, by comparing all pairs at once: fewer rounds, more bits
    /// offline.
    AllPairs = "all-pairs",
}

choice! {
    /// What stands for smooth activations.
    Smooth, "kind of activations":
    /// Dealt tables that tell nothing about weights, where the protocol has a dealer and the ring
    /// 64 bits: three rounds, an error below 2^−12; minimax splines elsewhere.
    #[default]
    Auto = "auto",
    /// Splines of four segments, fitted for the least error.
    Minimax = "minimax",
    /// Splines of higher degree: a tenth of the error, two more rounds; on the 64-bit ring.
    Fine = "fine",
    /// Dealt tables, which begin and end where ranges do, so that the plan tells these to a factor
    /// of two: one round, an error below 2^−12.
    Lookup = "lookup",
    /// MIZAR's Appendix B for Sigmoid and GELU; minimax splines for the rest.
    Mizar = "mizar",
}

choice! {
    /// What everybody sees of ensembles of trees. Thresholds and the numbers of leaves are secret
    /// in both forms.
    Trees, "form of trees":
    /// How many there are, how deep, and how many leaves the largest has, up to a power of two.
    #[default]
    Hidden = "hidden",
    /// Their exact shape and which feature each test looks at: a third to a tenth of the bytes.
    Shape = "shape",
}

choice! {
    /// Who knows a model's weights.
    Weights, "weights":
    /// Nobody but their owner.
    #[default]
    Private = "private",
    /// Every party: those of products with 16 bits, in files that parties share on a host.
    Public = "public",
    /// Every party: those of products with 8 bits.
    PublicInt8 = "public-int8",
}

impl Weights {
    /// Who makes weights public, in the folder of this user.
    ///
    /// # Errors
    /// If there is no such folder.
    pub(crate) fn publisher(self) -> megrez_service::Result<Option<Publisher>> {
        let width = match self {
            Weights::Private => return Ok(None),
            Weights::Public => Width::Sixteen,
            Weights::PublicInt8 => Width::Eight,
        };
        let Some(folder) = megrez_weights::user_folder() else {
            return Err(Error::Refused(
                "there is no folder for public weights: name one as MEGREZ_WEIGHTS".into(),
            ));
        };
        Ok(Some(Publisher::new(width, Some(Folder::at(folder)))))
    }
}

impl From<Trees> for TreeForm {
    fn from(trees: Trees) -> Self {
        match trees {
            Trees::Hidden => TreeForm::Hidden,
            Trees::Shape => TreeForm::Shape,
        }
    }
}

impl From<Ranges> for RangePolicy {
    fn from(ranges: Ranges) -> Self {
        match ranges {
            Ranges::Prove => RangePolicy::Prove,
            Ranges::Calibrated => RangePolicy::Calibrated,
            Ranges::Assume => RangePolicy::Assume,
        }
    }
}

impl List {
    /// The same for fitted comparisons, whose widths are chosen by what links cost.
    pub(crate) fn style(self, fewest: Fewest) -> ListStyle {
        match self {
            List::Bits => ListStyle::Bits,
            List::Digits => ListStyle::Digits(fewest),
            List::Tree => ListStyle::Tree,
        }
    }
}

impl Form {
    /// The form itself; `None` where the network is to choose.
    pub fn fixed(self) -> Option<ReluForm> {
        match self {
            Form::ThreeRounds => Some(ReluForm::ThreeRounds),
            Form::TwoRounds => Some(ReluForm::TwoRounds),
            Form::TwoRoundsFresh => Some(ReluForm::TwoRoundsFresh),
            Form::Table => Some(ReluForm::Table),
            Form::Key => Some(ReluForm::Key),
            Form::DigitTables => Some(ReluForm::DigitTables),
            Form::Auto => None,
        }
    }
}

impl From<Pool> for PoolForm {
    fn from(pool: Pool) -> Self {
        match pool {
            Pool::Tournament => PoolForm::Tournament,
            Pool::AllPairs => PoolForm::AllPairs,
        }
    }
}

impl Smooth {
    /// What it is under a protocol, on a ring of ℓ = `ring` bits.
    pub fn with(self, protocol: &Protocol, ring: u32) -> Activations {
        let looks_up = protocol.lookup || protocol.offload;
        match self {
            Smooth::Auto if looks_up && ring > 32 => Activations::Tables,
            Smooth::Auto => Activations::Minimax,
            Smooth::Minimax => Activations::Minimax,
            Smooth::Fine => Activations::Fine,
            Smooth::Lookup => Activations::Lookup,
            Smooth::Mizar => Activations::Mizar,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read_as_they_are_written() {
        for &form in Form::ALL {
            assert_eq!(form.to_string().parse(), Ok(form));
            assert_eq!(serde_json::from_value(serde_json::json!(form)).ok(), Some(form));
        }
        assert_eq!("2R".parse(), Ok(Form::TwoRounds));
        assert_eq!("all-pairs".parse(), Ok(Pool::AllPairs));
        let wrong = "9r".parse::<Form>().unwrap_err();
        assert_eq!(wrong, "the form of ReLU is 3r, 2r, 2r-fresh, table, key, digit-tables or auto, not `9r`");
        assert!("pairs".parse::<Pool>().unwrap_err().contains("tournament or all-pairs"));
    }
}
