//! How bytes reach a downstream and come back.

pub mod child;
