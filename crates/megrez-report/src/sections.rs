//! What stands on a page, a function for each part.

use crate::charts::{Bar, Scale, bars, timeline};
use crate::error::PageError;
use crate::html::{details, escape, figure, list, paragraph, section, table, warning, words};
use crate::numbers::{At, bytes, ratio, seconds};
use serde_json::Value;
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, PageError>;

/// Lines of a picture; what is beyond stands in the table below it.
const LINES: usize = 40;

fn report(run: &Value) -> Result<At<'_>> {
    match run["schema"].as_str().unwrap_or("none") {
        "megrez.infer/1" | "megrez.demo/1" => Ok(At::new(run)),
        other => Err(PageError::Kind(other.into())),
    }
}

/// How it ran; an older report does not say.
fn mode<'a>(run: &At<'a>) -> Result<Option<&'a str>> {
    let mode = run.get("mode");
    if mode.is_null() { Ok(None) } else { mode.text().map(Some) }
}

pub fn title(run: &Value) -> Result<String> {
    let run = report(run)?;
    let how = match mode(&run)? {
        Some("simulate") => "simulated",
        Some("clear") => return Ok("inference in the clear".into()),
        _ => "private",
    };
    Ok(format!("{how} inference under {}", run.get("protocol").text()?))
}

pub fn summary(run: &Value, title: &str) -> Result<String> {
    let run = report(run)?;
    let mut facts = vec![format!("batch of {}", run.get("batch").whole()?)];
    if !run.get("runs").is_null() {
        facts.push(match run.get("runs").whole()? {
            1 => "one run".into(),
            runs => format!("{runs} runs"),
        });
    }
    if !run.get("range").is_null() {
        facts.push(format!("ranges {}", run.get("range").text()?));
    }
    let devices: Result<Vec<&str>> = run.get("cost").get("device").items()?.iter().map(At::text).collect();
    facts.push(devices?.join(" | "));
    let mut out = format!("<h1>{}</h1>\n", escape(&capital(title)));
    out += &paragraph(&facts.join(" · "));
    if run.get("insecure").flag()? {
        out += &warning(
            "The caller asked for a protocol that does not protect: what stands below was not private.",
        );
    }
    if mode(&run)? == Some("simulate") {
        out += &warning(
            "One process did the steps of all parties: nothing was private. Seconds are of its work and of the network, one after the other.",
        );
    }
    if !run.get("distances").is_null() && !run.get("distances").items()?.is_empty() {
        let row = |far: &At<'_>| {
            let number = |name: &str| Ok(format!("{:.2e}", far.get(name).number()?));
            Ok(vec![far.get("name").text()?.to_owned(), number("largest")?, number("mean")?])
        };
        let rows: Result<Vec<Vec<String>>> = run.get("distances").items()?.iter().map(row).collect();
        out += &words(&["output", "off the clear at most", "in the mean"], &rows?);
    }
    if !run.get("outputs").is_null() {
        let row =
            |output: &At<'_>| Ok(vec![output.get("name").text()?.to_owned(), output.get("shape").shape()?]);
        let rows: Result<Vec<Vec<String>>> = run.get("outputs").items()?.iter().map(row).collect();
        out += &words(&["output", "shape"], &rows?);
    }
    Ok(out)
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Who gives, who learns, what everybody sees.
pub fn disclosure(disclosure: &Value) -> Result<String> {
    let all = At::new(disclosure);
    let mut out = paragraph(&format!(
        "{} computes between {} parties; it protects against {}.",
        all.get("protocol").text()?,
        all.get("parties").whole()?,
        all.get("security").text()?
    ));
    for text in all.get("warnings").texts()? {
        out += &warning(&text);
    }
    let given = |one: &At<'_>| {
        let range = match one.get("range") {
            range if range.is_null() => String::new(),
            range => {
                let ends: Result<Vec<String>> =
                    range.items()?.iter().map(|end| Ok(end.number()?.to_string())).collect();
                ends?.join(" to ")
            }
        };
        let shape = match one.get("shape") {
            shape if shape.is_null() => format!("{} numbers", one.get("numbers").whole()?),
            shape => shape.shape()?,
        };
        Ok(vec![
            one.get("owner").text()?.into(),
            one.get("name").text()?.into(),
            one.get("kind").text()?.into(),
            shape,
            range,
        ])
    };
    let rows: Result<Vec<Vec<String>>> = all.get("gives").items()?.iter().map(given).collect();
    out += &words(&["who gives", "what", "kind", "shape", "declared range"], &rows?);
    let learned = |one: &At<'_>| {
        let by_row = if one.get("by_row").flag()? { "each row from one row of the data" } else { "" };
        let then = one.get("then").texts()?.join(", ");
        Ok(vec![
            one.get("recipient").text()?.into(),
            one.get("name").text()?.into(),
            one.get("shape").shape()?,
            then,
            by_row.into(),
        ])
    };
    let rows: Result<Vec<Vec<String>>> = all.get("learns").items()?.iter().map(learned).collect();
    out += &words(&["who learns", "what", "shape", "made of it afterwards", ""], &rows?);
    let opened = all.get("opened").texts()?;
    if !opened.is_empty() {
        out += &format!("{}{}", paragraph("Opened to a party besides:"), list(&opened));
    }
    out += &details("What everybody sees", &list(&all.get("everybody_sees").texts()?));
    Ok(section("Who learns what", &out))
}

