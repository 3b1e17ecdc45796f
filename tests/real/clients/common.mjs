// What the drivers on the two TypeScript SDKs share: the report, the tap on the wire, and the scenarios.
//
// A driver hands over `connect(where, options)`; the scenarios do not know which SDK they run on. `where` is a server of the fleet
// (direct) or manifold. Every comparison is between what was on the wire, not between what the SDK made of it.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { isDeepStrictEqual } from 'node:util';

export const DOCUMENT = 'demo://resource/static/document/architecture.md';
const CHECK_LIMIT_MS = 40_000;

/** Arguments of a driver: --fleet FILE and one of --direct, --http URL, --sse URL (2024-11-05), --stdio JSON (a list: command and arguments). */
export function parseArguments(argv) {
  const options = { era: 'legacy' };
  for (let i = 0; i < argv.length; i++) {
    const [key, value] = [argv[i].replace(/^--/, ''), argv[i + 1]];
    if (key === 'direct') options.direct = true;
    else if (['fleet', 'http', 'sse', 'stdio', 'era', 'only', 'within'].includes(key)) { options[key] = value; i += 1; }
    else throw new Error(`unknown argument ${argv[i]}`);
  }
  options.fleet = JSON.parse(readFileSync(options.fleet, 'utf8'));
  if (options.stdio) options.stdio = JSON.parse(options.stdio);
  return options;
}

/** Runs named checks one after the other and prints a line for each. */
export class Report {
  passed = 0;
  failed = 0;
  constructor(only) { this.only = only; }
  async check(name, work) {
    if (this.only && !name.includes(this.only)) return;
    let timer;
    const limit = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`no end after ${CHECK_LIMIT_MS / 1000} s`)), CHECK_LIMIT_MS); });
    try {
      await Promise.race([work(), limit]);
      this.passed += 1;
      console.log(`ok - ${name}`);
    } catch (error) {
      this.failed += 1;
      console.log(`not ok - ${name}: ${String(error?.message ?? error).replaceAll('\n', ' ').slice(0, 1500)}`);
    } finally { clearTimeout(timer); }
  }
  finish() {
    console.log(`# ${this.passed} passed, ${this.failed} failed`);
    return this.failed > 0 ? 1 : 0;
  }
}

/** Records what passes through an SDK transport. The SDK sets `onmessage` when it connects, so the setter is where to listen. */
export function tap(transport) {
  const wire = { received: [], sent: [] };
  let deliver;
  Object.defineProperty(transport, 'onmessage', {
    configurable: true,
    get: () => deliver && ((message, extra) => { wire.received.push({ ...message, at: Date.now() }); return deliver(message, extra); }),
    set: (handler) => { deliver = handler; },
  });
  const send = transport.send.bind(transport);
  transport.send = (message, options) => { wire.sent.push(message); return send(message, options); };
  /** The answer to the last request of this method. */
  wire.answer = (method) => {
    const request = wire.sent.findLast((message) => message.method === method);
    return wire.received.findLast((message) => message.id === request?.id && ('result' in message || 'error' in message));
  };
  wire.notifications = (method, since = 0) => wire.received.slice(since).filter((message) => message.method === method);
  return wire;
}

export function assert(condition, message) { if (!condition) throw new Error(message); }

/** Where two JSON values part, for a message that can be read. */
export function difference(expected, actual, path = '') {
  if (isDeepStrictEqual(expected, actual)) return undefined;
  if (expected && actual && typeof expected === 'object' && typeof actual === 'object') {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      const inner = difference(expected[key], actual[key], `${path}/${key}`);
      if (inner) return inner;
    }
  }
  return `at ${path || '/'} expected ${JSON.stringify(expected)?.slice(0, 300)}, got ${JSON.stringify(actual)?.slice(0, 300)}`;
}

export function same(expected, actual, what) {
  const parted = difference(expected, actual);
  assert(!parted, `${what}: ${parted}`);
}

const OWNED_BY_THE_HOP = ['resultType', 'ttlMs', 'cacheScope', 'nextCursor'];

/** A result without what a hop owns, and without times. */
export function comparable(value) {
  const strip = (inner) => {
    if (typeof inner === 'string') {
      return inner.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?/g, '<time>').replace(/\d{1,2}:\d\d:\d\d( [AP]M)?/g, '<time>');
    }
    if (Array.isArray(inner)) return inner.map(strip);
    if (inner && typeof inner === 'object') return Object.fromEntries(Object.entries(inner).map(([key, its]) => [key, strip(its)]));
    return inner;
  };
  const copy = structuredClone(value);
  for (const key of OWNED_BY_THE_HOP) delete copy[key];
  if (copy._meta) {
    delete copy._meta['io.modelcontextprotocol/serverInfo'];
    if (Object.keys(copy._meta).length === 0) delete copy._meta;
  }
  return strip(copy);
}

