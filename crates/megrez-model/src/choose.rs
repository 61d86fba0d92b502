//! Which form of a plan is cheapest on a network: the variants of a model's options, each compiled
//! and priced exactly, and searched by [`megrez_passes::choose`].

use crate::fixed::compile_for;
use crate::float::Work;
use crate::forecast::Forecast;
use crate::local::Local;
use crate::model::Recipe;
use megrez_graph::{CompileOptions, Graph, PoolForm};
use megrez_net::NetProfile;
use megrez_passes::{Estimate, choose, key_small_relus, legalise, offload_sizes, relu_sizes};
use megrez_plan::{Plan, ReluForm};
use megrez_service::protocols::{self, find};
use megrez_service::{Error, ErrorKind, Result};
use megrez_session::Phase;

/// The phases, and how much a second of each counts.
type Weights = [(Phase, f64); 2];
const BOTH: Weights = [(Phase::Offline, 1.0), (Phase::Online, 1.0)];
/// As widths are chosen for the online phase ([`megrez_plan::Fewest::Online`]).
const ONLINE: Weights = [(Phase::Offline, 0.25), (Phase::Online, 1.0)];

/// Seconds that silent transfers take a core more than those in groups of four, for each byte that
/// these send: 2.5 s for 94 MB of products.
const SILENT_BYTE: f64 = 27e-9;

/// How the parties of a model in floating point are to make transfers: as `work` says, or silently
/// where that is faster on the network.
///
/// # Errors
/// Everything about the model that is not supported.
pub fn transfers(graph: &Graph, client: &str, work: Work, protocol: &str, net: &NetProfile) -> Result<Work> {
    if net.is_unshaped() || find(protocol)?.parties != 2 {
        return Ok(work);
    }
    let silent = Work { group: 0, threads: 1 };
    let of = |work: Work| Forecast::of(&Recipe::Float(work).compile(graph, client)?, protocol, net, 1);
    let (grouped, silently) = (of(work)?, of(silent)?);
    let more = SILENT_BYTE * grouped.sent_bytes() as f64;
    Ok(if silently.network_seconds() + more < grouped.network_seconds() { silent } else { work })
}

/// What a plan is chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Costs<'a> {
    /// The network of the online phase, and of the offline phase.
    pub nets: [&'a NetProfile; 2],
    /// Bytes that a party may hold of a run, if there is a limit.
    pub memory: Option<u64>,
}

impl<'a> From<&'a NetProfile> for Costs<'a> {
    fn from(net: &'a NetProfile) -> Self {
        Costs { nets: [net; 2], memory: None }
    }
}

/// Seconds that a plan takes the networks in both phases, weighted, and that its keys and tables of
/// digits take this machine, with bits of both; and the bytes that a party holds of it at most.
fn priced(protocol: &str, plan: &Plan, nets: [&NetProfile; 2], weights: Weights) -> Result<(Estimate, u64)> {
    let cost = protocols::cost(protocol, plan)?;
    let net = |phase| if phase == Phase::Online { nets[0] } else { nets[1] };
    let seconds = |(phase, weight)| weight * cost.critical_path(phase, net(phase)).seconds;
    let estimate = Estimate {
        seconds: weights.map(seconds).iter().sum::<f64>() + Local::of_this_machine().seconds(plan),
        bits: weights.map(|(phase, _)| cost.bits(phase)).iter().sum(),
    };
    Ok((estimate, cost.memory.into_iter().max().unwrap_or(0)))
}

/// As [`priced`], with one network and any memory.
fn estimate(protocol: &str, plan: &Plan, net: &NetProfile, weights: Weights) -> Result<Estimate> {
    Ok(priced(protocol, plan, [net; 2], weights)?.0)
}

/// The plan before its steps are cut, whose sizes are those of layers: pieces cost what the whole
/// costs.
fn whole(graph: &Graph, client: &str, options: &CompileOptions) -> Result<Plan> {
    Ok(compile_for(graph, client, &CompileOptions { sliced: None, ..options.clone() })?.plan)
}

/// Whether there is a pool whose form could be chosen.
fn has_pools(graph: &Graph) -> bool {
    graph.nodes.iter().any(|node| node.op == "MaxPool")
}

