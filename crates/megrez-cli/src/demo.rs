//! `megrez demo`: handwritten digits under a private LeNet.

use crate::digits::Digits;
use crate::options::Common;
use crate::outcome::verdict;
use crate::progress;
use crate::report::Page;
use clap::Args;
use megrez::choices::Ranges;
use megrez::{Error, Result, infer_plain};
use megrez_graph::Tensor;
use megrez_report::Parts;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    digits: Digits,
    /// Images per run.
    #[arg(long, default_value_t = 60)]
    batch: usize,
    /// Use the first N images only.
    #[arg(long)]
    images: Option<usize>,
    /// Print the cost of every layer.
    #[arg(long)]
    layers: bool,
    #[command(flatten)]
    page: Page,
    #[command(flatten)]
    common: Common,
}

/// What became of an image.
struct Row {
    image: usize,
    label: usize,
    private: usize,
    plain: usize,
}

pub(crate) fn run(args: &Demo, json: bool) -> Result<ExitCode> {
    let (images, labels) = args.digits.rows()?;
    let graph = args.digits.lenet(args.batch)?;
    let n = args.images.unwrap_or(labels.data.len()).min(labels.data.len());
    if n == 0 || args.batch == 0 {
        return Err(Error::Refused("the demo needs at least one image per run".into()));
    }
    let request = args.common.with(Ranges::Prove);
    request.only_fixed()?;
    let mut backend = args.common.backend()?;
    let model = request.compile(&graph, backend.client())?;
    if !json {
        println!(
            "LeNet on {n} handwritten digits, {} per run, under {} on the ring Z_2^{}; network: {}",
            args.batch, request.protocol, request.ring, request.net
        );
    }
    let bar = progress::bar(n.div_ceil(args.batch) as u32, "private inference");
    let data = [first_rows(&images, n)];
    let run = args.common.run(1);
    let private = megrez::infer(&mut backend, &model, &data, &run, &|run| progress::tick(&bar, run))?;
    drop(bar);
    let plain = infer_plain(&model, &data)?;
    let ((_, private_logits), (_, plain_logits)) = (&private.outputs[0], &plain[0]);

    let (mut rows, mut max_error) = (vec![], 0f64);
    let classes = private_logits.data.len() / n;
    let pairs = private_logits.data.chunks(classes).zip(plain_logits.data.chunks(classes));
    for (image, (private, plain)) in pairs.enumerate() {
        let error = private.iter().zip(plain).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        max_error = max_error.max(error);
        let label = labels.data[image] as usize;
        rows.push(Row { image, label, private: argmax(private), plain: argmax(plain) });
    }
    let count = |which: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| which(row)).count();
    let share = |which: &dyn Fn(&Row) -> bool| count(which) as f64 / n as f64;
    let agree = count(&|row| row.private == row.plain);
    let (right_private, right_plain) = (share(&|r| r.private == r.label), share(&|r| r.plain == r.label));
    let cost = &private.cost;
    let report = private.json(&|_, _| Value::Null);
    let parts = Parts { run: Some(&report), ..Parts::default() };
    args.page.write(Some((&model, args.common.protocol(), backend.client())), &parts)?;
    if json {
        println!(
            "{}",
            json!({
                "schema": "megrez.demo/1",
                "images": n,
                "agree": agree,
                "accuracy_private": right_private,
                "accuracy_plain": right_plain,
                "max_abs_error": max_error,
                "protocol": request.protocol,
                "insecure": args.common.insecure,
                "batch": args.batch,
                "cost": cost,
            })
        );
    } else {
        println!("image  label  private  plaintext");
        for Row { image, label, private, plain } in &rows {
            let mark = if private == plain { "" } else { "   <- differ" };
            println!("{image:>5}  {label:>5}  {private:>7}  {plain:>9}{mark}");
        }
        println!(
            "\nagreement {agree}/{n}; accuracy private {:.2}%, plaintext {:.2}%; largest error of a logit {max_error:.2e}",
            100.0 * right_private,
            100.0 * right_plain
        );
        println!("\ncost of one run of {} images on {}", args.batch, cost.device.join(" | "));
        print!("{}", cost.table());
        if args.layers {
            print!("\n{}", cost.layer_table());
        }
    }
    Ok(verdict(agree == n))
}

fn argmax(row: &[f32]) -> usize {
    (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// The first `n` rows of an array.
fn first_rows(data: &Tensor, n: usize) -> Tensor {
    let mut dims = data.shape.dims().to_vec();
    let row: usize = dims[1..].iter().product();
    dims[0] = n.min(dims[0]);
    Tensor::new(dims.clone(), data.data[..dims[0] * row].to_vec())
}
