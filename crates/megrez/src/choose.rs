//! Choosing between forms of a plan by what they cost a network: each is compiled and priced
//! exactly.

use crate::fixed::compile_for;
use megrez_engine::PlanCost;
use megrez_graph::{CompileOptions, Graph, PoolForm};
use megrez_net::NetProfile;
use megrez_plan::ReluForm;
use megrez_service::protocols::{find, price};
use megrez_service::{Error, ErrorKind, Result};
use megrez_session::Phase;

/// The forms of pools to choose from: the one that is given, or both where there are pools.
fn pools(graph: &Graph, given: Option<PoolForm>, options: &CompileOptions) -> Vec<PoolForm> {
    match given {
        Some(pool) => vec![pool],
        None if graph.nodes.iter().any(|node| node.op == "MaxPool") => {
            vec![PoolForm::Tournament, PoolForm::AllPairs]
        }
        None => vec![options.pool],
    }
}

/// Seconds of the network and bits, over both phases.
fn both_phases(cost: &PlanCost, net: &NetProfile) -> (f64, f64) {
    let (delay, transmit) = (net.delay_ns() as f64 * 1e-9, |bytes| net.transmit_ns(bytes) as f64 * 1e-9);
    let phases = [Phase::Offline, Phase::Online];
    let seconds = phases.iter().map(|&p| cost.critical_path(p, delay, transmit).seconds).sum();
    (seconds, phases.iter().map(|&p| cost.bits(p)).sum())
}

/// The form of pools that takes the network least time over both phases, and among equals the
/// fewest bytes, under a protocol that has no forms of ReLU to choose from; others keep that of the
/// options.
pub fn pool(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    protocol: &str,
    net: &NetProfile,
) -> Result<PoolForm> {
    if !find(protocol)?.sums || !graph.nodes.iter().any(|node| node.op == "MaxPool") {
        return Ok(options.pool);
    }
    let mut best = None;
    for pool in [PoolForm::Tournament, PoolForm::AllPairs] {
        let cost =
            price(protocol, &compile_for(graph, client, &CompileOptions { pool, ..options.clone() })?.plan)?;
        let found = both_phases(&cost, net);
        if best.is_none_or(|(least, _)| found < least) {
            best = Some((found, pool));
        }
    }
    Ok(best.map_or(options.pool, |(_, pool)| pool))
}

/// The options whose plan takes the network least time over both phases, and among equals the
/// fewest bytes, when small ReLUs and maxima may be dealt ([`megrez_plan::Plan::deal_below`]): up
/// to which size, in which form, and with which pools, unless these are given. Protocols without
/// such steps get plans without them.
pub fn mix(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    (pool, form): (Option<PoolForm>, Option<ReluForm>),
    protocol: &str,
    net: &NetProfile,
) -> Result<CompileOptions> {
    let pools = pools(graph, pool, options);
    let forms = match form {
        Some(form) => vec![form],
        None => vec![ReluForm::ThreeRounds, ReluForm::TwoRounds, ReluForm::TwoRoundsFresh],
    };
    let mut best: Option<((f64, f64), CompileOptions)> = None;
    for (pool, relu) in pools.iter().flat_map(|&pool| forms.iter().map(move |&relu| (pool, relu))) {
        let options = CompileOptions { pool, relu, ..options.clone() };
        // The steps as they are before any of them is made of others.
        let plain = compile_for(graph, client, &CompileOptions { sums: false, ..options.clone() })?.plan;
        for deal_below in std::iter::once(0).chain(plain.dealt_sizes()) {
            let mut plan = plain.clone();
            plan.deal_below(deal_below);
            if options.sums {
                plan.spread_maxima()
                    .and_then(|()| plan.leave_sums())
                    .map_err(|e| Error::of(ErrorKind::Internal, e))?;
            }
            let Ok(cost) = price(protocol, &plan) else { continue };
            let found = both_phases(&cost, net);
            if best.as_ref().is_none_or(|(least, _)| found < *least) {
                best = Some((found, CompileOptions { deal_below, ..options.clone() }));
            }
        }
    }
    // Without a plan that the protocol can run, compiling says why.
    Ok(best.map_or_else(|| options.clone(), |(_, options)| options))
}

/// The options with the form of ReLU, and the form of pools unless that is given, whose online
/// phase takes the network least time, and among equals the fewest bytes of both phases. Forms that
/// the protocol lacks are left out.
///
/// # Errors
/// If the protocol can run none of them.
pub fn form(
    graph: &Graph,
    client: &str,
    options: &CompileOptions,
    pool: Option<PoolForm>,
    protocol: &str,
    net: &NetProfile,
) -> Result<CompileOptions> {
    let delay = net.delay_ns() as f64 * 1e-9;
    let transmit = |bytes| net.transmit_ns(bytes) as f64 * 1e-9;
    let pools = pools(graph, pool, options);
    let forms = [ReluForm::ThreeRounds, ReluForm::TwoRounds, ReluForm::TwoRoundsFresh, ReluForm::Table];
    let mut best: Option<(f64, f64, CompileOptions)> = None;
    let mut last = None;
    for (pool, relu) in pools.into_iter().flat_map(|pool| forms.map(|relu| (pool, relu))) {
        let options = CompileOptions { relu, pool, ..options.clone() };
        match price(protocol, &compile_for(graph, client, &options)?.plan) {
            Err(e) => last = Some(e),
            Ok(cost) => {
                let seconds = cost.critical_path(Phase::Online, delay, transmit).seconds;
                let bits = cost.bits(Phase::Online) + cost.bits(Phase::Offline);
                if best.as_ref().is_none_or(|(s, b, _)| (seconds, bits) < (*s, *b)) {
                    best = Some((seconds, bits, options));
                }
            }
        }
    }
    match (best, last) {
        (Some((_, _, options)), _) => Ok(options),
        (None, Some(e)) => Err(e),
        (None, None) => unreachable!("every form is priced or refused"),
    }
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
            form(&graph, "client", &options, pool, protocol, &NetProfile::wan()).unwrap().pool
        };
        assert_eq!(chosen("mizar", None), PoolForm::AllPairs);
        assert_eq!(chosen("mizar", Some(PoolForm::Tournament)), PoolForm::Tournament);
        let few = CompileOptions {
            comparison: Comparison::Fixed(SignBit { list: List::Bits, cut: 0, bits: Some(20) }),
            ..options.clone()
        };
        let few = form(&graph, "client", &few, None, "bicoptor", &NetProfile::wan()).unwrap();
        assert_eq!(few.pool, PoolForm::Tournament);
        assert!(price("bicoptor", &compile_for(&graph, "client", &few).unwrap().plan).is_ok());
    }

    #[test]
    fn plans_are_mixed_where_that_is_faster_and_the_protocol_has_the_steps() {
        let graph = models::build("lenet", 1, 1).unwrap();
        let options = CompileOptions { policy: RangePolicy::Assume, sums: true, ..CompileOptions::default() };
        let wan = NetProfile::wan();
        let mixed = |protocol| mix(&graph, "client", &options, (None, None), protocol, &wan).unwrap();
        let seconds = |options: &CompileOptions| {
            let plan = compile_for(&graph, "client", options).unwrap().plan;
            both_phases(&price("aby3", &plan).unwrap(), &wan).0
        };
        let chosen = mixed("aby3");
        assert!(chosen.deal_below > 0);
        assert!(seconds(&chosen) < 0.9 * seconds(&CompileOptions { deal_below: 0, ..chosen.clone() }));
        assert_eq!(mixed("meteor").deal_below, 0, "it has no such steps");
    }
}
