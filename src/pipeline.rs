//! The fixed order of steps that every request takes, read top to bottom. It owns what happens between a host
//! face and a downstream; it knows neither sockets nor children.

pub mod call;
pub mod catalogs;
pub mod fault;
pub mod gateway;
pub mod listen;
mod outcome;
pub mod port;
pub mod relay;
mod request_state;
mod route;
pub mod service;
pub mod tasks;

pub use catalogs::Settings;
pub use gateway::Gateway;
pub use service::{HostRequest, HostService, Initialize, Reply};
