//! How a model is compiled: one description for the library, the command and Python.

mod text;

pub use text::Bounds;

use crate::choices::{Form, List, Numbers, Pool, Ranges, Smooth, Trees, Weights};
use crate::file::FileOr;
use megrez_graph::{
    Activations, Calibration, Comparison, CompileOptions, Declared, Graph, PoolForm, Publisher, RangePolicy,
    SLICED_FROM,
};
use megrez_model::choose;
use megrez_model::float::Work;
use megrez_model::model::{Model, Recipe};
use megrez_net::NetProfile;
use megrez_plan::{Fewest, MAX_THREADS, ReluForm, SignBit};
use megrez_service::protocols;
use megrez_service::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use text::{profile, profile_or_none};

/// How a model is compiled, and for whom: every option with its default.
///
/// This is the one description of these options. The command has each as `--name` (feature `clap`),
/// Python as a keyword of `megrez.compile`, and JSON as a key; a new one is a field here.
///
/// ```
/// let request = megrez::CompileRequest { protocol: "aby3".into(), fit: true, ..Default::default() };
/// let same = serde_json::from_str(r#"{ "protocol": "aby3", "fit": true }"#).unwrap();
/// assert_eq!(request, same);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct CompileRequest {
    /// The protocol; `megrez protocols` lists them.
    #[cfg_attr(feature = "clap", arg(long, default_value = "mizar", help_heading = PROTOCOL))]
    pub protocol: String,
    /// Who knows the weights: private, their owner, or every party: public (16 bits), public-int8.
    #[cfg_attr(feature = "clap", arg(long, default_value_t, help_heading = PROTOCOL))]
    pub weights: Weights,
    /// The network between the parties: loopback, lan, wan, or RTT,RATE such as 20ms,500mbps.
    #[serde(with = "profile")]
    #[cfg_attr(feature = "clap", arg(long, default_value = "loopback", help_heading = PROTOCOL))]
    pub net: NetProfile,
    /// For --form auto: the network of the offline phase [default: --net].
    #[serde(with = "profile_or_none")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NET", help_heading = PROTOCOL))]
    pub offline_net: Option<NetProfile>,
    /// For --form auto: MiB that a party may hold of a run [default: any].
    #[cfg_attr(feature = "clap", arg(long, value_name = "MIB", help_heading = PROTOCOL))]
    pub memory: Option<u64>,
    /// What is computed with: fixed, or float32 [default: what the protocol computes with].
    #[cfg_attr(feature = "clap", arg(long, help_heading = NUMBERS))]
    pub numbers: Option<Numbers>,
    /// Bits of the ring: 32, 40, 48 or 64. On 40 and 48 bits less is sent, and less fits.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 64, help_heading = NUMBERS))]
    pub ring: u32,
    /// Fraction bits [default: 16 on the 64-bit ring, 18 or 20 for deep models whose ranges leave
    /// the room; 10 on the 32-bit ring].
    #[cfg_attr(feature = "clap", arg(long, help_heading = NUMBERS))]
    pub frac: Option<u32>,
    /// What stands for smooth activations: auto (dealt tables where there is a dealer, minimax
    /// splines elsewhere), minimax or fine splines, lookup (tables as short as ranges, which they
    /// tell), or mizar, its Appendix B to compare with.
    #[cfg_attr(feature = "clap", arg(long, default_value_t, help_heading = NUMBERS))]
    pub activations: Smooth,
    /// What every element of the data lies in: B for −B to B, or LOW,HIGH.
    #[cfg_attr(feature = "clap", arg(long, default_value_t, allow_hyphen_values = true, help_heading = RANGES))]
    pub input_range: Bounds,
    /// Other ranges, for inputs by name.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub input_ranges: BTreeMap<String, Bounds>,
    /// What to do about a layer whose range cannot be proven to fit the ring: prove (refuse it),
    /// calibrated (take what --calibration has measured) or assume.
    #[cfg_attr(feature = "clap", arg(long = "range", value_name = "POLICY", default_value_t, help_heading = RANGES))]
    pub ranges: Ranges,
    /// Ranges of layers, so that the plan tells nothing about secret weights: a JSON or TOML file
    /// of NAME to [LOW, HIGH], `*` for all others.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", help_heading = RANGES))]
    pub declared: Option<FileOr>,
    /// Compare only as many bits as each layer's proven range needs. The plan then shows the
    /// parties how large each layer's values may get, to a factor of two.
    #[cfg_attr(feature = "clap", arg(long, help_heading = RANGES))]
    pub fit: bool,
    /// As --fit, with magnitudes measured by `megrez calibrate`; with --range calibrated, what
    /// takes the place of proofs.
    #[cfg_attr(feature = "clap", arg(long, value_name = "FILE", help_heading = RANGES))]
    pub calibration: Option<FileOr>,
    /// With --range calibrated: compare what rests on measurements with them in every run. Data
    /// beyond them is then an error, which the recipient learns in one bit, and never wrong
    /// numbers.
    #[cfg_attr(feature = "clap", arg(long, help_heading = RANGES))]
    pub guard: bool,
    /// The list of a comparison: bits, digits or tree, which needs no dealer online [default:
    /// digits for models, bits for single operations].
    #[cfg_attr(feature = "clap", arg(long, help_heading = STEPS))]
    pub list: Option<List>,
    /// Digit widths, most significant first [default: the best known].
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', help_heading = STEPS))]
    pub widths: Option<Vec<u32>>,
    /// Bits that a comparison looks at, sign included [default: all].
    #[cfg_attr(feature = "clap", arg(long, help_heading = STEPS))]
    pub bits: Option<u32>,
    /// Low bits that a comparison ignores.
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 0, help_heading = STEPS))]
    pub cut: u32,
    /// The form of ReLU: 3r, 2r, 2r-fresh, table, key, digit-tables, or for models auto: what is
    /// fastest.
    #[cfg_attr(feature = "clap", arg(long, default_value_t, help_heading = STEPS))]
    pub form: Form,
    /// ReLUs up to this size take keys [default: none; auto chooses].
    #[cfg_attr(feature = "clap", arg(long, value_name = "ELEMENTS", help_heading = STEPS))]
    pub keys: Option<usize>,
    /// How pools find a maximum: tournament or all-pairs [default: tournament; what is fastest with
    /// --form auto, or under aby3, alkaid and meteor].
    #[cfg_attr(feature = "clap", arg(long, help_heading = STEPS))]
    pub pool: Option<Pool>,
    /// What everybody sees of ensembles of trees: hidden (how many, how deep, how many leaves the
    /// largest has, up to a power of two) or shape (all that, and which features are tested).
    #[cfg_attr(feature = "clap", arg(long, default_value_t, help_heading = STEPS))]
    pub trees: Trees,
    /// Under aby3 and alkaid: have ReLUs and maxima computed by MIZAR's steps, with party 2 as
    /// dealer, up to the size where that is faster on the network.
    #[cfg_attr(feature = "clap", arg(long, help_heading = STEPS))]
    pub mix: bool,
    /// Bits of a group of secfloat's OT extension (SoftSpoken's k), 1, 2, 4 or 8: more is fewer
    /// bytes and more work. Or `silent` (0): the fewest bytes, for large runs on slow links
    /// [default: 4, or for models silent where that is faster on the network].
    #[cfg_attr(feature = "clap", arg(long, value_parser = group_bits, help_heading = FLOAT))]
    pub group: Option<u32>,
    /// Threads of each party of secfloat [default: half of this machine's cores; one with silent].
    #[cfg_attr(feature = "clap", arg(long, help_heading = FLOAT))]
    pub threads: Option<u32>,
}

