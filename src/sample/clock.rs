//! `clock`: the time in some zones, and a countdown that reports progress and can be cancelled.

use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use jiff::{Timestamp, ZonedDateTime};
use serde_json::{Map, Value, json};

use super::feature::{Call, Change, Feature};
use super::notes::tool_error;

const RESOURCE: &str = "clock:///timezones";
const LONGEST: f64 = 3600.0;
const MOST_STEPS: u64 = 1000;
const USUAL_STEPS: u64 = 5;

/// The zones and their present rules, so that the clock needs no zone files on the machine.
const ZONES: [(&str, &str); 14] = [
    ("UTC", "UTC0"),
    ("Africa/Nairobi", "EAT-3"),
    ("America/Chicago", "CST6CDT,M3.2.0,M11.1.0"),
    ("America/Los_Angeles", "PST8PDT,M3.2.0,M11.1.0"),
    ("America/New_York", "EST5EDT,M3.2.0,M11.1.0"),
    ("America/Sao_Paulo", "<-03>3"),
    ("Asia/Kolkata", "IST-5:30"),
    ("Asia/Seoul", "KST-9"),
    ("Asia/Shanghai", "CST-8"),
    ("Asia/Tokyo", "JST-9"),
    ("Australia/Sydney", "AEST-10AEDT,M10.1.0,M4.1.0/3"),
    ("Europe/Berlin", "CET-1CEST,M3.5.0,M10.5.0/3"),
    ("Europe/London", "GMT0BST,M3.5.0/1,M10.5.0"),
    ("Pacific/Auckland", "NZST-12NZDT,M9.5.0,M4.1.0/3"),
];

/// The clock. Keeps nothing.
#[derive(Default)]
pub(super) struct Clock;

/// The instant in a zone; `None` for one that is not in the table.
pub(super) fn in_zone(time: Timestamp, zone: &str) -> Option<ZonedDateTime> {
    let (_, rules) = ZONES.iter().find(|(name, _)| *name == zone)?;
    Some(time.to_zoned_datetime(TimeZone::posix(rules).ok()?))
}

fn now(arguments: &Map<String, Value>) -> Result<Value, String> {
    only(arguments, &["zone"])?;
    let zone = match arguments.get("zone") {
        None => "UTC",
        Some(zone) => zone.as_str().ok_or("`zone` must be a string")?,
    };
    let time = in_zone(Timestamp::now(), zone).ok_or_else(|| {
        let names: Vec<_> = ZONES.iter().map(|(name, _)| *name).collect();
        format!("unknown zone `{zone}`; known are {}", names.join(", "))
    })?;
    let text = time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    let unix = time.timestamp().as_second();
    let said = json!({"zone": zone, "time": text, "unix": unix});
    Ok(json!({"content": [{"type": "text", "text": said.to_string()}], "structuredContent": said}))
}

fn countdown(arguments: &Map<String, Value>, call: &Call<'_>) -> Result<Value, String> {
    only(arguments, &["seconds", "steps"])?;
    let seconds = arguments
        .get("seconds")
        .and_then(Value::as_f64)
        .filter(|s| (0.0..=LONGEST).contains(s));
    let seconds = seconds.ok_or_else(|| format!("`seconds` must be a number from 0 to {LONGEST}"))?;
    let steps = match arguments.get("steps") {
        None => USUAL_STEPS,
        Some(steps) => whole(steps)
            .filter(|steps| (1..=MOST_STEPS).contains(steps))
            .ok_or_else(|| format!("`steps` must be an integer from 1 to {MOST_STEPS}"))?,
    };
    let start = Instant::now();
    let all = Duration::from_secs_f64(seconds);
    call.log("info", "countdown", json!({"started": seconds, "steps": steps}));
    for step in 1..=steps {
        // From the start, so that the steps do not drift.
        let due = all.mul_f64(f64::from(u32::try_from(step).unwrap_or(u32::MAX)) / steps as f64);
        if call.sleep_until(start + due) {
            return Err("cancelled".to_owned()); // nobody reads it
        }
        let message = format!("{step} of {steps}");
        call.log("debug", "countdown", json!(message));
        call.progress(step, steps, &message);
    }
    call.log("info", "countdown", json!("done"));
    Ok(json!({"content": [{"type": "text", "text": format!("Counted down {seconds} s in {steps} steps.")}]}))
}

fn only(arguments: &Map<String, Value>, names: &[&str]) -> Result<(), String> {
    let other = arguments.keys().find(|key| !names.contains(&key.as_str()));
    other.map_or(Ok(()), |other| Err(format!("unknown argument `{other}`")))
}

/// An integer as JSON Schema means it: `3.0` is one.
fn whole(value: &Value) -> Option<u64> {
    let written = value.as_u64();
    written.or_else(|| (1..=MOST_STEPS).find(|number| value.as_f64() == Some(*number as f64)))
}

impl Feature for Clock {
    fn info(&self) -> (Value, &'static str) {
        let info = json!({"name": "clock", "title": "Clock", "version": env!("CARGO_PKG_VERSION")});
        (
            info,
            "Tells the time in some zones and counts down with progress.",
        )
    }

    fn capabilities(&self) -> Value {
        json!({"tools": {}, "resources": {}, "logging": {}})
    }

    fn tools(&self) -> Value {
        json!([
            {
                "name": "now",
                "title": "The time now",
                "description": "Tells the date and time in a zone, UTC unless asked otherwise.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "zone": {"type": "string", "enum": ZONES.map(|(name, _)| name), "default": "UTC"},
                    },
                    "additionalProperties": false,
                },
                "outputSchema": {
                    "type": "object",
                    "properties": {
                        "zone": {"type": "string"},
                        "time": {"type": "string", "format": "date-time"},
                        "unix": {"type": "integer", "description": "Seconds since 1970."},
                    },
                    "required": ["zone", "time", "unix"],
                },
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
            },
            {
                "name": "countdown",
                "title": "Count down",
                "description": "Takes some time, tells its progress after each step and can be cancelled.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "seconds": {"type": "number", "minimum": 0, "maximum": 3600},
                        "steps": {"type": "integer", "minimum": 1, "maximum": MOST_STEPS, "default": USUAL_STEPS},
                    },
                    "required": ["seconds"],
                    "additionalProperties": false,
                },
                "annotations": {"readOnlyHint": true, "openWorldHint": false},
            },
        ])
    }

    fn is_slow(&self, tool: &str) -> bool {
        tool == "countdown"
    }

    fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        call: &Call<'_>,
    ) -> Option<(Value, Vec<Change>)> {
        let done = match tool {
            "now" => now(arguments),
            "countdown" => countdown(arguments, call),
            _ => return None,
        };
        Some((done.unwrap_or_else(|text| tool_error(&text)), Vec::new()))
    }

    fn resources(&self) -> Value {
        json!([{
            "uri": RESOURCE, "name": "timezones", "title": "Known time zones", "mimeType": "application/json",
            "description": "The zones that `now` knows, with their rules.",
        }])
    }

    fn read(&self, uri: &str) -> Option<Value> {
        if uri != RESOURCE {
            return None;
        }
        let zones: Vec<_> = ZONES
            .iter()
            .map(|(name, rules)| json!({"name": name, "rules": rules}))
            .collect();
        let text = Value::Array(zones).to_string();
        Some(json!([{"uri": RESOURCE, "mimeType": "application/json", "text": text}]))
    }

    fn read_caching(&self) -> (u64, &'static str) {
        (86_400_000, "public")
    }
}