/// The options with every form of pools to choose from (the one that is given, or both where there
/// are pools) and with each of these forms of ReLU.
fn variants<'a>(
    graph: &Graph,
    options: &'a CompileOptions,
    pool: Option<PoolForm>,
    forms: &'a [ReluForm],
) -> impl Iterator<Item = CompileOptions> + use<'a> {
    let pools = match pool {
        Some(pool) => vec![pool],
        None if has_pools(graph) => vec![PoolForm::Tournament, PoolForm::AllPairs],
        None => vec![options.pool],
    };
    let of = move |pool| forms.iter().map(move |&relu| CompileOptions { pool, relu, ..options.clone() });
    pools.into_iter().flat_map(of)
}

/// The form of pools that takes the network least time over both phases, and among equals the
/// fewest bits, under a protocol that has no forms of ReLU to choose from; others keep that of the
/// options.
///
/// # Errors
/// If there is no such protocol, or the model compiles in neither form.
pub fn pool(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    protocol: &str,
    net: &NetProfile,
) -> Result<PoolForm> {
    if !find(protocol)?.deferred_resharing || !has_pools(graph) {
        return Ok(options.pool);
    }
    let forms = [options.relu];
    let chosen = choose(variants(graph, options, None, &forms), |options| {
        estimate(protocol, &whole(graph, client, options)?, net, BOTH)
    });
    chosen.map(|options| options.pool).map_err(|e| e.expect("there are two forms"))
}

/// The options whose plan takes the network least time over both phases, and among equals the
/// fewest bits, when small ReLUs and maxima may go to the dealer
/// ([`megrez_passes::offload_to_dealer`]): up to which size, in which form, and with which pools,
/// unless these are given. Protocols without such steps get plans without them; the options stay as
/// they are where nothing can be run, and compiling them says why.
pub fn mix(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    (pool, form): (Option<PoolForm>, Option<ReluForm>),
    protocol: &str,
    net: &NetProfile,
) -> CompileOptions {
    let forms = match form {
        Some(form) => vec![form],
        None => {
            vec![ReluForm::ThreeRounds, ReluForm::TwoRounds, ReluForm::TwoRoundsFresh, ReluForm::Key]
        }
    };
    // Compiled once for all sizes: the steps as they are before any of them is made of others.
    let compiled = variants(graph, options, pool, &forms).filter_map(|options| {
        let shared = CompileOptions { defer_resharing: false, ..options.clone() };
        Some((whole(graph, client, &shared).ok()?, options))
    });
    let offers = compiled.flat_map(|(plan, options)| {
        let sizes = if options.defer_resharing { offload_sizes(&plan) } else { vec![] };
        std::iter::once(0).chain(sizes).map(move |offload| {
            let mut plan = plan.clone();
            if options.defer_resharing {
                legalise(&mut plan, offload).expect("a plan that was built by the rules keeps to them");
            }
            (CompileOptions { offload, ..options.clone() }, plan)
        })
    });
    let chosen = choose(offers, |(_, plan)| estimate(protocol, plan, net, BOTH));
    chosen.map_or_else(|_| options.clone(), |(options, _)| options)
}

/// What is left to choose besides the form of ReLU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open {
    /// The form of pools; any if none is given.
    pub pool: Option<PoolForm>,
    /// The largest ReLUs that take keys; any size if none is given.
    pub keyed: Option<usize>,
    /// Whether comparisons may be by trees of digits, too.
    pub trees: bool,
}