/// The group of an OT extension as it is given: bits, or `silent`.
///
/// # Errors
/// If it is neither.
#[cfg(feature = "clap")]
pub fn group_bits(text: &str) -> std::result::Result<u32, String> {
    match text {
        "silent" => Ok(0),
        _ => text.parse().map_err(|_| "is 1, 2, 4 or 8, or silent".into()),
    }
}

#[cfg(feature = "clap")]
const PROTOCOL: &str = "Protocol and network";
#[cfg(feature = "clap")]
const NUMBERS: &str = "Numbers";
#[cfg(feature = "clap")]
const RANGES: &str = "Ranges";
#[cfg(feature = "clap")]
const STEPS: &str = "Steps of the protocol";
#[cfg(feature = "clap")]
const FLOAT: &str = "Floating point";

impl Default for CompileRequest {
    fn default() -> Self {
        CompileRequest {
            protocol: "mizar".into(),
            weights: Weights::default(),
            net: NetProfile::loopback(),
            offline_net: None,
            memory: None,
            numbers: None,
            ring: 64,
            frac: None,
            activations: Smooth::default(),
            input_range: Bounds::default(),
            input_ranges: BTreeMap::new(),
            ranges: Ranges::default(),
            declared: None,
            fit: false,
            calibration: None,
            guard: false,
            list: None,
            widths: None,
            bits: None,
            cut: 0,
            form: Form::default(),
            keys: None,
            pool: None,
            trees: Trees::default(),
            mix: false,
            group: None,
            threads: None,
        }
    }
}

