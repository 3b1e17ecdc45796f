"""A host on the Python SDK `mcp` 2.x, in the legacy era or (--era modern) the modern one.

Arguments as for the drivers in JavaScript: --fleet FILE and one of --direct, --http URL, --stdio JSON; --era legacy|modern.
Comparisons are between what the SDK's models hold on both sides.
"""

import argparse
import asyncio
import json
import pathlib
import re
import sys
import time
import warnings
from contextlib import AsyncExitStack

from mcp import Client, StdioServerParameters
from mcp import types
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")
DOCUMENT = "demo://resource/static/document/architecture.md"
LEGACY_SERVERS = ("everything", "filesystem", "memory")
CONDITIONAL = re.compile(r"^(get-roots-list|trigger-.*request.*|trigger-url-elicitation|simulate-research-query)$")
CHECK_LIMIT = 40.0


class Report:
    """Runs named checks one after the other and prints a line for each."""

    def __init__(self, only):
        self.only, self.passed, self.failed = only, 0, 0

    async def check(self, name, work):
        if self.only and self.only not in name:
            return
        try:
            await asyncio.wait_for(work(), CHECK_LIMIT)
            self.passed += 1
            print(f"ok - {name}", flush=True)
        except Exception as error:  # every failure of a check is a line, none ends the run
            self.failed += 1
            why = f"{type(error).__name__}: {error}".replace("\n", " ")[:1500]
            print(f"not ok - {name}: {why}", flush=True)


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


def plain(model):
    """What a model holds, without what a hop owns and without times."""
    value = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    for key in ("resultType", "ttlMs", "cacheScope", "nextCursor"):
        value.pop(key, None)
    meta = value.get("_meta")
    if meta is not None:
        meta.pop("io.modelcontextprotocol/serverInfo", None)
        if not meta:
            del value["_meta"]
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "<time>", text)
    return json.loads(re.sub(r"\d{1,2}:\d\d:\d\d( [AP]M)?", "<time>", text))


class Host:
    """One connection, with what its servers asked and told."""

    def __init__(self, options):
        self.options, self.asked, self.told = options, [], []

    def words(self, text):
        """What this host answers, told apart from what another host before the same daemon answers."""
        return f"{text} of {self.options.fleet['tag']}"

    def parameters(self, where):
        if "url" in where:
            return where["url"]
        command = StdioServerParameters(command=where["command"], args=where.get("args", []), env=where.get("env"), cwd=self.options.fleet["work"])
        return stdio_client(command, errlog=open("/dev/null", "w"))

    async def open(self, stack, where, legacy):
        async def sample(_context, params):
            self.asked.append(("sampling", params))
            return types.CreateMessageResult(model="test-model", role="assistant", stop_reason="endTurn", content=types.TextContent(type="text", text=self.words("sampled words")))

        async def elicit(_context, params):
            self.asked.append(("elicitation", params))
            return types.ElicitResult(action="accept", content={"name": self.words("Ada Lovelace"), "check": True, "integer": 7})

        async def roots(_context):
            self.asked.append(("roots", None))
            return types.ListRootsResult(roots=[types.Root(uri=pathlib.Path(self.options.fleet["docs"]).as_uri(), name="documents")])

        async def log(params):
            self.told.append(("message", params))

        async def message(incoming):
            method = getattr(incoming, "method", None)
            if method:
                self.told.append((method, getattr(incoming, "params", None)))

        self.client = await stack.enter_async_context(
            Client(
                self.parameters(where), mode="legacy" if legacy else "auto", cache=None, read_timeout_seconds=30,
                sampling_callback=sample, elicitation_callback=elicit, list_roots_callback=roots, logging_callback=log, message_handler=message,
            )
        )
        return self

    async def items(self, kind):
        call, key, capability = {
            "tools": ("list_tools", "tools", "tools"), "resources": ("list_resources", "resources", "resources"),
            "templates": ("list_resource_templates", "resource_templates", "resources"), "prompts": ("list_prompts", "prompts", "prompts"),
        }[kind]
        found, cursor = [], None
        if getattr(self.client.server_capabilities, capability) is None:
            return found
        while True:
            page = await getattr(self.client, call)(cursor=cursor)
            found += getattr(page, key)
            cursor = page.next_cursor
            if cursor is None:
                return found


class Sides:
    def __init__(self, direct, many):
        self.direct, self.many = direct, many

    def on(self, server):
        return self.many or self.direct[server]

    def name(self, server, local):
        return f"{server}__{local}" if self.many else local


