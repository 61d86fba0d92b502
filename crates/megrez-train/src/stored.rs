//! Rows that the parties keep in shares, and values like them.

use crate::data::one_hot;
use megrez_graph::differentiate::Step;
use megrez_graph::lower::DataInput;
use megrez_graph::{Interval, Tensor};
use megrez_plan::{KEPT, Kind, Plan, Value};
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
    /// ℓ: 32, 40, 48 or 64.
    pub ring: u32,
    /// Fraction bits.
    pub frac: u32,
    /// What every input lies in.
    pub range: Interval,
}

/// Something to store: its name, its numbers and their fraction bits.
pub(crate) type Part = (String, Tensor, u32);

/// A plan of which the parties keep all inputs, with the names that rows are stored by.
pub(crate) fn named_rows(mut plan: Plan, data_inputs: &[DataInput]) -> Plan {
    for input in &mut plan.inputs {
        input.owner = KEPT.into();
        if input.name == Step::LABELS {
            input.name = ROWS[1].into();
        } else if data_inputs.iter().any(|data| data.name == input.name) {
            input.name = ROWS[0].into();
        }
    }
    plan
}

/// Weights that stay as they are, once.
pub(crate) fn add(start: &mut Vec<Part>, part: Part) -> Result<()> {
    match start.iter().find(|(name, ..)| *name == part.0) {
        None => start.push(part),
        Some(same) if *same == part => {}
        Some(_) => {
            let what = format!("the frozen weights `{}` are read at two scales: train them as well", part.0);
            return Err(Error::of(ErrorKind::Unsupported, what));
        }
    }
    Ok(())
}

fn invalid<T>(what: String) -> Result<T> {
    Err(Error::of(ErrorKind::Invalid, what))
}

/// Stores values under one name; `allow` names the clients who may ask for training on them.
pub(crate) fn store(
    cluster: &mut Cluster,
    name: &str,
    (protocol, ring): (&str, u32),
    parts: &[Part],
    (data_inputs, ids, allow): (Vec<DataInput>, Option<[u8; 32]>, &[String]),
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
        ids,
        within_s: None,
    };
    cluster.upload(upload, &|input| {
        let part = parts.iter().find(|(part, ..)| *part == input.name);
        let (_, tensor, frac) = part.ok_or_else(|| Error::of(ErrorKind::Internal, "no such part"))?;
        Ok(encode_words(ring, &tensor.data, *frac)?)
    })
}

/// Rows to store: inputs and labels, or one of them where another owner has the other, or columns
/// of its own, of the same rows.
#[derive(Clone, Debug, Default)]
pub struct NewRows {
    /// N rows of at least one number.
    pub inputs: Option<Tensor>,
    /// N class numbers below `classes`, or N × K numbers: `classes` is K then, or not given. One
    /// class is no choice: with `classes` = 1, N labels are N × 1 numbers.
    pub labels: Option<Tensor>,
    /// How many classes there are.
    pub classes: Option<usize>,
    /// What stands for the rows' identifiers, if they are to be joined with other columns of the
    /// same rows ([`ids`](megrez_service::training::ids)), and how many these are.
    pub ids: Option<([u8; 32], usize)>,
}

impl NewRows {
    /// Rows that one owner has whole.
    pub fn whole(inputs: Tensor, labels: Tensor, classes: Option<usize>) -> Self {
        NewRows { inputs: Some(inputs), labels: Some(labels), classes, ids: None }
    }
}

/// Checks rows, and keeps them at the parties in shares.
///
/// # Errors
/// If numbers are not finite or do not fit the ring, labels are no classes, or the counts differ:
/// before anything is shared. Or if a party refuses.
pub fn upload_rows(
    cluster: &mut Cluster,
    name: &str,
    form: &Form,
    new: NewRows,
    allow: &[String],
) -> Result<RowSet> {
    let NewRows { inputs, labels, classes, ids } = new;
    let Some(rows) = inputs.as_ref().or(labels.as_ref()).map(|all| all.shape.dims().first().copied()) else {
        return invalid("there is nothing to store: give inputs, labels or both".into());
    };
    let rows = rows.unwrap_or(0);
    if let Some(inputs) = inputs.as_ref().filter(|inputs| rows == 0 || inputs.shape.rank() < 2) {
        return invalid(format!("the inputs are {}: rows of at least one number are needed", inputs.shape));
    }
    if let Some((_, count)) = ids.filter(|(_, count)| *count != rows) {
        return invalid(format!("{rows} rows have {count} identifiers"));
    }
    let of_labels = |labels: Tensor| match (labels.shape.dims(), classes) {
        (&[n, k], None) if n == rows && k > 0 => Ok(labels),
        (&[n, k], Some(classes)) if n == rows && k == classes => Ok(labels),
        (&[n], Some(1)) if n == rows => Ok(Tensor::new([n, 1], labels.data)),
        (&[n] | &[n, 1], Some(classes)) if n == rows && n > 0 => one_hot(&labels.data, classes),
        (&[n], None) if n == rows => {
            invalid("labels that are class numbers need the number of classes: --classes".into())
        }
        _ => invalid(format!("{rows} rows have labels {}", labels.shape)),
    };
    let labels = labels.map(of_labels).transpose()?;
    for (what, tensor) in [("inputs", &inputs), ("labels", &labels)] {
        let Some(tensor) = tensor else { continue };
        if let Some(at) = tensor.data.iter().position(|v| !v.is_finite()) {
            let row = at / (tensor.data.len() / rows);
            return invalid(format!("row {row} of the {what} has a number that is not finite"));
        }
        // All of it is encoded once before the parties hear of it.
        encode_words(form.ring, &tensor.data, form.frac)?;
    }
    let mut described = vec![];
    if let Some(inputs) = &inputs {
        let (name, shape, range) = (ROWS[0].into(), inputs.shape.clone(), form.range);
        let input = DataInput { name, shape, frac: form.frac, range, tokens: None, table: None };
        input.check(inputs)?;
        described.push(input);
    }
    let parts = ROWS.into_iter().zip([inputs, labels]);
    let parts: Vec<Part> = parts.filter_map(|(name, part)| Some((name.into(), part?, form.frac))).collect();
    let ids = ids.map(|(hash, _)| hash);
    store(cluster, name, (&form.protocol, form.ring), &parts, (described, ids, allow))?;
    Ok(RowSet { name: name.into(), rows, beside: vec![] })
}

