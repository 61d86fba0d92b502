//! The console: one page on the operator's address that shows what this party does and keeps. It
//! is made here, takes no commands, holds no script, and loads nothing from elsewhere.
//!
//! Names of clients, models and jobs are shown, which metrics leave out: metrics are collected and
//! compared between firms, while this page is its operator's own. Values, shares, keys and
//! randomness are nowhere near it. Names come from clients and may be anything, so that what is
//! written is escaped, and cut.

use super::host::free_bytes;
use super::jobs::material_folder;
use super::service::Service;
use super::stored::ModelHeader;
use crate::log::timestamp;
use crate::wire::{StoredKind, VERSION};
use megrez_engine::{files, store};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The page is made anew after this, however often somebody looks.
const FRESH: Duration = Duration::from_secs(2);
/// Most rows of a table.
const ROWS: usize = 200;
/// Longest text of a client's, in characters.
const LONGEST: usize = 80;
/// A certificate with fewer days left is marked.
const SOON: i64 = 30;

/// What a browser is told of the page: it runs nothing, loads nothing, and nobody frames it.
pub(super) const HEADERS: [(&str, &str); 5] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
];

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--bad:#b3261e;--good:#1b6e3c}\
@media(prefers-color-scheme:dark){:root{--bad:#ff8a80;--good:#7bd88f}}\
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:68rem;padding:1rem 1.25rem 3rem}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .4rem}p{margin:.3rem 0;overflow-wrap:anywhere}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.3rem 1.1rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}\
th:last-child,td:last-child{padding-right:0}td{max-width:min(17rem,40vw);overflow-wrap:break-word}\
th{font-weight:600}th,.n{white-space:nowrap}.n{text-align:right;font-variant-numeric:tabular-nums}\
.n:first-child{text-align:left}.none,small{opacity:.7}.bad{color:var(--bad)}.good{color:var(--good)}\
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(max(9rem,20%),1fr));gap:.8rem;margin:1rem 0}\
dt{font-size:.85rem;opacity:.7}dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}";

/// Makes the page, and keeps it for a moment.
pub(super) struct Console {
    made: Mutex<Option<(Instant, String)>>,
}

impl Console {
    pub(super) fn new() -> Self {
        Console { made: Mutex::default() }
    }

    /// The page as it is now, or was a moment ago.
    pub(super) fn page(&self, service: &Service) -> String {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some((since, page)) if since.elapsed() < FRESH => page.clone(),
            _ => {
                let page = page(service);
                *made = Some((Instant::now(), page.clone()));
                page
            }
        }
    }
}

/// Whether a request that names this host may see the page. A page of somebody else's, whose name
/// is made to lead to this address, could otherwise read it in the operator's browser.
pub(super) fn trusted(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

/// Text from elsewhere, as it may stand in HTML.
struct Text<'a>(&'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(LONGEST) {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // What would turn the direction of what follows, or hide it.
                c if c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}') =>
                {
                    f.write_char('\u{fffd}')?;
                }
                c => f.write_char(c)?,
            }
        }
        if self.0.chars().nth(LONGEST).is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// A cell of a table. What is bad is a text that the operator has to look at.
enum Cell {
    Text(String),
    Number(String),
    Bad(String),
}

fn text(text: impl Display) -> Cell {
    Cell::Text(text.to_string())
}

fn number(number: impl Display) -> Cell {
    Cell::Number(number.to_string())
}

