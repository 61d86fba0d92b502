//! Fields of a report, and numbers for people.

use crate::error::PageError;
use serde_json::Value;

/// A field by its path, `cost.layers.0.layer`.
pub struct At<'a> {
    value: &'a Value,
    path: String,
}

impl<'a> At<'a> {
    pub fn new(value: &'a Value) -> Self {
        At { value, path: String::new() }
    }

    fn path(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.into(),
            path => format!("{path}.{key}"),
        }
    }

    /// A part; what is missing is null.
    pub fn get(&self, key: &str) -> At<'a> {
        At { value: &self.value[key], path: self.path(key) }
    }

    fn or<T>(&self, value: Option<T>) -> Result<T, PageError> {
        value.ok_or_else(|| PageError::Field(self.path.clone()))
    }

    pub fn text(&self) -> Result<&'a str, PageError> {
        self.or(self.value.as_str())
    }

    pub fn number(&self) -> Result<f64, PageError> {
        self.or(self.value.as_f64())
    }

    pub fn whole(&self) -> Result<u64, PageError> {
        self.or(self.value.as_u64())
    }

    pub fn flag(&self) -> Result<bool, PageError> {
        self.or(self.value.as_bool())
    }

    pub fn is_null(&self) -> bool {
        self.value.is_null()
    }

    pub fn items(&self) -> Result<Vec<At<'a>>, PageError> {
        let items = self.or(self.value.as_array())?.iter().enumerate();
        Ok(items.map(|(i, value)| At { value, path: self.path(&i.to_string()) }).collect())
    }

    pub fn entries(&self) -> Result<Vec<(&'a str, At<'a>)>, PageError> {
        let entries = self.or(self.value.as_object())?.iter();
        Ok(entries.map(|(key, value)| (key.as_str(), At { value, path: self.path(key) })).collect())
    }

    pub fn texts(&self) -> Result<Vec<String>, PageError> {
        self.items()?.iter().map(|item| item.text().map(str::to_owned)).collect()
    }

    /// Dimensions, `1 × 28 × 28`.
    pub fn shape(&self) -> Result<String, PageError> {
        let dims: Result<Vec<String>, PageError> =
            self.items()?.iter().map(|dim| Ok(dim.whole()?.to_string())).collect();
        Ok(match dims?.join(" × ") {
            dims if dims.is_empty() => "one number".into(),
            dims => dims,
        })
    }
}

/// Bytes in binary units.
pub fn bytes(n: f64) -> String {
    match n {
        n if n < 1024.0 => format!("{n:.0} B"),
        n if n < 1_048_576.0 => format!("{:.1} KiB", n / 1024.0),
        n if n < 1_073_741_824.0 => format!("{:.2} MiB", n / 1_048_576.0),
        n => format!("{:.2} GiB", n / 1_073_741_824.0),
    }
}

/// Seconds in units that people read.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 0.001 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// `1.25 ×`, or nothing to compare with.
pub fn ratio(now: f64, before: f64) -> String {
    match (now, before) {
        (0.0, 0.0) => "same".into(),
        (_, 0.0) => "new".into(),
        (now, before) => format!("{:.2} ×", now / before),
    }
}
