//! The set of downstreams: one supervisor each, looked up by server name.
//!
//! It owns connections, children and listings. The pipeline reaches it through `pipeline::port`; it never knows
//! hosts.

pub mod backoff;
pub mod connection;
pub mod handshake;
pub mod link;
pub mod refresh;
pub mod server;
pub mod set;
pub mod state;
pub mod transport;

use std::sync::Arc;

use connection::Connection;

/// Ends a connection and, in the background, its transport: the child gets the whole stop ladder.
pub fn end(connection: Arc<Connection>, why: &str) {
    connection.close(why);
    crate::runtime::tasks::spawn("end a connection", async move {
        if let Some(link) = connection.link() {
            link.close().await;
        }
    });
}
