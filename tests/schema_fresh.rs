//! The files in `config/` are what the types say: the schema is fresh, the examples load, no key is left out.

use std::path::{Path, PathBuf};

use manifold::config::{Config, Sources, load, schema};

fn in_config(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config").join(name)
}

fn sources(name: &str) -> Sources {
    let environment = [("HOME", "/home/me"), ("TICKETS_TOKEN", "t0ken")];
    Sources {
        files: vec![in_config(name)],
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        overrides: Vec::new(),
        program: Some(PathBuf::from("/usr/bin/manifold")),
    }
}

#[test]
fn the_schema_file_is_fresh() {
    let path = in_config("manifold.schema.json");
    let made = schema::json();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "config/manifold.schema.json is stale: run `UPDATE=1 cargo test --test schema_fresh`"
    );
}

#[test]
fn every_file_loads_without_warnings() {
    for name in ["default.yaml", "minimal.yaml", "manifold.example.yaml"] {
        let loaded = load(&sources(name)).unwrap_or_else(|problems| panic!("{name}:\n{problems}"));
        assert!(loaded.warnings.is_empty(), "{name}:\n{}", loaded.warnings);
        assert_eq!(loaded.refused, [], "{name}");
        assert_eq!(loaded.config.servers.len(), 2, "{name}");
    }
}

#[test]
fn no_file_means_the_built_in_default() {
    let built_in = load(&Sources {
        files: Vec::new(),
        ..sources("default.yaml")
    })
    .unwrap();
    assert_eq!(built_in.config, load(&sources("default.yaml")).unwrap().config);
    let command = built_in.config.servers[0].command.as_ref().unwrap();
    assert_eq!(command.expose(), "/usr/bin/manifold");
    assert_eq!(command.written(), "${self}");
}

/// Every key of the schema stands in the example, active or as a comment.
#[test]
fn the_example_has_every_key() {
    fn keys(schema: &serde_json::Value, out: &mut Vec<String>) {
        match schema {
            serde_json::Value::Object(members) => {
                if let Some(properties) = members.get("properties").and_then(|all| all.as_object()) {
                    out.extend(properties.keys().cloned());
                }
                members.values().for_each(|value| keys(value, out));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| keys(item, out)),
            _ => {}
        }
    }
    let example = std::fs::read_to_string(in_config("manifold.example.yaml")).unwrap();
    let mut all = Vec::new();
    keys(&serde_json::from_str(&schema::json()).unwrap(), &mut all);
    assert!(all.len() > 70, "{}", all.len());
    for key in all {
        let is_there = example.lines().any(|line| {
            let line = line
                .trim_start()
                .trim_start_matches("# ")
                .trim_start_matches("- ");
            line.starts_with(&format!("{key}:")) || line.contains(&format!(" {key}:"))
        });
        assert!(is_there, "config/manifold.example.yaml does not show `{key}`");
    }
}

/// The limits and times of the example are the defaults.
#[test]
fn the_example_shows_the_defaults() {
    let example = load(&sources("manifold.example.yaml")).unwrap().config;
    let default = Config::default();
    assert_eq!(example.limits, default.limits);
    assert_eq!(example.listen, default.listen);
    assert_eq!(example.names, default.names);
    assert_eq!(example.audit, default.audit);
    assert_eq!(example.telemetry, default.telemetry);
    assert_eq!(
        (example.start_wait, example.grace),
        (default.start_wait, default.grace)
    );
    let server = &example.servers[0];
    let plain = manifold::config::Server::default();
    assert_eq!(
        (
            server.start_timeout,
            server.idle_timeout,
            server.max_timeout,
            server.concurrency,
            server.queue
        ),
        (
            plain.start_timeout,
            plain.idle_timeout,
            plain.max_timeout,
            plain.concurrency,
            plain.queue
        )
    );
}
