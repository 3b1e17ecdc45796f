//! How bytes reach a downstream and come back.

pub mod child;
pub mod http;
pub mod pipe;
pub mod sse;
pub mod streamable;