async def answer(work):
    try:
        return plain(await work)
    except MCPError as error:
        return {"error": error.error.code}


async def scenarios(report, sides, options, legacy):
    docs, repo = options.fleet["docs"], options.fleet["repo"]

    async def compare(title, server, call):
        async def work():
            expected = await answer(call(sides.direct[server], lambda local: local))
            if sides.many:
                got = await answer(call(sides.many, lambda local: sides.name(server, local)))
                expect(expected == got, f"expected {json.dumps(expected)[:500]}, got {json.dumps(got)[:500]}")
        await report.check(title, work)

    async def connection():
        revision = sides.on("modern").client.protocol_version
        expect((revision < "2026") == legacy, revision)
    await report.check(f"the connection is {'legacy' if legacy else 'modern'}", connection)

    for kind in ("tools", "resources", "templates", "prompts"):
        async def union(kind=kind):
            key = {"tools": "name", "prompts": "name", "resources": "uri", "templates": "uriTemplate"}[kind]
            found = {plain(item)[key]: plain(item) for item in (await sides.many.items(kind) if sides.many else [])}
            expected = 0
            for server, host in sides.direct.items():
                for item in await host.items(kind):
                    wanted = plain(item)
                    local = wanted["name"]
                    if not legacy and server in LEGACY_SERVERS:
                        wanted.pop("execution", None)  # the modern schema has none
                    if kind in ("tools", "prompts"):
                        wanted["name"] = sides.name(server, local)
                    if not sides.many:
                        continue
                    got = found.get(wanted[key])
                    if got is None and not legacy and server == "everything" and CONDITIONAL.match(local):
                        continue
                    expect(got == wanted, f"expected {json.dumps(wanted)[:600]}, got {json.dumps(got)[:600]}")
                    expected += 1
            expect(not sides.many or expected == len(found), f"{len(found)} listed, {expected} expected: {sorted(found)}")
        await report.check(f"{kind} are the union of the servers' own, item for item", union)

    for what, server, tool, arguments in (
        ("text of any script", "everything", "echo", {"message": "Grüße 世界 🌍 \u2028"}),
        ("structured content", "everything", "get-structured-content", {"location": "Chicago"}),
        ("an image", "everything", "get-tiny-image", {}),
        ("a file", "filesystem", "read_text_file", {"path": f"{docs}/hello.txt"}),
        ("an absent file", "filesystem", "read_text_file", {"path": f"{docs}/absent.txt"}),
        ("new entities", "memory", "create_entities", {"entities": [{"name": f"Grace of {options.fleet['tag']}", "entityType": "person", "observations": ["compiled 日本"]}]}),
        ("a time", "time", "convert_time", {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ("two commits", "git", "git_log", {"repo_path": repo, "max_count": 2}),
        ("a sum", "modern", "add", {"a": 40, "b": 2}),
    ):
        await compare(f"{server} {tool} ({what}) answers as it does directly", server,
                      lambda host, name, tool=tool, arguments=arguments: host.client.call_tool(name(tool), arguments))
    await compare("a static resource is read as it is directly", "everything", lambda host, _name: host.client.read_resource(DOCUMENT))
    await compare("a resource of the modern server", "modern", lambda host, _name: host.client.read_resource("note://one"))
    await compare("a prompt with arguments", "everything", lambda host, name: host.client.get_prompt(name("args-prompt"), {"city": "Paris", "state": "Texas"}))
    await compare("completion with context", "everything", lambda host, name: host.client.complete(
        types.PromptReference(type="ref/prompt", name=name("completable-prompt")), {"name": "name", "value": ""}, context_arguments={"department": "Sales"}))

    server, tool, arguments = ("everything", "trigger-long-running-operation", {"duration": 0.8, "steps": 8}) if legacy else ("modern", "count", {"to": 8, "delayMs": 40})

    async def progress():
        seen = []

        async def on_progress(step, total, _message):
            seen.append((step, total))
        await sides.on(server).client.call_tool(sides.name(server, tool), arguments, progress_callback=on_progress)
        expect(seen == [(step, 8) for step in range(1, 9)], str(seen))
    await report.check(f"{server} {tool} reports 8 steps in order", progress)

    async def cancel():
        steps = []
        enough = asyncio.Event()

        async def on_progress(step, _total, _message):
            steps.append(step)
            if len(steps) == 2:
                enough.set()
        long = {"duration": 6, "steps": 20} if legacy else {"to": 40, "delayMs": 200}
        host = sides.on(server)
        before = None if legacy else await host.client.call_tool(sides.name("modern", "cancelled_count"), {})
        call = asyncio.create_task(host.client.call_tool(sides.name(server, tool), long, progress_callback=on_progress))
        await enough.wait()
        call.cancel()
        await asyncio.wait([call], timeout=3)
        expect(call.cancelled(), "the call did not end")
        await asyncio.sleep(0.3)
        count = len(steps)
        await asyncio.sleep(0.8)
        expect(len(steps) == count, f"progress after the cancellation: {steps}")
        if not legacy:
            end = time.monotonic() + 3
            while plain(await host.client.call_tool(sides.name("modern", "cancelled_count"), {})) == plain(before):
                expect(time.monotonic() < end, "the server never heard of the cancellation")
                await asyncio.sleep(0.05)
    await report.check(f"{server} {tool} is cancelled", cancel)

    async def asks(kind, tool, arguments, server, wanted):
        async def work():
            host = sides.on(server)
            host.asked.clear()
            result = await host.client.call_tool(sides.name(server, tool), arguments)
            text = json.dumps(plain(result), ensure_ascii=False)
            expect((wanted if kind == "roots" else host.words(wanted)) in text, text)
            expect(kind == "roots" or [kind] == [asked for asked, _ in host.asked], str(host.asked))
        await report.check(f"{kind} reaches the host and its answer the server ({server})", work)
    if legacy:
        await asks("sampling", "trigger-sampling-request", {"prompt": "a rhyme"}, "everything", "sampled words")
        await asks("elicitation", "trigger-elicitation-request", {}, "everything", "Ada Lovelace")
        await asks("roots", "get-roots-list", {}, "everything", docs)
    else:
        await asks("sampling", "summarise", {"topic": "rivers"}, "modern", "sampled words")
        await asks("elicitation", "ask_name", {}, "modern", "Ada Lovelace")
        await asks("roots", "show_roots", {}, "modern", docs)

    async def hears(host, method, limit=3.0):
        end = time.monotonic() + limit
        while not any(told == method for told, _ in host.told):
            expect(time.monotonic() < end, f"no {method} within {limit} s; heard {[told for told, _ in host.told]}")
            await asyncio.sleep(0.02)

    if legacy:
        async def subscription():
            host = sides.on("everything")
            toggle = sides.name("everything", "toggle-subscriber-updates")
            await host.client.subscribe_resource(DOCUMENT)
            host.told.clear()
            await host.client.call_tool(toggle, {})
            await hears(host, "notifications/resources/updated")
            await host.client.call_tool(toggle, {})
            await host.client.unsubscribe_resource(DOCUMENT)
        await report.check("a subscribed resource is reported as updated", subscription)

        async def logging():
            host = sides.on("everything")
            toggle = sides.name("everything", "toggle-simulated-logging")
            await host.client.set_logging_level("debug")
            host.told.clear()
            await host.client.call_tool(toggle, {})
            await hears(host, "message")
            await host.client.call_tool(toggle, {})
        await report.check("log messages arrive after logging/setLevel", logging)
        await report.check("ping", lambda: sides.on("everything").client.send_ping())
    else:
        async def listening():
            host = sides.on("modern")
            async with host.client.listen(tools_list_changed=True, resource_subscriptions=["note://one"]) as events:
                async def first():
                    async for event in events:
                        return event
                waiting = asyncio.create_task(first())
                await host.client.call_tool(sides.name("modern", "touch"), {})
                event = await asyncio.wait_for(waiting, 3)
                expect(getattr(event, "uri", None) == "note://one", str(event))
        await report.check("a listening host hears of an updated resource", listening)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fleet", required=True)
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--http")
    parser.add_argument("--stdio")
    parser.add_argument("--era", default="legacy", choices=["legacy", "modern"])
    parser.add_argument("--only")
    options = parser.parse_args()
    options.fleet = json.loads(pathlib.Path(options.fleet).read_text())
    legacy = options.era == "legacy"
    report = Report(options.only)
    async with AsyncExitStack() as stack:
        direct = {}
        for server, where in options.fleet["servers"].items():
            direct[server] = await Host(options).open(stack, where, legacy or server in LEGACY_SERVERS)
        many = None
        if not options.direct:
            where = {"url": options.http} if options.http else dict(zip(("command", "args"), (json.loads(options.stdio)[0], json.loads(options.stdio)[1:])))
            many = await Host(options).open(stack, where, legacy)
        await scenarios(report, Sides(direct, many), options, legacy)
    print(f"# {report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