impl CompileRequest {
    /// Compiles a model all of whose inputs, weights included, belong to `client`, who also learns
    /// the outputs.
    ///
    /// # Errors
    /// Options that do not go together, everything about the model that is not supported, and every
    /// range that does not fit.
    pub fn compile(&self, graph: &Graph, client: &str) -> Result<Model> {
        self.recipe(graph, client)?.compile(graph, client)
    }

    /// Chooses what is left to the network: of the protocol's forms that which takes it least time.
    ///
    /// # Errors
    /// Options that do not go together, or a model that the protocol cannot run in any form.
    pub fn recipe(&self, graph: &Graph, client: &str) -> Result<Recipe> {
        if self.is_float()? {
            let (work, open) = (self.work()?, self.group.is_none() && self.threads.is_none());
            return Ok(Recipe::Float(match open {
                true => choose::transfers(graph, client, work, self.runs_under(), &self.net)?,
                false => work,
            }));
        }
        let for_a_choice = [("offline_net", self.offline_net.is_some()), ("memory", self.memory.is_some())];
        if let Some((name, _)) = for_a_choice.into_iter().find(|&(_, given)| given)
            && (self.mix || self.form.fixed().is_some())
        {
            return Err(Error::of(
                ErrorKind::Unsupported,
                format!(
                    "`{name}` says what form `auto` may choose, and no form is to be chosen here: leave it out"
                ),
            ));
        }
        let options = self.options_with(self.form.fixed().unwrap_or(ReluForm::ThreeRounds))?;
        let pool = self.pool.map(PoolForm::from);
        let chosen = match self.form.fixed() {
            form if self.mix => choose::mix(graph, client, &options, (pool, form), &self.protocol, &self.net),
            Some(_) if pool.is_some() => options,
            Some(_) => {
                let pool = choose::pool(graph, client, &options, &self.protocol, &self.net)?;
                CompileOptions { pool, ..options }
            }
            None => {
                let trees = self.list.is_none() && self.widths.is_none();
                let open = choose::Open { pool, keyed: self.keys, trees };
                choose::form(graph, client, &options, open, &self.protocol, self.costs())?
            }
        };
        Ok(Recipe::Fixed(Box::new(chosen)))
    }

    /// As [`recipe`](Self::recipe), for a run in which every layer is opened: none may be left as a
    /// sum or become a part of the next.
    ///
    /// # Errors
    /// The same.
    pub fn recipe_by_layer(&self, graph: &Graph, client: &str) -> Result<Recipe> {
        // Every layer is looked at anyway.
        let unguarded = CompileRequest { guard: false, ..self.clone() };
        if self.is_float()? {
            return unguarded.recipe(graph, client);
        }
        if !protocols::find(&self.protocol)?.deferred_resharing {
            return Ok(unguarded.recipe(graph, client)?.by_layer());
        }
        let options = unguarded.options_with(ReluForm::ThreeRounds)?;
        Ok(Recipe::Fixed(Box::new(CompileOptions {
            defer_resharing: false,
            pool: PoolForm::Tournament,
            ..options
        })))
    }

