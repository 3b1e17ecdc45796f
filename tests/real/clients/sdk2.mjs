// A host on @modelcontextprotocol/client 2.x, in the legacy era or (--era modern) the modern one.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport, getDefaultEnvironment } from '@modelcontextprotocol/client/stdio';
import { LEGACY_SERVERS } from '../fleet.mjs';
import { Report, handlers, openSides, parseArguments, tap } from './common.mjs';
import { legacyScenarios } from './legacy.mjs';
import { modernScenarios } from './modern.mjs';

async function connect(where, options, { server }) {
  const transport = where.url
    ? new StreamableHTTPClientTransport(new URL(where.url))
    : new StdioClientTransport({ command: where.command, args: where.args, env: { ...getDefaultEnvironment(), ...where.env }, cwd: where.cwd, stderr: 'ignore' });
  // A direct connection to a legacy server is legacy whatever the era under test.
  const legacy = options.era === 'legacy' || LEGACY_SERVERS.includes(server);
  const client = new Client({ name: 'sdk2-driver', version: '1.0.0' }, {
    capabilities: { sampling: {}, elicitation: {}, roots: legacy ? { listChanged: true } : {} },
    versionNegotiation: { mode: legacy ? 'legacy' : { pin: '2026-07-28' } },
  });
  const answers = handlers(options);
  const asked = { sampling: [], elicitation: [], roots: [] };
  client.setRequestHandler('sampling/createMessage', (request) => { asked.sampling.push(request.params); return answers.sampling(); });
  client.setRequestHandler('elicitation/create', (request) => { asked.elicitation.push(request.params); return answers.elicitation(); });
  client.setRequestHandler('roots/list', () => { asked.roots.push({}); return answers.roots(); });
  for (const kind of ['tools/list_changed', 'resources/list_changed', 'prompts/list_changed', 'resources/updated', 'message']) client.setNotificationHandler(`notifications/${kind}`, () => {});
  const wire = tap(transport);
  await client.connect(transport);
  const calls = { 'tools/list': 'listTools', 'resources/list': 'listResources', 'resources/templates/list': 'listResourceTemplates', 'prompts/list': 'listPrompts' };
  const fresh = { cacheMode: 'refresh' };
  return {
    wire, asked, client,
    offered: client.getServerCapabilities(),
    revision: client.getNegotiatedProtocolVersion(),
    list: (method) => client[calls[method]](undefined, fresh),
    call: (name, args, { _meta, ...more } = {}) => client.callTool({ name, arguments: args, ...(_meta && { _meta }) }, more),
    read: (uri) => client.readResource({ uri }, fresh),
    prompt: (name, args) => client.getPrompt({ name, arguments: args }),
    complete: (params) => client.complete(params),
    subscribe: (uri) => client.subscribeResource({ uri }),
    unsubscribe: (uri) => client.unsubscribeResource({ uri }),
    listen: (filter) => client.listen(filter),
    setLevel: (level) => client.setLoggingLevel(level),
    ping: () => client.ping(),
    async close() { if (where.url && legacy) await transport.terminateSession().catch(() => {}); await client.close(); },
  };
}

const options = parseArguments(process.argv.slice(2));
const report = new Report(options.only);
const sides = await openSides({ connect }, options);
await (options.era === 'modern' ? modernScenarios : legacyScenarios)(report, sides, options);
await sides.close();
process.exit(report.finish());
