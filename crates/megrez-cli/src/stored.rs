//! What a cluster keeps for its clients: `stored`, `allow` and `remove`.

use crate::cluster::{Needs, There};
use crate::jobs::in_days;
use clap::Args;
use megrez::{Material, Result};
use megrez_service::approval::{Grant, Rules, now_s};
use megrez_service::log::date;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Stored {
    #[command(flatten)]
    there: There,
}

pub(crate) fn list(args: &Stored, json: bool) -> Result<ExitCode> {
    let mut cluster = args.there.connect(Needs::Own)?;
    let holdings = cluster.holdings()?;
    if json {
        println!("{}", json!({ "schema": "megrez.stored/1", "stored": holdings }));
        return Ok(ExitCode::SUCCESS);
    }
    if holdings.is_empty() {
        println!("the parties keep nothing that `{}` owns or may use", cluster.name());
    }
    for holding in &holdings {
        let name = holding.name.escape_debug();
        let mut about = vec![format!("of `{}`", holding.owner.escape_debug())];
        if !holding.allow.is_empty() {
            let allow = holding.allow.join("`, `");
            about.push(format!("for `{}`", allow.escape_debug()));
        }
        for grant in &holding.limits {
            let most = |count: Option<u64>, what: &str| count.map(|count| format!("{count} {what}"));
            let until = grant.until_s.map(|until| format!("until {}", &date(until)[..10]));
            let limits = [most(grant.runs, "runs"), most(grant.rows, "rows"), until].into_iter().flatten();
            let limits = limits.collect::<Vec<_>>().join(" and ");
            about.push(format!("`{}` for {limits} at most", grant.client.escape_debug()));
        }
        about.extend(holding.rules.iter().map(|_| "under rules".into()));
        about.extend(holding.protocol.iter().map(|protocol| format!("under `{}`", protocol.escape_debug())));
        if !holding.batches.is_empty() {
            let batches: Vec<String> = holding.batches.iter().map(ToString::to_string).collect();
            about.push(format!("in batches of {}", batches.join(", ")));
        }
        about.push(format!("{:.1} MiB", holding.bytes as f64 / f64::from(1 << 20)));
        about.push(format!("of {}", &holding.written[..10]));
        if !holding.whole {
            let parties: Vec<String> = holding.parties.iter().map(ToString::to_string).collect();
            about.push(format!("NOT WHOLE: at parties {} only, or of different uploads", parties.join(", ")));
        }
        println!("{} {name}: {}", json!(holding.kind).as_str().unwrap_or_default(), about.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub(crate) struct Allow {
    /// The name of a model or of rows that this client has stored.
    name: String,
    /// The clients who may use it from now on, and no others.
    #[arg(required_unless_present = "nobody", value_name = "CLIENT")]
    clients: Vec<String>,
    /// Nobody but this client.
    #[arg(long, conflicts_with = "clients")]
    nobody: bool,
    /// Others who may use it may still, as before.
    #[arg(long)]
    also: bool,
    /// Most runs of each of these clients, from now on.
    #[arg(long)]
    runs: Option<u64>,
    /// Most rows of data of each of these clients, from now on; a run has as many as its batch.
    #[arg(long)]
    rows: Option<u64>,
    /// For how many days these clients may use it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,
    /// A file of TOML with what jobs on these rows have to keep to; without it, whatever their
    /// owner approves.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    there: There,
}

pub(crate) fn allow(args: &Allow, json: bool) -> Result<ExitCode> {
    let mut rules = args.rules.as_deref().map(Rules::load).transpose()?;
    let mut cluster = args.there.connect(Needs::Own)?;
    let (since_s, until_s) = (now_s(), args.days.map(in_days));
    let grant = |client: &String| Grant {
        client: client.clone(),
        since_s,
        runs: args.runs,
        rows: args.rows,
        until_s,
    };
    let mut allow: Vec<Grant> = args.clients.iter().map(grant).collect();
    if args.also {
        let own = cluster.name().to_owned();
        let mut held = cluster.holdings()?.into_iter();
        let held = held.find(|held| held.name == args.name && held.owner == own);
        for client in held.iter().flat_map(|held| &held.allow).filter(|client| !args.clients.contains(client))
        {
            let limits = held.iter().flat_map(|held| &held.limits).find(|grant| grant.client == *client);
            allow.push(limits.cloned().unwrap_or_else(|| Grant::unlimited(client)));
        }
        rules = rules.or_else(|| held?.rules.clone());
    }
    cluster.allow(&args.name, &allow, rules.as_ref())?;
    if json {
        let names: Vec<&String> = allow.iter().map(|grant| &grant.client).collect();
        let limits: Vec<&Grant> = allow.iter().filter(|grant| grant.is_limited()).collect();
        println!(
            "{}",
            json!({ "schema": "megrez.allow/1", "name": args.name, "allow": names, "limits": limits, "rules": rules })
        );
    } else if args.nobody {
        println!("`{}` may be used by nobody else", args.name);
    } else {
        println!("`{}` may be used by `{}`", args.name, args.clients.join("`, `"));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Args)]
pub(crate) struct Remove {
    /// The name of a model or of rows.
    #[arg(required_unless_present = "material")]
    name: Option<String>,
    /// Remove this material instead, which is not used up: 32 hexadecimal digits.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    material: Option<Material>,
    #[command(flatten)]
    there: There,
}

pub(crate) fn remove(args: &Remove, json: bool) -> Result<ExitCode> {
    let mut cluster = args.there.connect(Needs::Own)?;
    let name = match (&args.name, args.material) {
        (_, Some(material)) => {
            cluster.discard(material.into())?;
            material.to_string()
        }
        (Some(name), None) => {
            cluster.remove(name)?;
            name.clone()
        }
        (None, None) => unreachable!("one of them is required"),
    };
    if json {
        println!("{}", json!({ "schema": "megrez.remove/1", "name": name }));
    } else {
        println!("`{name}` is removed");
    }
    Ok(ExitCode::SUCCESS)
}