    /// What forms are chosen for.
    fn costs(&self) -> choose::Costs<'_> {
        choose::Costs {
            nets: [&self.net, self.offline_net.as_ref().unwrap_or(&self.net)],
            memory: self.memory.map(|mib| mib.saturating_mul(1 << 20)),
        }
    }

    /// The options of fixed point as they stand, with nothing left to the network.
    ///
    /// # Errors
    /// Options that do not go together.
    pub fn options(&self) -> Result<CompileOptions> {
        self.only_fixed()?;
        let form = self.form.fixed().ok_or_else(|| {
            Error::Refused("the form of ReLU is chosen for whole models: name it, such as --form 3r".into())
        })?;
        self.options_with(form)
    }

    /// What stands for smooth activations under the protocol.
    ///
    /// # Errors
    /// If there is no such protocol.
    pub fn activations(&self) -> Result<Activations> {
        Ok(self.activations.with(protocols::find(&self.protocol)?, self.ring))
    }

    fn options_with(&self, relu: ReluForm) -> Result<CompileOptions> {
        let by_name = self.input_ranges.iter().map(|(name, bounds)| (name.clone(), bounds.0));
        Ok(CompileOptions {
            ring: self.ring,
            frac: self.frac(),
            deep_frac: self.deep_frac(),
            input_range: self.input_range.0,
            input_ranges: by_name.collect(),
            policy: RangePolicy::from(self.ranges),
            measured: self.measured()?,
            guard: self.guard,
            declared: self.declared.as_ref().map(declared).transpose()?,
            comparison: self.comparison()?,
            relu,
            keyed: self.keys.unwrap_or(0),
            pool: self.pool.map_or(PoolForm::Tournament, PoolForm::from),
            defer_resharing: protocols::find(&self.protocol)?.deferred_resharing,
            selects_truncated: protocols::find(&self.protocol)?.selects_truncated,
            multiplies_truncated: protocols::find(&self.protocol)?.multiplies_truncated,
            multiplies_bits: protocols::find(&self.protocol)?.multiplies_bits,
            defer_openings: protocols::find(&self.protocol)?.reshares,
            sliced: Some(SLICED_FROM),
            replicated: protocols::find(&self.protocol)?.deferred_resharing,
            activations: self.activations()?,
            delay_ns: self.net.delay_ns(),
            mib_ns: self.net.transmit_ns(1 << 20),
            trees: self.trees.into(),
            private_weights: self.weights == Weights::Private,
            publisher: self.publisher()?,
            ..CompileOptions::default()
        })
    }

    /// Who makes weights public, should they be.
    ///
    /// # Errors
    /// If there is no folder for them.
    pub fn publisher(&self) -> Result<Option<Publisher>> {
        self.weights.publisher()
    }

    /// Refuses public weights, for what keeps them secret.
    ///
    /// # Errors
    /// If they are public.
    pub fn only_private(&self) -> Result<()> {
        match self.weights {
            Weights::Private => Ok(()),
            _ => Err(Error::of(
                ErrorKind::Unsupported,
                "what is trained is secret: leave out --weights, or use a model that is trained already",
            )),
        }
    }

    /// Refuses floating point, for what does not compute with it.
    ///
    /// # Errors
    /// With what to choose instead.
    pub fn only_fixed(&self) -> Result<()> {
        match self.is_float()? {
            false => Ok(()),
            true => Err(Error::of(
                ErrorKind::Unsupported,
                match self.numbers {
                    Some(Numbers::Float32) => {
                        "this command does not compute in float32: leave out --numbers float32".into()
                    }
                    _ => format!(
                        "`{}` computes in float32, which this command does not: choose another protocol, such as --protocol mizar",
                        self.protocol
                    ),
                },
            )),
        }
    }

    /// The protocol that runs: in floating point that of the floats between the same parties. One
    /// that has none stays, for [`is_float`](Self::is_float) to refuse.
    pub fn runs_under(&self) -> &str {
        match self.numbers {
            Some(Numbers::Float32) => protocols::in_floats(&self.protocol).unwrap_or(&self.protocol),
            _ => &self.protocol,
        }
    }

    /// Whether to compute in floating point; refuses what does not go together.
    ///
    /// # Errors
    /// With what to choose instead.
    pub fn is_float(&self) -> Result<bool> {
        let protocol = match self.numbers {
            Some(Numbers::Float32) => protocols::in_floats(&self.protocol)?,
            _ => &self.protocol,
        };
        let float = protocols::is_float(protocol);
        if float && self.numbers == Some(Numbers::Fixed) {
            return Err(Error::Refused(format!(
                "`{protocol}` computes in float32: leave out --numbers, or choose another protocol, such as --protocol mizar",
            )));
        }
        if float && let [_, ..] = self.unused_in_float()[..] {
            let option = |name: &&str| {
                format!("--{}", if *name == "ranges" { "range" } else { name }.replace('_', "-"))
            };
            let options: Vec<String> = self.unused_in_float().iter().map(option).collect();
            return Err(Error::Refused(format!(
                "float32 has nothing to choose of these: leave out {}",
                options.join(", ")
            )));
        }
        Ok(float)
    }

    /// The fields that are not as they are by default and mean nothing in floating point.
    pub fn unused_in_float(&self) -> Vec<&'static str> {
        let default = CompileRequest::default();
        let chosen = [
            ("weights", self.weights != default.weights),
            ("offline_net", self.offline_net.is_some()),
            ("memory", self.memory.is_some()),
            ("ring", self.ring != default.ring),
            ("frac", self.frac.is_some()),
            ("activations", self.activations != default.activations),
            ("input_range", self.input_range != default.input_range || !self.input_ranges.is_empty()),
            ("ranges", self.ranges != default.ranges),
            ("declared", self.declared.is_some()),
            ("fit", self.fit),
            ("calibration", self.calibration.is_some()),
            ("guard", self.guard),
            ("list", self.list.is_some_and(|list| list != List::default())),
            ("widths", self.widths.is_some()),
            ("bits", self.bits.is_some()),
            ("cut", self.cut > 0),
            ("form", self.form != default.form),
            ("keys", self.keys.is_some()),
            ("pool", self.pool.is_some()),
            ("trees", self.trees != default.trees),
            ("mix", self.mix),
        ];
        chosen.into_iter().filter(|(_, chosen)| *chosen).map(|(name, _)| name).collect()
    }

    /// The fields that are not as they are by default and mean nothing to a single operation, which
    /// has no layers and no ranges.
    pub fn unused_in_operation(&self) -> Vec<&'static str> {
        let of_layers = [
            "weights",
            "offline_net",
            "memory",
            "input_range",
            "ranges",
            "declared",
            "fit",
            "calibration",
            "guard",
            "keys",
            "trees",
        ];
        self.unused_in_float().into_iter().filter(|name| of_layers.contains(name)).collect()
    }

    /// How parties of floating point work.
    ///
    /// # Errors
    /// If no party works so.
    pub fn work(&self) -> Result<Work> {
        let group = self.group.unwrap_or(Work::default().group);
        if ![0, 1, 2, 4, 8].contains(&group) {
            return Err(Error::Refused("--group is 1, 2, 4 or 8, or silent (0)".into()));
        }
        if self.threads.is_some_and(|n| !(1..=MAX_THREADS).contains(&n)) {
            return Err(Error::Refused(format!("--threads is 1 to {MAX_THREADS}")));
        }
        if group == 0 && self.threads.is_some_and(|n| n > 1) {
            return Err(Error::Refused("silent transfers work in one thread: leave out --threads".into()));
        }
        let threads = if group == 0 { 1 } else { Work::default().threads };
        Ok(Work { group, threads: self.threads.unwrap_or(threads) })
    }

    /// Fraction bits: those that are given, or those that suit the ring; a deep model may get more
    /// ([`CompileOptions::deep_frac`]).
    pub fn frac(&self) -> u32 {
        self.frac.unwrap_or(default_frac(self.ring))
    }

    /// The most fraction bits of a deep model, where they are left open. A comparison of chosen
    /// bits is laid out for the usual number.
    fn deep_frac(&self) -> Option<u32> {
        let open = self.frac.is_none()
            && self.ring == 64
            && self.bits.is_none()
            && self.cut == 0
            && self.widths.is_none();
        open.then_some(DEEP_FRAC)
    }

    /// The comparison of a single operation, with `list` unless another is asked for.
    ///
    /// # Errors
    /// If the ring has no room for it.
    pub fn sign(&self, list: List) -> Result<SignBit> {
        sign_bit(self.ring, self.list.unwrap_or(list), self.widths.as_deref(), self.bits, self.cut)
    }

    /// What takes the place of proofs, if anything may.
    fn measured(&self) -> Result<Option<Calibration>> {
        match (&self.calibration, self.ranges) {
            (Some(measured), Ranges::Calibrated) => calibration(measured).map(Some),
            (None, Ranges::Calibrated) => Err(Error::Refused(
                "calibrated ranges need --calibration, which `megrez calibrate` writes; in Python calibration=".into(),
            )),
            _ => Ok(None),
        }
    }

    fn comparison(&self) -> Result<Comparison> {
        let fitted_to_data = self.calibration.is_some() && self.ranges != Ranges::Calibrated;
        if !self.fit && !fitted_to_data {
            return Ok(Comparison::Fixed(self.sign(List::Digits)?));
        }
        if self.cut > 0 || self.widths.is_some() {
            return Err(Error::Refused("fitted comparisons choose cut and widths themselves".into()));
        }
        let calibration = self.calibration.as_ref().map(calibration).transpose()?;
        fitted(self.list.unwrap_or_default(), self.bits, calibration, !self.net.is_unshaped())
    }
}

