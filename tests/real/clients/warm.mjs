// An impatient host (as Codex is): connects and lists the tools once, within --within milliseconds of starting to connect, and then
// calls a tool of a server that may still be starting.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Report, assert, parseArguments } from './common.mjs';

const options = parseArguments(process.argv.slice(2));
const within = Number(options.within);
const report = new Report();
let client;
await report.check(`the whole list of tools comes within ${within} ms`, async () => {
  const started = Date.now();
  const transport = options.http
    ? new StreamableHTTPClientTransport(new URL(options.http))
    : new StdioClientTransport({ command: options.stdio[0], args: options.stdio.slice(1), cwd: options.fleet.work, stderr: 'ignore' });
  client = new Client({ name: 'impatient-driver', version: '1.0.0' }, { capabilities: { elicitation: {} } });
  await client.connect(transport);
  const names = [];
  for (let cursor; ;) {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    names.push(...page.tools.map((tool) => tool.name));
    cursor = page.nextCursor;
    if (cursor === undefined) break;
  }
  const took = Date.now() - started;
  for (const wanted of ['everything__echo', 'filesystem__list_directory', 'memory__open_nodes', 'time__convert_time', 'git__git_log', 'modern__add']) assert(names.includes(wanted), `${wanted} is not among ${names}`);
  assert(took <= within, `it took ${took} ms`);
});
await report.check('a call meets a server that is still starting', async () => {
  const answer = await client.callTool({ name: 'time__convert_time', arguments: { source_timezone: 'UTC', time: '12:30', target_timezone: 'Asia/Tokyo' } });
  assert(!answer.isError && JSON.stringify(answer).includes('21:30'), JSON.stringify(answer));
});
await client?.close();
process.exit(report.finish());