/// A table under a heading; `none` stands there if it has no rows, and of many rows only the first
/// are shown.
fn table(out: &mut String, title: &str, columns: &[&str], rows: &[Vec<Cell>], none: &str) -> fmt::Result {
    write!(out, "<h2>{title}</h2>")?;
    if rows.is_empty() {
        return write!(out, "<p class=none>{none}</p>");
    }
    out.push_str("<div class=wide><table><thead><tr>");
    for (i, column) in columns.iter().enumerate() {
        let class = if matches!(rows[0].get(i), Some(Cell::Number(_))) { " class=n" } else { "" };
        write!(out, "<th scope=col{class}>{column}</th>")?;
    }
    out.push_str("</tr></thead><tbody>");
    for row in rows.iter().take(ROWS) {
        out.push_str("<tr>");
        for cell in row {
            match cell {
                Cell::Text(text) => write!(out, "<td>{}</td>", Text(text))?,
                Cell::Number(number) => write!(out, "<td class=n>{}</td>", Text(number))?,
                Cell::Bad(text) => write!(out, "<td class=bad>{}</td>", Text(text))?,
            }
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div>");
    if rows.len() > ROWS { write!(out, "<p class=none>and {} more</p>", rows.len() - ROWS) } else { Ok(()) }
}

fn page(service: &Service) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = write(service, &mut out);
    out
}

fn write(service: &Service, out: &mut String) -> fmt::Result {
    let info = service.info();
    let parties = service.host.endpoint.parties();
    write!(
        out,
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <meta http-equiv=refresh content=10><title>Party {0} · megrez</title><style>{STYLE}</style></head><body>\
         <header><h1>Party {0} of {parties}</h1><p><small>megrez {1}, wire version {VERSION}, {2}; {3} UTC</small></p></header><main>",
        info.party,
        Text(&info.release),
        Text(&info.device),
        moment(SystemTime::now()),
    )?;
    for (name, problem) in service.checks() {
        match problem {
            None => write!(out, "<p class=good>✓ {}</p>", Text(name))?,
            Some(problem) => write!(out, "<p class=bad>✗ {}: {}</p>", Text(name), Text(&problem))?,
        }
    }
    let figures = service.metrics.figures();
    let left = figures.expires.map(|at| (at - seconds(SystemTime::now()) as i64).div_euclid(24 * 3600));
    let minutes = figures.up.as_secs_f64() / 60.0;
    let done: u64 = figures.requests.iter().map(|request| request.done).sum();
    let class = if left.is_some_and(|days| days < SOON) { " class=bad" } else { "" };
    let days = left.map_or_else(|| "unknown".into(), |days| format!("{days} days"));
    write!(
        out,
        "<dl><div><dt>up for</dt><dd>{}</dd></div><div><dt>sessions</dt><dd>{}</dd></div>\
         <div><dt>waiting</dt><dd>{}</dd></div><div><dt>connections</dt><dd>{}</dd></div>\
         <div><dt>requests a minute</dt><dd>{:.1}</dd></div>\
         <div><dt>refused connections</dt><dd>{}</dd></div><div><dt>free on the disk</dt><dd>{}</dd></div>\
         <div><dt>certificate, left</dt><dd{class}>{days}</dd></div></dl>",
        time(figures.up),
        info.sessions,
        info.waiting,
        service.connections.count(),
        done as f64 / minutes.max(1.0 / 60.0),
        figures.refused,
        free_bytes(&service.host.policy.data).map_or_else(|| "unknown".into(), size),
    )?;
    let clients = clients(service);
    table(
        out,
        "Clients",
        &["client", "connections", "sessions", "waiting"],
        &clients,
        "no client is connected",
    )?;
    let rows: Vec<_> = figures
        .requests
        .iter()
        .map(|request| {
            let mean = request.seconds / (request.done + request.failed).max(1) as f64;
            vec![
                text(request.kind),
                number(request.done),
                number(request.failed),
                number(format!("{mean:.3} s")),
            ]
        })
        .collect();
    table(out, "Requests", &["kind", "done", "failed", "mean time"], &rows, "nothing has been asked yet")?;
    let rows: Vec<_> = figures
        .sent
        .iter()
        .map(|(peer, bytes)| vec![text(format!("party {peer}")), number(size(*bytes))])
        .collect();
    table(out, "Sent to other parties", &["to", "bytes"], &rows, "nothing yet")?;
    let columns = ["name", "kind", "owner", "for", "protocol", "batches", "size", "stored (UTC)"];
    table(out, "Stored models and rows", &columns, &models(service), "nothing is stored")?;
    let rows = material(service);
    table(out, "Randomness made ahead", &["batches", "size"], &rows, "none")?;
    let columns = ["job", "client", "state", "epoch"];
    table(out, "Training jobs", &columns, &jobs(service), "no job has begun here")?;
    let rows: Vec<_> = service
        .approvals()
        .into_iter()
        .map(|(job, owner, of)| vec![text(short(&job)), text(owner), text(of)])
        .collect();
    let columns = ["job", "approved by", "for"];
    table(out, "Approvals of jobs that have not begun", &columns, &rows, "none")?;
    out.push_str("</main></body></html>\n");
    Ok(())
}

fn clients(service: &Service) -> Vec<Vec<Cell>> {
    let mut all: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    for (place, counts) in
        [service.connections.by_client(), service.admission.running(), service.admission.waiting_clients()]
            .into_iter()
            .enumerate()
    {
        counts.into_iter().for_each(|(client, count)| all.entry(client).or_default()[place] += count);
    }
    let row = |(client, counts): (String, [usize; 3])| {
        std::iter::once(text(client)).chain(counts.map(number)).collect()
    };
    all.into_iter().map(row).collect()
}

/// The newest files first; of those beyond what is shown nothing is read.
fn models(service: &Service) -> Vec<Vec<Cell>> {
    let (me, models) = (service.host.endpoint.me(), &service.host.policy.models);
    let mut files = models.list().unwrap_or_default();
    files.sort_by_key(|(path, written)| (std::cmp::Reverse(*written), path.clone()));
    let row = |(i, (path, written)): (usize, &(std::path::PathBuf, SystemTime))| {
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = path.metadata().map_or(0, |about| about.len());
        let header = if i < ROWS { ModelHeader::peek(models, path, me).ok().flatten() } else { None };
        let item = header.as_ref().and_then(|header| header.item(&header.owner, bytes, 0));
        let Some(item) = item else {
            let mut row = vec![text(file), Cell::Bad("unreadable".into())];
            row.extend(["", "", "", ""].map(text));
            row.extend([number(size(bytes)), number(date(*written))]);
            return row;
        };
        let batches: Vec<String> = item.batches.iter().map(ToString::to_string).collect();
        let kind = if item.kind == StoredKind::Rows { "rows" } else { "model" };
        vec![
            text(item.name),
            text(kind),
            text(item.owner),
            text(item.allow.join(", ")),
            text(item.protocol.unwrap_or_default()),
            text(batches.join(", ")),
            number(size(bytes)),
            number(date(*written)),
        ]
    };
    files.iter().enumerate().map(row).collect()
}

fn material(service: &Service) -> Vec<Vec<Cell>> {
    let found = files::of_extension(&material_folder(&service.host), store::EXTENSION).unwrap_or_default();
    let bytes: u64 = found.iter().filter_map(|(path, _)| Some(path.metadata().ok()?.len())).sum();
    if found.is_empty() { vec![] } else { vec![vec![number(found.len()), number(size(bytes))]] }
}

fn jobs(service: &Service) -> Vec<Vec<Cell>> {
    let row = |job: super::training::Known| {
        vec![
            text(short(&job.name)),
            text(job.client),
            text(job.state),
            number(format!("{} of {}", job.epoch, job.epochs)),
        ]
    };
    service.known_jobs(ROWS).into_iter().map(row).collect()
}

/// The beginning of a hash or a name of digits.
fn short(digits: &str) -> String {
    digits.chars().take(16).collect()
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Day and minute, in UTC.
fn date(time: SystemTime) -> String {
    moment(time).chars().take(16).collect()
}

/// Day and second, in UTC.
fn moment(time: SystemTime) -> String {
    timestamp(time).chars().take(19).collect::<String>().replace('T', " ")
}

fn time(time: Duration) -> String {
    let (days, hours, minutes) =
        (time.as_secs() / 86400, time.as_secs() / 3600 % 24, time.as_secs() / 60 % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes} min"),
        (0, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_name_things_stays_text() {
        let hostile = "<script>alert('1')</script>&\"\u{202e}x\n";
        let shown = Text(hostile).to_string();
        assert_eq!(shown, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;\u{fffd}x\u{fffd}");
        assert_eq!(Text(&"a".repeat(1000)).to_string(), format!("{}…", "a".repeat(LONGEST)));
        let mut out = String::new();
        table(&mut out, "T", &["a", "b"], &[vec![text(hostile), number(7)]], "none").unwrap();
        table(&mut out, "T", &["a"], &[vec![Cell::Bad(hostile.into())]], "none").unwrap();
        assert!(!out.contains("<script") && out.contains("<td class=n>7</td>"), "{out}");
    }

    #[test]
    fn tables_are_as_long_as_they_may_be() {
        let rows: Vec<_> = (0..1000).map(|i| vec![number(i)]).collect();
        let mut out = String::new();
        table(&mut out, "T", &["a"], &rows, "none").unwrap();
        assert_eq!(out.matches("<td").count(), ROWS);
        assert!(out.contains("and 800 more"));
        out.clear();
        table(&mut out, "T", &["a"], &[], "there is nothing").unwrap();
        assert!(out.contains("there is nothing") && !out.contains("<table"));
    }

    #[test]
    fn only_addresses_and_this_machine_are_trusted_hosts() {
        for host in ["127.0.0.1:7701", "localhost", "LOCALHOST:1", "[::1]:7701", "[::1]", "10.0.0.5"] {
            assert!(trusted(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7701",
            "127.0.0.1.evil.example:7701",
            "[evil]:1",
            "localhost.evil",
        ] {
            assert!(!trusted(host), "{host}");
        }
    }

    #[test]
    fn times_and_sizes_are_read_at_a_glance() {
        let of = |seconds| time(Duration::from_secs(seconds));
        assert_eq!([of(59), of(7260), of(90_000)], ["0 min", "2 h 1 min", "1 d 1 h"]);
        assert_eq!(
            [size(12), size(1536), size(5 << 20), size(3 << 30)],
            ["12 B", "1.5 KiB", "5.0 MiB", "3.00 GiB"]
        );
    }
}