/// What the parties say of stored rows: how many there are, how they are stored, and whether there
/// are inputs among them, for which the range holds.
///
/// # Errors
/// If there are none of this name that this client may ask for training on.
pub fn describe_rows(cluster: &mut Cluster, name: &str) -> Result<(RowSet, Form, bool)> {
    described(cluster, name).map(|(set, form, columns)| (set, form, columns > 0))
}

/// As [`describe_rows`], with how many numbers each row has: none where there are labels alone.
fn described(cluster: &mut Cluster, name: &str) -> Result<(RowSet, Form, usize)> {
    let Description { protocol, plan: stored, .. } = cluster.describe(name, 0)?;
    let plan = Plan::from_bytes(&stored.plan).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
    let part = ROWS.into_iter().find_map(|row| plan.inputs.iter().find(|input| input.name == row));
    let Some((part, &Value { kind: Kind::Ring { frac }, ref shape })) =
        part.map(|part| (part, plan.value(part.value)))
    else {
        return invalid(format!("`{name}` are no rows to train on"));
    };
    let described = stored.data_inputs.iter().find(|input| input.name == ROWS[0]);
    let range = match described {
        Some(&DataInput { range, .. }) => range,
        None if part.name == ROWS[0] => return invalid(format!("`{name}` say no range")),
        None => Interval { low: 0.0, high: 0.0 },
    };
    let rows = shape.dims().first().copied().unwrap_or(0);
    let columns = described.map_or(0, |input| input.shape.dims().iter().skip(1).product());
    let set = RowSet { name: name.into(), rows, beside: vec![] };
    Ok((set, Form { protocol, ring: plan.ring, frac, range }, columns))
}

/// Rows that the parties keep, as a job names them.
pub struct StoredRows {
    /// The sets, each with those that hold more columns of its rows.
    pub sets: Vec<RowSet>,
    /// How each of all sets is stored, and whether it has inputs.
    forms: Vec<(String, Form, bool)>,
    /// How many columns each of `sets` has with those beside it.
    columns: Vec<usize>,
}

impl StoredRows {
    /// Asks the parties for rows by their names; `a+b` are rows whose columns, or whose inputs and
    /// labels, are in two sets.
    ///
    /// # Errors
    /// Those of [`describe_rows`]; or if sets that hold the same rows differ in their number.
    pub fn named(cluster: &mut Cluster, names: &[String]) -> Result<Self> {
        let (mut sets, mut forms, mut columns): (Vec<RowSet>, _, Vec<usize>) = (vec![], vec![], vec![]);
        for (place, name) in names.iter().flat_map(|name| name.split('+').enumerate()) {
            let (set, form, own) = described(cluster, name)?;
            forms.push((name.to_owned(), form, own > 0));
            match (sets.last_mut().filter(|_| place > 0), columns.last_mut()) {
                (Some(first), Some(all)) if first.rows == set.rows => {
                    first.beside.push(set.name);
                    *all += own;
                }
                (Some(RowSet { name: first, rows, .. }), _) => {
                    return invalid(format!(
                        "`{first}` has {rows} rows, and `{name}` has {}: they are not the same rows",
                        set.rows
                    ));
                }
                (None, _) => {
                    sets.push(set);
                    columns.push(own);
                }
            }
        }
        Ok(StoredRows { sets, forms, columns })
    }

    /// How many numbers each row has.
    ///
    /// # Errors
    /// If there are no rows, or those of several sets have not as many.
    pub fn columns(&self) -> Result<usize> {
        let first = self.columns.first().copied().unwrap_or(0);
        match self.sets.iter().zip(&self.columns).find(|(_, columns)| **columns != first || first == 0) {
            None if first > 0 => Ok(first),
            None => invalid("no rows are named".into()),
            Some((set, columns)) => {
                let (one, other) = (&self.sets[0].name, &set.name);
                invalid(format!("the rows `{one}` have {first} columns, and `{other}` {columns}"))
            }
        }
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.sets.iter().fold(0, |all, set| all.saturating_add(set.rows))
    }

    /// Makes sure that they go with a plan of this protocol, ring and fraction bits, whose inputs
    /// lie in `declared`.
    pub(crate) fn fit(&self, of: (&str, u32, u32), declared: Interval) -> Result<()> {
        for (name, form, inputs) in &self.forms {
            if (form.protocol.as_str(), form.ring, form.frac) != of {
                let (protocol, ring, frac) = of;
                return invalid(format!(
                    "the rows `{name}` are stored for `{}` on the {}-bit ring with {} fraction bits, the job is for `{protocol}`, {ring} \
                     and {frac}",
                    form.protocol, form.ring, form.frac
                ));
            }
            if *inputs && (form.range.low < declared.low || form.range.high > declared.high) {
                return Err(Error::of(
                    ErrorKind::OutOfRange,
                    format!(
                        "the rows `{name}` lie in {} to {}, the job is for {} to {}: --input-range",
                        form.range.low, form.range.high, declared.low, declared.high
                    ),
                ));
            }
        }
        Ok(())
    }
}
