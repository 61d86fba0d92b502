//! What a cluster keeps for its clients: `stored`, `allow` and `remove`.

use crate::cluster::{Needs, There};
use clap::Args;
use megrez::{Material, Result};
use serde_json::json;
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
    #[command(flatten)]
    there: There,
}

pub(crate) fn allow(args: &Allow, json: bool) -> Result<ExitCode> {
    args.there.connect(Needs::Own)?.allow(&args.name, &args.clients)?;
    if json {
        println!("{}", json!({ "schema": "megrez.allow/1", "name": args.name, "allow": args.clients }));
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
