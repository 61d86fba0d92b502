//! What a party allows and how much it does at a time, which may change while it runs.

use super::capacity::Capacity;
use std::sync::{Arc, PoisonError, RwLock};

/// What may change from one request to the next.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How much is done at a time.
    pub capacity: Capacity,
    /// Most elements that the values of one plan may have together.
    pub max_elements: usize,
    /// Whether clients may ask for artificial delays and rates.
    pub allow_shaping: bool,
    /// Whether clients may ask for protocols that do not protect.
    pub allow_insecure: bool,
}

/// The settings that are in force, the same for all who hold a clone.
#[derive(Clone, Debug)]
pub(super) struct Current(Arc<RwLock<Arc<Settings>>>);

impl Current {
    pub(super) fn new(settings: Settings) -> Self {
        Current(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// As they are now.
    pub(super) fn get(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on.
    pub(super) fn set(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}

#[cfg(test)]
impl Current {
    /// Of this capacity.
    pub(super) fn of(capacity: Capacity) -> Self {
        let (max_elements, allow_shaping, allow_insecure) = (1 << 28, false, false);
        Current::new(Settings { capacity, max_elements, allow_shaping, allow_insecure })
    }
}