/// The phases in the order in which they may run.
fn phases_of<'a>(cost: &At<'a>) -> Result<Vec<(&'a str, At<'a>)>> {
    let mut phases = cost.get("phases").entries()?;
    phases.retain(|(name, _)| *name != "setup");
    phases.sort_by_key(|(name, _)| {
        ["offline", "input", "online", "output"].iter().position(|phase| phase == name)
    });
    Ok(phases)
}

/// Time and bytes by phase.
pub fn phases(run: &Value) -> Result<String> {
    let cost = report(run)?.get("cost");
    let parties = cost.get("device").items()?.len();
    let mut rows = vec![];
    // Links that carry something, and what they carry in each phase.
    let mut links: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
    let mut names = vec![];
    for (name, phase) in phases_of(&cost)? {
        let time = phase.get("seconds");
        let mut sent = vec![0.0; parties];
        for (link, count) in phase.get("sent_bytes").entries()? {
            let count = count.number()?;
            let from = link.split('>').next().and_then(|from| from.parse::<usize>().ok());
            if let Some(sent) = from.and_then(|from| sent.get_mut(from)) {
                *sent += count;
            }
            *links.entry(link).or_default().entry(name).or_default() += count;
        }
        let spread =
            format!("{} – {}", seconds(time.get("min").number()?), seconds(time.get("max").number()?));
        let mut row = vec![
            name.to_owned(),
            phase.get("rounds").whole()?.to_string(),
            seconds(time.get("median").number()?),
            spread,
        ];
        row.extend(sent.into_iter().map(bytes));
        rows.push(row);
        names.push(name);
    }
    let heads: Vec<String> = (0..parties).map(|party| format!("party {party} sent")).collect();
    let head: Vec<&str> = ["phase", "rounds", "time", "from – to"]
        .into_iter()
        .chain(heads.iter().map(String::as_str))
        .collect();
    let lines: Vec<Bar> = links
        .iter()
        .filter(|(_, by_phase)| by_phase.values().sum::<f64>() > 0.0)
        .map(|(link, by_phase)| Bar {
            name: format!("party {}", link.replace('>', " to ")),
            values: names.iter().map(|name| by_phase.get(name).copied().unwrap_or(0.0)).collect(),
        })
        .collect();
    let mut out = table(&head, &rows);
    out += &paragraph(
        "Rounds are messages on the critical path; time is the slowest party's, the median over the runs.",
    );
    if !lines.is_empty() {
        let caption = "Payload bytes of protocol messages on each link, by phase. The offline phase needs no data and may run ahead.";
        out += &figure(&bars(&names, &lines, Scale::Linear, true, &bytes), caption);
    }
    Ok(section("Cost by phase", &out))
}

struct Layer {
    name: String,
    rounds: u64,
    seconds: f64,
    offline: f64,
    online: f64,
}

fn layers_of(run: &Value) -> Result<Vec<Layer>> {
    let layer = |layer: &At<'_>| {
        Ok(Layer {
            name: layer.get("layer").text()?.into(),
            rounds: layer.get("online_rounds").whole()?,
            seconds: layer.get("online_seconds").number()?,
            offline: layer.get("offline_bytes").number()?,
            online: layer.get("online_bytes").number()?,
        })
    };
    report(run)?.get("cost").get("layers").items()?.iter().map(layer).collect()
}