/// The most fraction bits that a deep model gets by itself.
const DEEP_FRAC: u32 = 20;

/// Fraction bits that suit a ring.
pub fn default_frac(ring: u32) -> u32 {
    if ring == 32 { 10 } else { 16 }
}

/// A comparison; without widths, digits are the best known for the number of bits.
///
/// # Errors
/// If the ring has no room for it.
pub fn sign_bit(
    ring: u32,
    list: List,
    widths: Option<&[u32]>,
    bits: Option<u32>,
    cut: u32,
) -> Result<SignBit> {
    use megrez_plan::List as Plan;
    let full = SignBit { list: Plan::Bits, cut, bits };
    if cut >= ring || bits.is_some_and(|b| b == 0 || b > ring - cut) {
        return Err(Error::Refused(format!(
            "a comparison on {ring} bits cannot look at {bits:?} after a cut of {cut}"
        )));
    }
    let list = match (list, widths) {
        (List::Bits, None) => Plan::Bits,
        (List::Digits, Some(widths)) => Plan::Digits(widths.to_vec()),
        (List::Digits, None) => Plan::digits(full.width(ring), Fewest::Total),
        (List::Tree, None) => Plan::Tree,
        (List::Bits | List::Tree, Some(_)) => {
            return Err(Error::Refused("widths go with digits, and no other list".into()));
        }
    };
    Ok(SignBit { list, ..full })
}

