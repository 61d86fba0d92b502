//! Exact views.