export async function until(condition, limitMs, what) {
  const end = Date.now() + limitMs;
  while (!condition()) {
    assert(Date.now() < end, `${what} within ${limitMs} ms`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/**
 * The two sides of every comparison. Direct: one client per server, names as the server says them. Through manifold: one client for
 * all, public names. `side.on(server)` is the client that reaches the server, `side.name(server, local)` the name to use there.
 */
export async function openSides(driver, options) {
  const direct = new Map();
  const close = [];
  for (const [server, spec] of Object.entries(options.fleet.servers)) {
    const client = await driver.connect({ command: spec.command, args: spec.args, env: spec.env, cwd: options.fleet.work }, options, { server });
    close.push(client);
    direct.set(server, client);
  }
  const plain = { on: (server) => direct.get(server), name: (_server, local) => local, all: () => [...direct.values()] };
  let tested = plain;
  let many;
  if (!options.direct) {
    const where = options.http ? { url: options.http } : options.sse ? { sse: options.sse } : { command: options.stdio[0], args: options.stdio.slice(1), cwd: options.fleet.work };
    many = await driver.connect(where, options, {});
    close.push(many);
    tested = { on: () => many, name: (server, local) => `${server}__${local}`, all: () => [many] };
  }
  return { plain, tested, many, close: async () => { for (const client of close) await client.close().catch(() => {}); } };
}

/** All items of a list, as they were on the wire, over all pages. */
async function listed(client, method, key) {
  const since = client.wire.received.length;
  await client.list(method);
  return client.wire.received.slice(since).flatMap((message) => message.result?.[key] ?? []);
}

const KINDS = [
  ['tools/list', 'tools', true],
  ['resources/list', 'resources', false],
  ['resources/templates/list', 'resourceTemplates', false],
  ['prompts/list', 'prompts', true],
];

/** Lists: the union of what the servers list, each definition equal apart from the name (bytes.mjs looks at the bytes). */
export async function listScenarios(report, sides, options, { complete = () => true, expected: adapt = (_server, item) => item } = {}) {
  for (const [method, key, named] of KINDS) {
    await report.check(`${method} is the union of the servers' own, item for item`, async () => {
      const found = new Map((await listed(sides.tested.on(), method, key).catch(() => listedDirect(sides, options, method, key))).map((item) => [identity(item, named), item]));
      let expected = 0;
      for (const server of Object.keys(options.fleet.servers)) {
        for (const item of await listed(sides.plain.on(server), method, key)) {
          const adapted = adapt(server, item);
          const wanted = named ? { ...adapted, name: sides.tested.name(server, item.name) } : adapted;
          const got = found.get(identity(wanted, named));
          if (!got && !complete(server, item)) continue;
          assert(got, `${identity(wanted, named)} is not listed; there are ${[...found.keys()].join(', ')}`);
          same(wanted, got, identity(wanted, named));
          expected += 1;
        }
      }
      if (!options.direct) assert(found.size === expected, `${found.size} listed, ${expected} expected: ${[...found.keys()].join(', ')}`);
    });
    if (!options.direct) {
      await report.check(`${method} is the same a second time`, async () => {
        const [first, second] = [await listed(sides.many, method, key), await listed(sides.many, method, key)];
        assert(JSON.stringify(first) === JSON.stringify(second), 'order or bytes changed');
      });
    }
  }
}
const identity = (item, named) => (named ? item.name : item.uri ?? item.uriTemplate);

/** The direct baseline lists each server for itself. */
async function listedDirect(sides, options, method, key) {
  const items = [];
  for (const server of Object.keys(options.fleet.servers)) items.push(...await listed(sides.plain.on(server), method, key));
  return items;
}

/** The same request on both sides, the answers compared. */
export function comparer(report, sides) {
  return async (title, server, method, request) => {
    await report.check(title, async () => {
      const run = async (side) => {
        const client = side.on(server);
        await request(client, (local) => side.name(server, local)).catch((error) => { if (!client.wire.answer(method)?.error) throw error; });
        const { result, error } = client.wire.answer(method);
        return result ? { result: comparable(result) } : { error: error.code };
      };
      const expected = await run(sides.plain);
      if (sides.plain === sides.tested) return;
      same(expected, await run(sides.tested), title);
    });
  };
}

/** One meaningful call (or more) for each server, compared with the same call made directly. */
export async function callScenarios(report, sides, options) {
  const { docs, repo, tag } = options.fleet;
  const compare = comparer(report, sides);
  const calls = [
    ['text of any script', 'everything', 'echo', { message: 'Grüße 世界 🌍 "quoted" \\ \u2028' }],
    ['numbers', 'everything', 'get-sum', { a: 2.5, b: -7 }],
    ['structured content', 'everything', 'get-structured-content', { location: 'Chicago' }],
    ['an image', 'everything', 'get-tiny-image', {}],
    ['resource links', 'everything', 'get-resource-links', { count: 3 }],
    ['annotations', 'everything', 'get-annotated-message', { messageType: 'error', includeImage: true }],
    ['a refused argument', 'everything', 'get-sum', { a: 'not a number' }],
    ['a file', 'filesystem', 'read_text_file', { path: `${docs}/hello.txt` }],
    ['a folder', 'filesystem', 'list_directory', { path: docs }],
    ['an absent file', 'filesystem', 'read_text_file', { path: `${docs}/absent.txt` }],
    ['new entities', 'memory', 'create_entities', { entities: [{ name: `Ada of ${tag}`, entityType: 'person', observations: ['wrote programs', 'naïve 日本'] }] }],
    ['known entities', 'memory', 'open_nodes', { names: [`Ada of ${tag}`] }],
    ['a time', 'time', 'convert_time', { source_timezone: 'UTC', time: '12:30', target_timezone: 'Asia/Tokyo' }],
    ['an unknown zone', 'time', 'convert_time', { source_timezone: 'Nowhere/Land', time: '12:30', target_timezone: 'Asia/Tokyo' }],
    ['two commits', 'git', 'git_log', { repo_path: repo, max_count: 2 }],
    ['a clean tree', 'git', 'git_status', { repo_path: repo }],
    ['a sum', 'modern', 'add', { a: 40, b: 2 }],
  ];
  for (const [what, server, tool, args] of calls) {
    await compare(`${server} ${tool} (${what}) answers as it does directly`, server, 'tools/call', (client, name) => client.call(name(tool), args));
  }
  await report.check('an unknown tool is a protocol error or a tool error, at once', async () => {
    const client = sides.tested.on('everything');
    await client.call(sides.tested.name('everything', 'no-such-tool'), {}).catch(() => {});
    const { result, error } = client.wire.answer('tools/call');
    assert(error?.code === -32602 || result?.isError, JSON.stringify(result ?? error));
  });
  await report.check('ten calls to five servers at once', async () => {
    const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => [
      sides.tested.on('everything').call(sides.tested.name('everything', 'echo'), { message: `n${i}` }),
      sides.tested.on('modern').call(sides.tested.name('modern', 'add'), { a: i, b: 1 }),
      sides.tested.on('git').call(sides.tested.name('git', 'git_status'), { repo_path: repo }),
      sides.tested.on('filesystem').call(sides.tested.name('filesystem', 'list_directory'), { path: docs }),
      sides.tested.on('time').call(sides.tested.name('time', 'convert_time'), { source_timezone: 'UTC', time: '00:00', target_timezone: 'UTC' }),
    ]).flat());
    for (let i = 0; i < 10; i++) {
      assert(answers[i * 5].content[0].text === `Echo: n${i}`, `echo ${i}: ${JSON.stringify(answers[i * 5])}`);
      assert(answers[i * 5 + 1].structuredContent.sum === i + 1, `add ${i}: ${JSON.stringify(answers[i * 5 + 1])}`);
    }
    assert(answers.every((answer) => !answer.isError), 'one of them failed');
  });
}

/** Prompts, resources and completion. */
export async function readScenarios(report, sides) {
  const compare = comparer(report, sides);
  await compare('a static resource is read as it is directly', 'everything', 'resources/read', (client) => client.read(DOCUMENT));
  await compare('a resource from a template is read as it is directly', 'everything', 'resources/read', (client) => client.read('demo://resource/dynamic/text/7'));
  await compare('a resource of the modern server is read as it is directly', 'modern', 'resources/read', (client) => client.read('note://one'));
  await compare('a template of the modern server is read as it is directly', 'modern', 'resources/read', (client) => client.read('note://numbered/12'));
  await compare('a prompt without arguments', 'everything', 'prompts/get', (client, name) => client.prompt(name('simple-prompt'), {}));
  await compare('a prompt with arguments', 'everything', 'prompts/get', (client, name) => client.prompt(name('args-prompt'), { city: 'Paris', state: 'Texas' }));
  await compare('a prompt with an embedded resource', 'everything', 'prompts/get', (client, name) => client.prompt(name('resource-prompt'), { resourceType: 'Text', resourceId: '3' }));
  await compare('a prompt of the modern server', 'modern', 'prompts/get', (client, name) => client.prompt(name('greet'), { language: 'french' }));
  await compare('completion of a prompt argument', 'everything', 'completion/complete',
    (client, name) => client.complete({ ref: { type: 'ref/prompt', name: name('completable-prompt') }, argument: { name: 'department', value: 'S' } }));
  await compare('completion with context', 'everything', 'completion/complete',
    (client, name) => client.complete({ ref: { type: 'ref/prompt', name: name('completable-prompt') }, argument: { name: 'name', value: '' }, context: { arguments: { department: 'Sales' } } }));
  await compare('completion of a template argument', 'everything', 'completion/complete',
    (client) => client.complete({ ref: { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, argument: { name: 'resourceId', value: '7' } }));
  await compare('completion of the modern server', 'modern', 'completion/complete',
    (client, name) => client.complete({ ref: { type: 'ref/prompt', name: name('greet') }, argument: { name: 'language', value: 'f' } }));
}

/** Progress on the wire: every step in order, all before the answer, one token, nothing after it. */
export async function progressScenario(report, sides, server, tool, args, steps) {
  await report.check(`${server} ${tool} reports ${steps} steps in order before its answer`, async () => {
    const client = sides.tested.on(server);
    const since = client.wire.received.length;
    const seen = [];
    await client.call(sides.tested.name(server, tool), args, { onprogress: (progress) => seen.push(progress.progress) });
    const answer = client.wire.answer('tools/call');
    const token = client.wire.sent.findLast((message) => message.method === 'tools/call').params._meta.progressToken;
    const progress = client.wire.notifications('notifications/progress', since);
    same(Array.from({ length: steps }, (_, i) => i + 1), progress.map((message) => message.params.progress), 'steps on the wire');
    assert(progress.every((message) => message.params.progressToken === token && message.params.total === steps), `token or total: ${JSON.stringify(progress)} for ${JSON.stringify(token)}`);
    assert(client.wire.received.indexOf(progress.at(-1)) < client.wire.received.indexOf(answer), 'the last step came after the answer');
    // The SDK itself loses a step that it reads together with the answer.
    assert(seen.length >= steps - 1, `the client saw only ${seen}`);
  });
  await report.check(`${server} ${tool} without a token gets no progress`, async () => {
    const client = sides.tested.on(server);
    const since = client.wire.received.length;
    await client.call(sides.tested.name(server, tool), args);
    same([], client.wire.notifications('notifications/progress', since).map((message) => message.params), 'progress');
  });
}

/** A call that is cancelled after its second step: it ends for the client at once, and nothing of it arrives any more. */
export async function cancelScenario(report, sides, server, tool, args, { silent = true, after = async () => {} } = {}) {
  await report.check(`${server} ${tool} is cancelled`, async () => {
    const client = sides.tested.on(server);
    const since = client.wire.received.length;
    const abort = new AbortController();
    let steps = 0;
    const started = Date.now();
    const call = client.call(sides.tested.name(server, tool), args, { signal: abort.signal, onprogress: () => { steps += 1; if (steps === 2) abort.abort('enough'); } });
    const outcome = await call.then(() => 'answered', () => 'cancelled');
    assert(outcome === 'cancelled', 'the call was answered');
    assert(Date.now() - started < 4000, `it took ${Date.now() - started} ms to end`);
    const request = client.wire.sent.findLast((message) => message.method === 'tools/call');
    await pause(300);
    const quietSince = client.wire.received.length;
    await pause(1200);
    if (silent) same([], client.wire.notifications('notifications/progress', quietSince).map((message) => message.params), 'progress after the cancellation');
    assert(!client.wire.received.slice(since).some((message) => message.id === request.id), 'an answer to the cancelled call arrived');
    await after(client);
  });
  await report.check(`${server} serves the next call after a cancellation`, async () => {
    const [local, more] = server === 'modern' ? ['add', { a: 1, b: 1 }] : ['echo', { message: 'still here' }];
    const answer = await sides.tested.on(server).call(sides.tested.name(server, local), more);
    assert(!answer.isError, JSON.stringify(answer));
  });
}

/** What a host answers to the questions of servers. */
export function handlers(options) {
  return {
    sampling: () => ({ model: 'test-model', role: 'assistant', stopReason: 'endTurn', content: { type: 'text', text: `sampled words for ${options.fleet.tag}` } }),
    elicitation: () => ({ action: 'accept', content: { name: `Ada Lovelace of ${options.fleet.tag}`, check: true, integer: 7 } }),
    roots: () => ({ roots: [{ uri: pathToFileURL(options.fleet.docs).href, name: 'documents' }] }),
  };
}
