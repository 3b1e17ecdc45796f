//! The binary: see `cli` for what it does.

fn main() {}