/// The layers that stand in a picture: those with the largest number, in the model's order.
fn largest(layers: &[Layer], of: impl Fn(&Layer) -> f64) -> Vec<&Layer> {
    let mut order: Vec<usize> = (0..layers.len()).collect();
    order.sort_by(|a, b| of(&layers[*b]).total_cmp(&of(&layers[*a])));
    order.truncate(LINES);
    order.sort_unstable();
    order.into_iter().map(|i| &layers[i]).collect()
}

/// Time, rounds and bytes by layer.
pub fn layers(run: &Value) -> Result<String> {
    let layers = layers_of(run)?;
    if layers.is_empty() {
        return Ok(String::new());
    }
    let mut out = String::new();
    let (mut start, mut round, mut spans) = (0.0, 0, vec![]);
    for layer in &layers {
        let (first, end) = (round + 1, start + layer.seconds);
        round += layer.rounds;
        let note = match layer.rounds {
            0 => "no round".into(),
            1 => format!("round {first}"),
            _ => format!("rounds {first} – {round}"),
        };
        spans.push((layer.name.clone(), start, end, note));
        start = end;
    }
    if spans.len() > LINES {
        spans.sort_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)));
        spans.truncate(LINES);
        spans.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    let all = |what: &str| match layers.len() > LINES {
        true => format!("{what} Of {} layers, the {LINES} largest.", layers.len()),
        false => what.into(),
    };
    let caption = all(
        "The online phase, layer after layer: seconds of the slowest party, waiting for messages included, and the rounds that a layer adds.",
    );
    out += &figure(&timeline(&spans, &seconds), &caption);
    let lines: Vec<Bar> = largest(&layers, |l| l.offline + l.online)
        .into_iter()
        .map(|l| Bar { name: l.name.clone(), values: vec![l.offline, l.online] })
        .collect();
    out += &figure(
        &bars(&["offline", "online"], &lines, Scale::Linear, true, &bytes),
        &all("Payload bytes over all links together, by layer."),
    );
    let row = |l: &Layer| {
        vec![l.name.clone(), l.rounds.to_string(), seconds(l.seconds), bytes(l.offline), bytes(l.online)]
    };
    let rows: Vec<Vec<String>> = layers.iter().map(row).collect();
    out += &details(
        "All layers in numbers",
        &table(&["layer", "rounds", "time", "offline, all links", "online, all links"], &rows),
    );
    Ok(section("Cost by layer", &out))
}

/// This run over an earlier one.
pub fn comparison(run: &Value, before: &Value) -> Result<String> {
    let (now, then) = (report(run)?, report(before)?);
    let name =
        |run: &At<'_>| Ok(format!("{}, batch of {}", run.get("protocol").text()?, run.get("batch").whole()?));
    let total = |phase: &At<'_>| -> Result<f64> {
        phase.get("sent_bytes").entries()?.iter().map(|(_, count)| count.number()).sum()
    };
    let mut rows = vec![];
    for (phase, now) in
        now.get("cost").get("phases").entries()?.into_iter().filter(|(name, _)| *name != "setup")
    {
        let then = then.get("cost").get("phases").get(phase);
        if then.is_null() {
            continue;
        }
        let time = |of: &At<'_>| of.get("seconds").get("median").number();
        let (rounds, earlier) = (now.get("rounds").number()?, then.get("rounds").number()?);
        rows.push(vec![
            phase.to_owned(),
            format!("{rounds} : {earlier}"),
            format!("{} : {}", seconds(time(&now)?), seconds(time(&then)?)),
            ratio(time(&now)?, time(&then)?),
            format!("{} : {}", bytes(total(&now)?), bytes(total(&then)?)),
            ratio(total(&now)?, total(&then)?),
        ]);
    }
    let mut out = paragraph(&format!("This run ({}) beside the other one ({}).", name(&now)?, name(&then)?));
    out += &table(&["phase", "rounds", "time", "", "bytes, all links", ""], &rows);
    let then = layers_of(before)?;
    let row = |l: &Layer| {
        let other = then.iter().find(|other| other.name == l.name)?;
        let sum = |l: &Layer| l.offline + l.online;
        Some(vec![
            l.name.clone(),
            format!("{} : {}", l.rounds, other.rounds),
            ratio(l.seconds, other.seconds),
            ratio(sum(l), sum(other)),
        ])
    };
    let rows: Vec<Vec<String>> = layers_of(run)?.iter().filter_map(row).collect();
    if !rows.is_empty() {
        out += &details("Layer by layer", &table(&["layer", "rounds", "time", "bytes, both phases"], &rows));
    }
    Ok(section("Compared", &out))
}

