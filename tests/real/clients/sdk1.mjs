// A host on @modelcontextprotocol/sdk 1.x (legacy revisions), against each server directly or through manifold.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport, getDefaultEnvironment } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Report, handlers, openSides, parseArguments, tap } from './common.mjs';
import { legacyScenarios } from './legacy.mjs';

async function connect(where, options) {
  const transport = where.url
    ? new StreamableHTTPClientTransport(new URL(where.url))
    : where.sse ? new SSEClientTransport(new URL(where.sse)) : new StdioClientTransport({ command: where.command, args: where.args, env: { ...getDefaultEnvironment(), ...where.env }, cwd: where.cwd, stderr: 'ignore' });
  const client = new Client({ name: 'sdk1-driver', version: '1.0.0' }, { capabilities: { sampling: {}, elicitation: {}, roots: { listChanged: true } } });
  const answers = handlers(options);
  const asked = { sampling: [], elicitation: [], roots: [] };
  client.setRequestHandler(CreateMessageRequestSchema, (request) => { asked.sampling.push(request.params); return answers.sampling(); });
  client.setRequestHandler(ElicitRequestSchema, (request) => { asked.elicitation.push(request.params); return answers.elicitation(); });
  client.setRequestHandler(ListRootsRequestSchema, () => { asked.roots.push({}); return answers.roots(); });
  const wire = tap(transport);
  await client.connect(transport);
  const offered = client.getServerCapabilities();
  const pages = { 'tools/list': ['listTools', 'tools'], 'resources/list': ['listResources', 'resources'], 'resources/templates/list': ['listResourceTemplates', 'resources'], 'prompts/list': ['listPrompts', 'prompts'] };
  return {
    wire, asked, offered,
    revision: wire.answer('initialize').result.protocolVersion,
    async list(method) {
      const [call, capability] = pages[method];
      if (!offered[capability]) return;
      for (let cursor; ;) {
        ({ nextCursor: cursor } = await client[call](cursor === undefined ? undefined : { cursor }));
        if (cursor === undefined) return;
      }
    },
    call: (name, args, more) => client.callTool({ name, arguments: args }, undefined, more),
    read: (uri) => client.readResource({ uri }),
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    complete: (params) => client.complete(params),
    subscribe: (uri) => client.subscribeResource({ uri }),
    unsubscribe: (uri) => client.unsubscribeResource({ uri }),
    setLevel: (level) => client.setLoggingLevel(level),
    ping: () => client.ping(),
    async close() { if (where.url) await transport.terminateSession().catch(() => {}); await client.close(); },
  };
}

const options = parseArguments(process.argv.slice(2));
const report = new Report(options.only);
const sides = await openSides({ connect }, options);
await legacyScenarios(report, sides, options);
await sides.close();
process.exit(report.finish());