/// The options with the form of ReLU, the size up to which ReLUs take keys and the form of pools,
/// unless these are given, whose online phase takes the network least time, that of the offline
/// phase counted a quarter, and among equals the fewest bits of both phases. Where comparisons may
/// be any, trees of digits are tried too. Forms that the protocol lacks, or of which a party would
/// hold more than it may, are left out.
///
/// # Errors
/// If none is left.
pub fn form(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    open: Open,
    protocol: &str,
    costs: Costs<'_>,
) -> Result<CompileOptions> {
    use ReluForm::{DigitTables, Key, Table, ThreeRounds, TwoRounds, TwoRoundsFresh};
    let forms = [ThreeRounds, TwoRounds, TwoRoundsFresh, Table, Key, DigitTables];
    let trees = CompileOptions { comparison: options.comparison.by_trees(), ..options.clone() };
    // What a round costs in local work is not counted, and without a network there is nothing else.
    let by_trees = (open.trees && !costs.nets[0].is_unshaped() && find(protocol)?.selects_truncated)
        .then(|| variants(graph, &trees, open.pool, &[ThreeRounds, Key, DigitTables]).collect::<Vec<_>>());
    let all = variants(graph, options, open.pool, &forms).chain(by_trees.into_iter().flatten());
    let compiled = |options: &CompileOptions| whole(graph, client, options);
    let offers = all.flat_map(|options| {
        let options = CompileOptions { keyed: open.keyed.unwrap_or(0), ..options };
        // Compiled once for all sizes, which change nothing but forms.
        let Ok(plan) = compiled(&options) else { return vec![(options, None)] };
        let sizes = match open.keyed {
            None if !costs.nets[0].is_unshaped() => relu_sizes(&plan),
            _ => vec![],
        };
        // The largest means all, and that is a form of its own.
        let smaller = sizes.split_last().map_or(&[][..], |(_, smaller)| smaller);
        let keyed = smaller.iter().map(|&keyed| {
            let mut plan = plan.clone();
            key_small_relus(&mut plan, keyed);
            (CompileOptions { keyed, ..options.clone() }, Some(plan))
        });
        let keyed: Vec<_> = keyed.collect();
        // Of equals the first is taken: none by key.
        std::iter::once((options, Some(plan))).chain(keyed).collect()
    });
    // What a party holds at least in a form that is left out for it.
    let mut least: Option<u64> = None;
    let chosen = choose(offers, |(options, plan)| {
        let price = |plan: &Plan| priced(protocol, plan, costs.nets, ONLINE);
        let (estimate, held) = match plan {
            Some(plan) => price(plan)?,
            // Says once more why there is none.
            None => price(&compiled(options)?)?,
        };
        if costs.memory.is_none_or(|limit| held <= limit) {
            return Ok(estimate);
        }
        let held = least.map_or(held, |least| least.min(held));
        least = Some(held);
        let mib = held as f64 / f64::from(1 << 20);
        let why = format!("a party would hold {mib:.1} MiB of a run at least, which is more than it may");
        Err(Error::of(ErrorKind::Unsupported, why))
    });
    chosen.map(|(options, _)| options).map_err(|e| e.expect("there are six forms"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_graph::{Comparison, RangePolicy, models};
    use megrez_plan::{List, SignBit};

    #[test]
    fn slow_links_get_pools_with_few_rounds_where_the_protocol_has_them() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options = CompileOptions { policy: RangePolicy::Assume, ..CompileOptions::default() };
        let chosen = |protocol: &str, pool| {
            form(
                &graph,
                "client",
                &options,
                Open { pool, keyed: Some(0), ..Open::default() },
                protocol,
                (&NetProfile::wan()).into(),
            )
            .unwrap()
            .pool
        };
        assert_eq!(chosen("mizar", None), PoolForm::AllPairs);
        assert_eq!(chosen("mizar", Some(PoolForm::Tournament)), PoolForm::Tournament);
        let few = CompileOptions {
            comparison: Comparison::Fixed(SignBit { list: List::Bits, cut: 0, bits: Some(20) }),
            ..options.clone()
        };
        let few = form(
            &graph,
            "client",
            &few,
            Open { trees: true, ..Open::default() },
            "bicoptor",
            (&NetProfile::wan()).into(),
        )
        .unwrap();
        assert_eq!(few.pool, PoolForm::Tournament);
        assert!(protocols::cost("bicoptor", &compile_for(&graph, "client", &few).unwrap().plan).is_ok());
    }

    /// Where a round costs more than a key of a small layer, and less than those of a large one.
    #[test]
    fn small_relus_take_keys_where_large_ones_do_not() {
        let graph = models::build("vgg16-cifar", 1, 1).unwrap();
        let options = CompileOptions {
            policy: RangePolicy::Assume,
            comparison: Comparison::Fixed(SignBit { list: List::Bits, cut: 16, bits: Some(16) }),
            ..CompileOptions::default()
        };
        let wan = NetProfile::wan();
        let chosen = |keyed| {
            form(&graph, "client", &options, Open { keyed, ..Open::default() }, "mizar", (&wan).into())
                .unwrap()
        };
        let seconds = |options: &CompileOptions| {
            let plan = compile_for(&graph, "client", options).unwrap().plan;
            estimate("mizar", &plan, &wan, ONLINE).unwrap().seconds
        };
        let (some, none) = (chosen(None), chosen(Some(0)));
        assert!((1000..64 * 32 * 32).contains(&some.keyed) && some.relu != ReluForm::Key, "{}", some.keyed);
        assert_eq!(none.keyed, 0);
        assert!(seconds(&some) < 0.95 * seconds(&none), "{} and {}", seconds(&some), seconds(&none));
        assert_eq!(chosen(Some(77)).keyed, 77);
    }

    /// Material is dealt over a link of its own, and held until it is used.
    #[test]
    fn what_is_chosen_follows_the_network_that_deals_and_the_memory_there_is() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options = CompileOptions {
            policy: RangePolicy::Assume,
            comparison: Comparison::Fixed(SignBit { list: List::Bits, cut: 16, bits: Some(16) }),
            ..CompileOptions::default()
        };
        let [wan, slow, fast] = ["wan", "1ms,1mbps", "loopback"].map(|net| net.parse().unwrap());
        let chosen = |offline, memory| {
            let costs = Costs { nets: [&wan, offline], memory };
            form(&graph, "client", &options, Open::default(), "mizar", costs)
        };
        let offline = |options: &CompileOptions| {
            let plan = compile_for(&graph, "client", options).unwrap().plan;
            let cost = protocols::cost("mizar", &plan).unwrap();
            (cost.bits(Phase::Offline), cost.memory.into_iter().max().unwrap())
        };
        let [by_slow, by_fast] = [&slow, &fast].map(|net| offline(&chosen(net, None).unwrap()));
        assert!(4.0 * by_slow.0 < by_fast.0, "{} and {}", by_slow.0, by_fast.0);
        let limit = (by_slow.1 + by_fast.1) / 2;
        assert!(offline(&chosen(&fast, Some(limit)).unwrap()).1 <= limit);
        let error = chosen(&fast, Some(1 << 10)).unwrap_err().to_string();
        assert!(error.contains("a party would hold"), "{error}");
    }

    /// Small networks win rounds by keys; large ones on fast links would lose more by their bytes
    /// and walks, and without a network there is nothing to win.
    #[test]
    fn keys_are_taken_where_rounds_cost_more_than_they_do() {
        let chosen = |name: &str, net: &NetProfile| {
            let graph = models::build(name, 1, 1).unwrap();
            let options = CompileOptions {
                policy: RangePolicy::Assume,
                comparison: Comparison::Fixed(SignBit { list: List::Bits, cut: 16, bits: Some(16) }),
                ..CompileOptions::default()
            };
            form(&graph, "client", &options, Open::default(), "mizar", net.into()).unwrap().relu
        };
        assert_eq!(chosen("lenet", &NetProfile::wan()), ReluForm::Key);
        assert_ne!(chosen("lenet", &NetProfile::loopback()), ReluForm::Key);
        assert_ne!(chosen("vgg16-cifar", &NetProfile::lan()), ReluForm::Key);
    }

    /// Fewer bytes for a round more: where links are fast, and not where a list was asked for.
    #[test]
    fn trees_are_taken_where_bytes_cost_more_than_a_round() {
        let graph = models::build("vgg16-cifar", 1, 1).unwrap();
        let options = CompileOptions {
            policy: RangePolicy::Assume,
            selects_truncated: true,
            comparison: Comparison::Fixed(SignBit { list: List::Bits, cut: 0, bits: None }),
            ..CompileOptions::default()
        };
        let chosen = |any: bool, protocol: &str, net: &NetProfile| {
            let options = form(
                &graph,
                "client",
                &options,
                Open { trees: any, ..Open::default() },
                protocol,
                net.into(),
            )
            .unwrap();
            options.comparison == options.comparison.by_trees()
        };
        assert!(chosen(true, "mizar", &NetProfile::lan()));
        assert!(!chosen(true, "mizar", &NetProfile::loopback()));
        assert!(!chosen(false, "mizar", &NetProfile::lan()));
        assert!(!chosen(true, "aby3", &NetProfile::lan()));
    }

    #[test]
    fn plans_are_mixed_where_that_is_faster_and_the_protocol_has_the_steps() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options = CompileOptions {
            policy: RangePolicy::Assume,
            defer_resharing: true,
            ..CompileOptions::default()
        };
        let wan = NetProfile::wan();
        let mixed = |protocol| mix(&graph, "client", &options, (None, None), protocol, &wan);
        let seconds = |options: &CompileOptions| {
            let plan = compile_for(&graph, "client", options).unwrap().plan;
            estimate("aby3", &plan, &wan, BOTH).unwrap().seconds
        };
        let chosen = mixed("aby3");
        assert!(chosen.offload > 0);
        assert!(seconds(&chosen) < 0.9 * seconds(&CompileOptions { offload: 0, ..chosen.clone() }));
        assert_eq!(mixed("meteor").offload, 0, "it has no such steps");
    }
}
