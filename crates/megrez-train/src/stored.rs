//! Rows that the parties keep in shares, and values like them.

use crate::data::one_hot;
use megrez_graph::lower::DataInput;
use megrez_graph::{Interval, Tensor};
use megrez_plan::{KEPT, Plan};
use megrez_ring::encode_words;
use megrez_service::client::{Cluster, Description};
use megrez_service::training::RowSet;
use megrez_service::wire::{ModelPlan, Upload, fresh_name};
use megrez_service::{Error, ErrorKind, Result};

/// The names of stored rows: inputs, and labels.
pub const ROWS: [&str; 2] = ["rows.x", "rows.y"];

/// How numbers are stored: they go with a job of the same protocol, ring and fraction bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Form {
    /// The protocol in whose shares they are.
    pub protocol: String,
    /// ℓ: 32 or 64.
    pub ring: u32,
    /// Fraction bits.
    pub frac: u32,
    /// What every input lies in.
    pub range: Interval,
}

/// Something to store: its name, its numbers and their fraction bits.
pub(crate) type Part = (String, Tensor, u32);

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::of(ErrorKind::Invalid, what))
}

/// Stores values under one name; `allow` names the clients who may ask for training on them.
pub(crate) fn store(
    cluster: &mut Cluster,
    name: &str,
    (protocol, ring): (&str, u32),
    parts: &[Part],
    (data_inputs, allow): (Vec<DataInput>, &[String]),
) -> Result<()> {
    let mut plan = Plan::new(ring);
    for (part, tensor, frac) in parts {
        let value = plan.input(part, cluster.name(), tensor.shape.clone(), *frac);
        plan.output(part, KEPT, value);
    }
    let batch = parts.first().and_then(|(_, tensor, _)| tensor.shape.dims().first().copied()).unwrap_or(1);
    let stored = ModelPlan { batch: batch.max(1), plan: plan.to_bytes(), data_inputs, outputs: vec![] };
    let (session, protocol, allow) = (fresh_name()?, protocol.to_owned(), allow.to_vec());
    let upload = Upload {
        session,
        protocol,
        model: name.into(),
        plans: vec![stored],
        allow,
        rows: true,
        within_s: None,
    };
    cluster.upload(upload, &|input| {
        let part = parts.iter().find(|(part, ..)| *part == input.name);
        let (_, tensor, frac) = part.ok_or_else(|| Error::of(ErrorKind::Internal, "no such part"))?;
        Ok(encode_words(ring, &tensor.data, *frac)?)
    })
}

/// Checks rows and labels, and keeps them at the parties in shares. `inputs` has N rows; `labels`
/// are N class numbers below `classes`, or N × K numbers: `classes` is K then, or not given. One
/// class is no choice: with `classes` = 1, N labels are N × 1 numbers.
///
/// # Errors
/// If numbers are not finite or do not fit the ring, labels are no classes, or the counts differ:
/// before anything is shared. Or if a party refuses.
pub fn upload_rows(
    cluster: &mut Cluster,
    name: &str,
    form: &Form,
    inputs: Tensor,
    labels: Tensor,
    classes: Option<usize>,
    allow: &[String],
) -> Result<RowSet> {
    let rows = inputs.shape.dims().first().copied().unwrap_or(0);
    if rows == 0 || inputs.shape.rank() < 2 {
        return invalid(format!("the inputs are {}: rows of at least one number are needed", inputs.shape));
    }
    let labels = match (labels.shape.dims(), classes) {
        (&[n, k], None) if n == rows && k > 0 => labels,
        (&[n, k], Some(classes)) if n == rows && k == classes => labels,
        (&[n], Some(1)) if n == rows => Tensor::new([n, 1], labels.data),
        (&[n] | &[n, 1], Some(classes)) if n == rows => one_hot(&labels.data, classes)?,
        (&[n], None) if n == rows => {
            return invalid("labels that are class numbers need the number of classes: --classes".into());
        }
        _ => return invalid(format!("{rows} rows have labels {}", labels.shape)),
    };
    for (what, tensor) in [("inputs", &inputs), ("labels", &labels)] {
        if let Some(at) = tensor.data.iter().position(|v| !v.is_finite()) {
            let row = at / (tensor.data.len() / rows);
            return invalid(format!("row {row} of the {what} has a number that is not finite"));
        }
        // All of it is encoded once before the parties hear of it.
        encode_words(form.ring, &tensor.data, form.frac)?;
    }
    let (shape, range) = (inputs.shape.clone(), form.range);
    let described =
        DataInput { name: ROWS[0].into(), shape, frac: form.frac, range, tokens: None, table: None };
    described.check(&inputs)?;
    let parts = [(ROWS[0].to_owned(), inputs, form.frac), (ROWS[1].to_owned(), labels, form.frac)];
    store(cluster, name, (&form.protocol, form.ring), &parts, (vec![described], allow))?;
    Ok(RowSet { name: name.into(), rows })
}

/// What the parties say of stored rows: how many there are, and how they are stored.
///
/// # Errors
/// If there are none of this name that this client may ask for training on.
pub fn describe_rows(cluster: &mut Cluster, name: &str) -> Result<(RowSet, Form)> {
    let Description { protocol, plan: stored, .. } = cluster.describe(name, 0)?;
    let plan = Plan::from_bytes(&stored.plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
    let inputs = plan.inputs.iter().find(|input| input.name == ROWS[0]).map(|input| plan.value(input.value));
    let (Some(value), megrez_plan::Kind::Ring { frac }) =
        (inputs, inputs.map_or(megrez_plan::Kind::Bit, |v| v.kind))
    else {
        return invalid(format!("`{name}` are no rows to train on"));
    };
    let described = stored.data_inputs.iter().find(|input| input.name == ROWS[0]);
    let Some(&DataInput { range, .. }) = described else { return invalid(format!("`{name}` say no range")) };
    let rows = value.shape.dims().first().copied().unwrap_or(0);
    Ok((RowSet { name: name.into(), rows }, Form { protocol, ring: plan.ring, frac, range }))
}