/// Every layer on shares against the clear.
pub fn check(layers: &Value) -> Result<String> {
    let layers = At::new(layers).items()?;
    let error = |layer: &At<'_>| layer.get("max_error").number();
    let lines: Result<Vec<Bar>> = layers
        .iter()
        .map(|l| Ok(Bar { name: l.get("layer").text()?.into(), values: vec![error(l)?] }))
        .collect();
    let mut lines = lines?;
    let several = lines.len();
    if several > LINES {
        let least = {
            let mut errors: Vec<f64> = lines.iter().map(|bar| bar.values[0]).collect();
            errors.sort_by(|a, b| b.total_cmp(a));
            errors[LINES - 1]
        };
        lines.retain(|bar| bar.values[0] >= least);
        lines.truncate(LINES);
    }
    let mut caption =
        "The largest difference of each layer's output between shares and the clear, on a logarithmic scale."
            .to_owned();
    if several > LINES {
        caption += &format!(" Of {several} layers, the {LINES} with the largest.");
    }
    let small = |value: f64| format!("{value:.1e}");
    let mut out = figure(&bars(&["largest error"], &lines, Scale::Logarithmic, false, &small), &caption);
    let fixed = layers.first().is_some_and(|l| !l.get("outside").is_null());
    let wrong = if fixed { "outside" } else { "different" };
    let mut bad = 0;
    let mut rows = vec![];
    for layer in &layers {
        let count = layer.get(wrong).whole()?;
        bad += count;
        rows.push(vec![
            layer.get("layer").text()?.to_owned(),
            layer.get("op").text()?.to_owned(),
            small(error(layer)?),
            small(layer.get("max_value").number()?),
            count.to_string(),
        ]);
    }
    out = match (bad, fixed) {
        (0, true) => paragraph("Every number is one that its layer can hold.") + &out,
        (0, false) => paragraph("Every bit is that of single precision in the clear.") + &out,
        (n, true) => {
            warning(&format!(
                "{n} numbers are outside of what their layers can hold: these results are wrong."
            )) + &out
        }
        (n, false) => warning(&format!("{n} numbers differ from single precision in the clear.")) + &out,
    };
    let last = if fixed { "outside of what it holds" } else { "numbers that differ" };
    out += &details(
        "All layers in numbers",
        &table(&["layer", "operator", "largest error", "largest value", last], &rows),
    );
    Ok(section("Accuracy by layer", &out))
}

/// What every layer's numbers lie in, and how much room the ring has for them.
pub fn ranges(layers: &Value) -> Result<String> {
    let mut rows = vec![];
    let mut lines = vec![];
    // Single precision has no ranges.
    for layer in At::new(layers).items()?.iter().filter(|layer| !layer.get("range").is_null()) {
        let name = layer.get("layer").text()?.to_owned();
        let basis = match (layer.get("proven").flag()?, layer.get("calibrated").flag()?) {
            (true, _) => "proven",
            (false, true) => "calibrated",
            (false, false) => "assumed",
        };
        let (bits, limit) = (layer.get("bits").number()?, layer.get("limit").number()?);
        let ends: Result<Vec<String>> =
            layer.get("range").items()?.iter().map(|end| Ok(format!("{:.4}", end.number()?))).collect();
        let span = ends?.join(" to ");
        lines.push(Bar { name: name.clone(), values: vec![bits.min(limit), (limit - bits).max(0.0)] });
        rows.push(vec![name, span, format!("{bits:.0} of {limit:.0}"), basis.into()]);
    }
    if rows.is_empty() {
        return Ok(String::new());
    }
    lines.truncate(LINES);
    let bits = |value: f64| format!("{value:.0} bits");
    let caption = "Bits that a layer's widest step needs, and those that the ring leaves free.";
    let out = figure(&bars(&["needed", "free"], &lines, Scale::Linear, true, &bits), caption)
        + &details("All layers in numbers", &table(&["layer", "output", "bits", "rests on"], &rows));
    Ok(section("Ranges", &out))
}
