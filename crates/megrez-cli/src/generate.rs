//! `megrez generate`: a text, continued letter by letter.

use crate::cluster::{Needs, Place};
use crate::options::Common;
use crate::outcome::verdict;
use clap::Args;
use megrez::generate::{Generation, LanguageModel, largest};
use megrez::report::Cost;
use megrez::{Backend, Error, Recipe, Result};
use megrez_session::Phase;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Generate {
    /// The language model, an ONNX file: see examples/language.
    #[arg(long)]
    model: PathBuf,
    /// The letter of every token, in order.
    #[arg(long = "letters", value_name = "LETTERS")]
    vocabulary: PathBuf,
    /// The text to continue.
    #[arg(long)]
    prompt: String,
    /// How many letters to add.
    #[arg(long, default_value_t = 40)]
    tokens: usize,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(args: &Generate, json: bool) -> Result<ExitCode> {
    let vocabulary: Vec<char> = std::fs::read_to_string(&args.vocabulary)
        .map_err(|e| Error::file(&args.vocabulary, e))?
        .chars()
        .collect();
    let token = |c: char| {
        let place = vocabulary.iter().position(|&l| l == c).map(|p| p as u32);
        place.ok_or_else(|| Error::Refused(format!("the model does not know the letter `{c}`")))
    };
    let prompt = args.prompt.chars().map(token).collect::<Result<Vec<u32>>>()?;
    if prompt.is_empty() || args.tokens == 0 {
        return Err(Error::Refused("a prompt has at least one letter, and so has its continuation".into()));
    }
    let written = |tokens: &[u32]| -> String {
        tokens.iter().map(|&t| vocabulary.get(t as usize).copied().unwrap_or('?')).collect()
    };
    let request = &args.common.request;
    request.only_fixed()?;
    let model = LanguageModel::load(&args.model)?;
    let mut backend = match args.place.connect(Needs::Any)? {
        Some(cluster) => Backend::Remote(cluster),
        None => args.common.backend()?,
    };
    // What is chosen for the prompt holds for every letter after it.
    let recipe = request.recipe(&model.graph(0, prompt.len())?, backend.client())?;
    let Recipe::Fixed(options) = recipe else { unreachable!("floating point is refused above") };
    let mut generation = Generation::new(&model, &mut backend, *options, args.common.run(1))?;
    if !json {
        print!("{}", args.prompt);
    }
    let mut costs = vec![];
    let text = generation.write(&prompt, args.tokens, &mut |token, cost| {
        if !json {
            print!("{}", written(&[token]));
            let _ = std::io::Write::flush(&mut std::io::stdout());
        }
        costs.push(cost);
        Ok(())
    })?;
    let mut plain = prompt;
    for _ in 0..args.tokens {
        plain.push(largest(&model.plain(&plain)?));
    }
    let same = plain == text;
    let range = if generation.proven { "proven" } else { "assumed" };
    if json {
        let seconds = |c: &Cost| c.phases.get(&Phase::Online).map(|online| online.seconds.median);
        let seconds: Vec<Option<f64>> = costs.iter().map(seconds).collect();
        println!(
            "{}",
            json!({ "schema": "megrez.generate/1", "text": written(&text), "plain": written(&plain), "same": same,
            "protocol": args.common.protocol(), "insecure": args.common.insecure, "range": range,
            "online_seconds": seconds, "last": costs.last() })
        );
    } else {
        println!("\n\nin the clear: {}", if same { "the same".into() } else { written(&plain) });
        println!("ranges: {range}; the last letter cost");
        costs.last().inspect(|cost| print!("{}", cost.table()));
    }
    Ok(verdict(same))
}