/// Comparisons fitted to each layer's values instead; see [`Comparison::Fitted`] for what that
/// tells whoever sees the plan. `slow` links get the widths that send least online.
///
/// # Errors
/// If so few bits compare nothing.
pub fn fitted(
    list: List,
    bits: Option<u32>,
    calibration: Option<Calibration>,
    slow: bool,
) -> Result<Comparison> {
    if bits.is_some_and(|b| b < 2) {
        return Err(Error::Refused("a comparison looks at 2 bits at least".into()));
    }
    let list = list.style(if slow { Fewest::Online } else { Fewest::Total });
    Ok(Comparison::Fitted { list, bits, calibration })
}

fn calibration(from: &FileOr) -> Result<Calibration> {
    let calibration: Calibration = from.load("the calibration")?;
    calibration.check().map_err(|what| from.wrong("the calibration", what))?;
    Ok(calibration)
}

/// The name that stands for all layers that are not named.
const REST: &str = "*";

fn declared(from: &FileOr) -> Result<Declared> {
    let mut layers: BTreeMap<String, Bounds> = from.load("the declaration of ranges")?;
    let all = layers.remove(REST).map(|bounds| bounds.0);
    Ok(Declared { all, layers: layers.into_iter().map(|(name, bounds)| (name, bounds.0)).collect() })
}

#[cfg(test)]
mod tests;
