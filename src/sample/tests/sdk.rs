//! The Rust SDK as the host, in both of its ways to begin.

use super::*;
use rmcp::model::{CallToolRequestParams, ProtocolVersion, ReadResourceRequestParams};
use rmcp::service::RunningService;
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use std::os::unix::net::UnixStream;

async fn connect(kind: SampleKind, lifecycle: ClientLifecycleMode) -> RunningService<RoleClient, ()> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || serve(kind, BufReader::new(theirs.try_clone().unwrap()), theirs));
    ours.set_nonblocking(true).unwrap();
    let stream = tokio::net::UnixStream::from_std(ours).unwrap();
    ().serve_with_lifecycle(stream.into_split(), lifecycle)
        .await
        .unwrap()
}

fn lifecycles() -> [ClientLifecycleMode; 3] {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover {
            preferred_versions: preferred_versions.clone(),
        },
        ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: None,
        },
    ]
}

fn call(name: &'static str, arguments: Value) -> CallToolRequestParams {
    let mut call = CallToolRequestParams::new(name);
    call.arguments = arguments.as_object().cloned();
    call
}

#[tokio::test]
async fn the_sdk_uses_the_notes() {
    for lifecycle in lifecycles() {
        let host = connect(SampleKind::Notes, lifecycle).await;
        let tools = host.list_all_tools().await.unwrap();
        assert_eq!(
            tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(),
            ["add_note", "search_notes", "delete_note"]
        );
        let added = host
            .call_tool(call("add_note", json!({"title": "a b", "text": "c"})))
            .await
            .unwrap();
        assert_ne!(added.is_error, Some(true));
        let found = host
            .call_tool(call("search_notes", json!({"query": "C"})))
            .await
            .unwrap();
        assert_eq!(found.structured_content.unwrap()["total"], 1);
        let listed = host.list_all_resources().await.unwrap();
        let read = host
            .read_resource(ReadResourceRequestParams::new(listed[0].uri.clone()))
            .await
            .unwrap();
        assert_eq!(serde_json::to_value(&read.contents).unwrap()[0]["text"], "c");
        assert_eq!(host.list_all_resource_templates().await.unwrap().len(), 1);
        assert_eq!(host.list_all_prompts().await.unwrap().len(), 1);
        host.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn the_sdk_uses_the_clock() {
    for lifecycle in lifecycles() {
        let host = connect(SampleKind::Clock, lifecycle).await;
        assert_eq!(host.list_all_tools().await.unwrap().len(), 2);
        let now = host
            .call_tool(call("now", json!({"zone": "Asia/Seoul"})))
            .await
            .unwrap();
        assert_eq!(now.structured_content.unwrap()["zone"], "Asia/Seoul");
        let counted = host
            .call_tool(call("countdown", json!({"seconds": 0.02, "steps": 2})))
            .await
            .unwrap();
        assert_ne!(counted.is_error, Some(true));
        assert_eq!(host.list_all_resources().await.unwrap().len(), 1);
        host.cancel().await.unwrap();
    }
}
