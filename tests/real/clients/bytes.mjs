// A host without any SDK: compares the very bytes of listings and results, as the servers wrote them and as manifold passes them on.
// Of a list item only the value of `name` may differ, of a result only what a hop owns. Arguments as for the other drivers.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { LEGACY_SERVERS } from '../fleet.mjs';
import { Report, assert, parseArguments } from './common.mjs';

const META = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28', 'io.modelcontextprotocol/clientCapabilities': {}, 'io.modelcontextprotocol/clientInfo': { name: 'bytes-driver', version: '1' } };

/** Where the JSON value at `i` ends. */
function end(text, i) {
  if (text[i] === '"') {
    for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
    return i + 1;
  }
  if (text[i] === '{' || text[i] === '[') {
    let depth = 0;
    for (; ; i++) {
      if (text[i] === '"') i = end(text, i) - 1;
      else if (text[i] === '{' || text[i] === '[') depth++;
      else if ((text[i] === '}' || text[i] === ']') && --depth === 0) return i + 1;
    }
  }
  while (i < text.length && !',]} \n\r\t'.includes(text[i])) i++;
  return i;
}
const space = (text, i) => { while (' \n\r\t'.includes(text[i])) i++; return i; };

/** The members of an object as [key, text of the value]; of an array as [index, text of the element]. */
function* parts(text) {
  const object = text[0] === '{';
  for (let i = space(text, 1), index = 0; text[i] !== '}' && text[i] !== ']'; index++) {
    let key = index;
    if (object) {
      const after = end(text, i);
      key = JSON.parse(text.slice(i, after));
      i = space(text, space(text, after) + 1);
    }
    const stop = end(text, i);
    yield [key, text.slice(i, stop)];
    i = space(text, stop);
    if (text[i] === ',') i = space(text, i + 1);
  }
}
const member = (text, key) => { for (const [its, value] of parts(text)) if (its === key) return value; return undefined; };

/** A stdio peer by hand. */
class Peer {
  constructor(spec, cwd) {
    this.child = spawn(spec.command, spec.args, { cwd, env: { ...process.env, ...spec.env }, stdio: ['pipe', 'pipe', 'ignore'] });
    this.waiting = new Map();
    this.child.on('close', () => {
      this.ended = true;
      for (const { failed } of this.waiting.values()) failed(new Error('the peer ended'));
    });
    this.child.stdin.on('error', () => {}); // it ended; the close event tells
    this.next = 1;
    createInterface({ input: this.child.stdout }).on('line', (line) => {
      const { id, method } = JSON.parse(line);
      if (method && id !== undefined) this.write({ jsonrpc: '2.0', id, error: { code: -32601, message: 'not here' } });
      else if (id !== undefined) this.waiting.get(id)?.done(line);
    });
  }
  write(message) { this.child.stdin.write(`${JSON.stringify(message)}\n`); }
  /** Sends a request and gives the text of the answer's `result`. */
  ask(method, params = {}) {
    const id = this.next++;
    const answer = new Promise((done, failed) => {
      this.waiting.set(id, { done, failed });
      if (this.ended) failed(new Error('the peer has ended'));
    });
    this.write({ jsonrpc: '2.0', id, method, params: this.modern ? { ...params, _meta: { ...META, ...params._meta } } : params });
    return answer.then((line) => {
      const result = member(line.trim(), 'result');
      assert(result, `${method}: ${line.slice(0, 400)}`);
      return result;
    });
  }
  async hello(modern) {
    this.modern = modern;
    if (modern) return;
    await this.ask('initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bytes-driver', version: '1' } });
    this.write({ jsonrpc: '2.0', method: 'notifications/initialized' });
    // server-everything adds tools after this notification; its answer to a ping says that it has read it.
    await this.ask('ping');
  }
  async items(method, key) {
    const found = [];
    for (let cursor; ;) {
      const result = await this.ask(method, cursor === undefined ? {} : { cursor });
      for (const [, item] of parts(member(result, key))) found.push(item);
      cursor = JSON.parse(result).nextCursor;
      if (cursor === undefined) return found;
    }
  }
  close() { this.child.stdin.end(); this.child.kill(); }
}

/** The text of an object with one member's value replaced. */
function replaced(text, key, value) {
  let out = '';
  let rest = text;
  for (const [its, old] of parts(text)) {
    if (its !== key) continue;
    const at = rest.search(new RegExp(`"${key}"\\s*:`));
    const from = rest.indexOf(old, at);
    out = rest.slice(0, from) + value;
    rest = rest.slice(from + old.length);
    break;
  }
  return out + rest;
}

const options = parseArguments(process.argv.slice(2));
const report = new Report(options.only);
const opened = [];
async function open(spec, modern) {
  const peer = new Peer(spec, options.fleet.work);
  opened.push(peer);
  await peer.hello(modern);
  return peer;
}

/** The text of an object without one member. */
function without(text, key) {
  if (member(text, key) === undefined) return text;
  return `{${[...parts(text)].filter(([its]) => its !== key).map(([its, value]) => `${JSON.stringify(its)}:${value}`).join(',')}}`;
}

for (const modern of [false, true]) {
  const era = modern ? 'modern' : 'legacy';
  // Each server in the family in which manifold reaches it for such a host: the host's own, if the server has it.
  const direct = new Map();
  for (const [server, spec] of Object.entries(options.fleet.servers)) direct.set(server, await open(spec, modern && !LEGACY_SERVERS.includes(server)));
  const many = options.direct ? undefined : await open({ command: options.stdio[0], args: options.stdio.slice(1) }, modern);
  for (const [method, key, named] of [['tools/list', 'tools', true], ['prompts/list', 'prompts', true], ['resources/list', 'resources', false], ['resources/templates/list', 'resourceTemplates', false]]) {
    await report.check(`${era} host: each item of ${method} is the server's own text`, async () => {
      const items = new Set(many ? await many.items(method, key) : []);
      for (const [server, peer] of direct) {
        if (['filesystem', 'memory'].includes(server) && key !== 'tools') continue;
        for (const item of await peer.items(method, key)) {
          const { name } = JSON.parse(item);
          let wanted = named ? replaced(item, 'name', JSON.stringify(`${server}__${name}`)) : item;
          if (modern && !peer.modern) wanted = without(wanted, 'execution'); // not in the modern schema
          assert(!many || items.has(wanted), `${wanted.slice(0, 600)} is not in the list; near it: ${[...items].find((its) => its.includes(`__${name}"`))?.slice(0, 600)}`);
        }
      }
    });
  }
  for (const [server, name, args] of [
    ['everything', 'get-structured-content', { location: 'Chicago' }],
    ['everything', 'get-tiny-image', {}],
    ['filesystem', 'read_text_file', { path: `${options.fleet.docs}/numbers.json` }],
    ['git', 'git_log', { repo_path: options.fleet.repo, max_count: 2 }],
    ['modern', 'add', { a: 1, b: 2 }],
  ]) {
    await report.check(`${era} host: the result of ${server} ${name} is the server's own text`, async () => {
      const own = (result) => [...parts(result)].filter(([key]) => key !== '_meta' && key !== 'resultType').map(([key, value]) => `${key}: ${value}`).join('\n');
      const wanted = own(await direct.get(server).ask('tools/call', { name, arguments: args }));
      if (!many) return;
      const got = own(await many.ask('tools/call', { name: `${server}__${name}`, arguments: args }));
      assert(wanted === got, `expected ${wanted.slice(0, 400)}, got ${got.slice(0, 400)}`);
    });
  }
}
for (const peer of opened) peer.close();
process.exit(report.finish());
