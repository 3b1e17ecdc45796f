//! Who wants to hear of changes: legacy subscriptions to resources, modern `subscriptions/listen`.

use serde_json::{Map, Value, json};

use super::super::feature::Change;
use super::super::rpc::{Fault, INTERNAL, LEGACY_NOT_FOUND, Request, meta, notification};
use super::{Handled, Listen, Server};

/// Resources that one subscription may name, and that a legacy host may subscribe to.
const MOST_URIS: usize = 1000;

pub(super) fn can_subscribe(capabilities: &Value) -> bool {
    capabilities.pointer("/resources/subscribe") == Some(&Value::Bool(true))
}

impl Server {
    pub(super) fn subscribe(&self, request: &Request) -> Result<Value, Fault> {
        let uri = request.text("uri")?;
        if !self.feature.may_subscribe(uri) {
            return Err(Fault::new(LEGACY_NOT_FOUND, "resource not found").with(json!({ "uri": uri })));
        }
        let mut state = self.state();
        let Some(session) = &mut state.legacy else {
            return Err(Fault::method(&request.method));
        };
        if request.method == "resources/unsubscribe" {
            session.uris.remove(uri);
        } else if session.uris.len() >= MOST_URIS {
            return Err(Fault::new(INTERNAL, "too many subscriptions"));
        } else {
            session.uris.insert(uri.to_owned());
        }
        Ok(json!({}))
    }

    /// Opens a subscription: acknowledges the part of the filter that is honoured, and stays open.
    pub(super) fn listen(&self, request: &Request, subscribable: bool) -> Result<Handled, Fault> {
        let Some(filter) = request.params.get("notifications").and_then(Value::as_object) else {
            return Err(Fault::params("`notifications` must be an object"));
        };
        let list = subscribable && filter.get("resourcesListChanged") == Some(&Value::Bool(true));
        let asked = match filter.get("resourceSubscriptions") {
            None => Vec::new(),
            Some(uris) => serde_json::from_value::<Vec<String>>(uris.clone())
                .map_err(|_| Fault::params("`resourceSubscriptions` must be a list of URIs"))?,
        };
        let fits = |uri: &String| subscribable && self.feature.may_subscribe(uri);
        let uris: Vec<_> = asked.into_iter().filter(fits).take(MOST_URIS).collect();
        let mut honoured = Map::new();
        if list {
            honoured.insert("resourcesListChanged".to_owned(), json!(true));
        }
        if !uris.is_empty() {
            honoured.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        let cancel = self.open(&request.id)?;
        let params = json!({"notifications": honoured, "_meta": {meta!("subscriptionId"): request.id}});
        self.out
            .send(&notification("notifications/subscriptions/acknowledged", params));
        self.state().listens.push(Listen {
            id: request.id.clone(),
            list,
            uris,
            cancel,
        });
        Ok(Handled::Later)
    }

    /// Tells everyone who asked for it.
    pub(super) fn announce(&self, change: &Change) {
        let state = self.state();
        let fits = |subscribed: &&String, changed: &str| self.feature.same(subscribed, changed);
        if let Some(session) = state.legacy.as_ref().filter(|session| session.ready) {
            match change {
                Change::List => self
                    .out
                    .send(&notification("notifications/resources/list_changed", json!({}))),
                Change::Resource(changed) => {
                    for uri in session.uris.iter().filter(|uri| fits(uri, changed)) {
                        self.out.send(&notification(
                            "notifications/resources/updated",
                            json!({ "uri": uri }),
                        ));
                    }
                }
            }
        }
        for listen in &state.listens {
            let meta = json!({meta!("subscriptionId"): listen.id});
            let send = |method, params| self.out.send_for(&listen.cancel, &notification(method, params));
            match change {
                Change::List if listen.list => {
                    send("notifications/resources/list_changed", json!({"_meta": meta}))
                }
                Change::List => {}
                Change::Resource(changed) => {
                    for uri in listen.uris.iter().filter(|uri| fits(uri, changed)) {
                        send(
                            "notifications/resources/updated",
                            json!({"uri": uri, "_meta": meta}),
                        );
                    }
                }
            }
        }
    }
}
