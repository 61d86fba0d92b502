//! `megrez certs`: the certificates of a deployment, from the first to the last.

use clap::Args;
use megrez::{Error, Result};
use megrez_net::{PeerName, certs};
use megrez_service::party::RENEW_DAYS;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Certs {
    /// The folder with the certificates.
    #[arg(long, default_value = "certs")]
    folder: PathBuf,
    /// How many parties.
    #[arg(long, default_value_t = 3)]
    parties: usize,
    /// Names of clients.
    #[arg(long, value_delimiter = ',', default_value = "alice")]
    clients: Vec<String>,
    /// In place of all parties and clients, those of one organisation, which has an authority of
    /// its own: party0,alice. The others name it in their authorities.toml.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "clients")]
    only: Vec<String>,
    /// Days until new certificates expire.
    #[arg(long, default_value_t = 365)]
    days: u32,
    /// Days until a new authority expires.
    #[arg(long, default_value_t = 1825)]
    authority_days: u32,
    #[command(flatten)]
    change: Change,
}

/// What to do with a folder that is there already.
#[derive(Args)]
#[group(multiple = false)]
#[command(next_help_heading = "With a folder that is there already")]
struct Change {
    /// Add one client.
    #[arg(long, value_name = "CLIENT")]
    add_client: Option<String>,
    /// Renew certificates and keys: party0,alice or all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    renew: Vec<String>,
    /// Revoke certificates: they go onto the list crl.pem, which every party and client then needs.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    revoke: Vec<String>,
    /// Make a new authority beside the one there; both are trusted from then on.
    #[arg(long)]
    renew_authority: bool,
    /// Trust the newest authority alone.
    #[arg(long)]
    retire_authority: bool,
    /// Show whose certificates are there, how long they last, and what is wrong with them; exits
    /// with 1 if one needs to be renewed.
    #[arg(long)]
    show: bool,
}

pub(crate) fn run(args: &Certs, json: bool) -> Result<ExitCode> {
    let (folder, change) = (&args.folder, &args.change);
    if change.show {
        return show(folder, json);
    }
    let each = |names: &[String], act: &dyn Fn(&PeerName) -> Result<Vec<PathBuf>>| -> Result<Vec<PathBuf>> {
        let names = named(folder, names)?;
        let files = names.iter().map(act).collect::<Result<Vec<_>>>()?;
        Ok(files.into_iter().flatten().collect())
    };
    const EVERYBODY: &str = "give everybody the new ca.pem and tell the parties (SIGHUP)";
    let (mut files, next) = if let Some(client) = &change.add_client {
        let next = "give the client its .pem and .key, ca.pem and, if it is there, crl.pem";
        (certs::add_client(folder, client, args.days)?, next)
    } else if !change.renew.is_empty() {
        let next = "give each its new .pem and .key and tell the parties (SIGHUP); old ones stay valid until they expire or are revoked";
        (each(&change.renew, &|name| Ok(certs::renew(folder, name, args.days)?))?, next)
    } else if !change.revoke.is_empty() {
        let next = "give crl.pem to every party and client, beside ca.pem, and tell the parties (SIGHUP)";
        (each(&change.revoke, &|name| Ok(certs::revoke(folder, name)?))?, next)
    } else if change.renew_authority {
        let files = certs::renew_authority(folder, args.authority_days)?;
        (
            files,
            "give everybody the new ca.pem and tell the parties (SIGHUP); then --renew all; then --retire-authority",
        )
    } else if change.retire_authority {
        (certs::retire_authority(folder)?, EVERYBODY)
    } else {
        let request = certs::Request {
            parties: args.parties,
            clients: args.clients.clone(),
            hosts: vec![],
            days: args.days,
            authority_days: args.authority_days,
            only: args.only.iter().map(|text| name(text)).collect::<Result<_>>()?,
        };
        let next = "give each party its own .pem and .key and ca.pem; keep ca.key off their machines";
        (certs::generate(folder, &request)?, next)
    };
    files.dedup();
    if json {
        println!("{}", json!({ "schema": "megrez.certs/1", "files": files }));
    } else {
        files.iter().for_each(|f| println!("{}", f.display()));
        println!("{next}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Everybody of whom there is a certificate in a folder.
fn everybody(folder: &Path) -> Result<Vec<PeerName>> {
    let entries = std::fs::read_dir(folder).map_err(|e| Error::file(folder, e))?;
    let mut names = vec![];
    for entry in entries {
        let path = entry.map_err(|e| Error::file(folder, e))?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if path.extension().is_some_and(|end| end == "pem") {
            names.extend(name(stem).ok());
        }
    }
    names.sort();
    Ok(names)
}

fn name(text: &str) -> Result<PeerName> {
    Ok(text.parse().or_else(|_| PeerName::client(text))?)
}

/// `all`, or the names as they are written.
fn named(folder: &Path, names: &[String]) -> Result<Vec<PeerName>> {
    match names {
        [all] if all == "all" => everybody(folder),
        names => names.iter().map(|text| name(text)).collect(),
    }
}

fn show(folder: &Path, json: bool) -> Result<ExitCode> {
    let names = everybody(folder)?;
    if names.is_empty() {
        let what = format!("there is no certificate in {}", folder.display());
        return Err(Error::Refused(what));
    }
    let reports = names.iter().map(|name| Ok(certs::inspect(folder, name)?)).collect::<Result<Vec<_>>>()?;
    let due = |report: &certs::Report| report.days_left < RENEW_DAYS || !report.problems.is_empty();
    if json {
        let shown = reports.iter().map(|r| {
            json!({ "name": r.name.to_string(), "not_after": r.not_after, "days_left": r.days_left,
                "problems": r.problems, "needs_renewal": due(r) })
        });
        let shown: Vec<_> = shown.collect();
        println!("{}", json!({ "schema": "megrez.certs-show/1", "certificates": shown }));
    } else {
        for report in &reports {
            let note = if due(report) { "  renew it: megrez certs --renew" } else { "" };
            println!("{:<24} {:>5} days left{note}", report.name.to_string(), report.days_left);
            report.problems.iter().for_each(|problem| println!("  problem: {problem}"));
        }
    }
    Ok(if reports.iter().any(due) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
