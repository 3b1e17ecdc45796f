//! The fixed order of steps that every request takes, read top to bottom. It owns what happens between a host
//! face and a downstream; it knows neither sockets nor children.

pub mod service;

pub use service::{HostRequest, HostService, Initialize, Reply};
