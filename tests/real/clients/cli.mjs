// Two command line hosts, mcporter and the inspector: they list the tools and call one. Arguments as for the other drivers.
import { spawn } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { REAL } from '../fleet.mjs';
import { Report, assert, parseArguments } from './common.mjs';

const BIN = join(REAL, 'npm/node_modules/.bin');
const options = parseArguments(process.argv.slice(2));
const report = new Report(options.only);
const { everything } = options.fleet.servers;
// One word, since the inspector would read options of the command as its own.
const command = join(options.fleet.work, `server-${process.pid}.sh`);
const words = options.direct ? [everything.command, ...everything.args] : options.stdio ?? ['false'];
writeFileSync(command, `#!/bin/sh\nexec ${words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ')}\n`);
chmodSync(command, 0o755);
const name = (local) => (options.direct ? local : `everything__${local}`);

/** Runs a tool of the npm folder under the newer Node there (both ask for it); its home is the working folder. */
function run(tool, args) {
  return new Promise((done, failed) => {
    const child = spawn(join(BIN, tool), args, {
      cwd: options.fleet.work,
      env: { ...process.env, PATH: `${BIN}:${process.env.PATH}`, HOME: options.fleet.work, NO_COLOR: '1', CI: 'true' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let [out, err] = ['', ''];
    child.stdout.on('data', (chunk) => { out += chunk; });
    child.stderr.on('data', (chunk) => { err += chunk; });
    const timer = setTimeout(() => child.kill('SIGKILL'), 35_000);
    child.on('error', failed);
    child.on('close', (code) => {
      clearTimeout(timer);
      if (code === 0) done(out);
      else failed(new Error(`${tool} ${args.join(' ')} ended with ${code}: ${(err || out).slice(-800)}`));
    });
  });
}

const config = join(options.fleet.work, `mcporter-${process.pid}.json`);
writeFileSync(config, JSON.stringify({
  imports: [],
  mcpServers: { tested: options.http ? { baseUrl: options.http, allowHttp: true } : { command, args: [] } },
}));
const target = options.http ? [options.http, '--transport', 'http'] : [command];

await report.check('mcporter lists the tools', async () => {
  const listed = await run('mcporter', ['--config', config, 'list', 'tested', '--json']);
  const tools = JSON.parse(listed).tools.map((tool) => tool.name);
  assert(tools.includes(name('echo')), listed.slice(0, 600));
  if (!options.direct) for (const other of ['filesystem__list_directory', 'memory__open_nodes', 'time__convert_time', 'git__git_log', 'modern__add']) assert(tools.includes(other), `${other} is not among ${tools}`);
});
await report.check('mcporter calls a tool', async () => {
  const answer = await run('mcporter', ['--config', config, 'call', `tested.${name('get-sum')}`, '--args', '{"a": 19, "b": 23}']);
  assert(answer.includes('The sum of 19 and 23 is 42.'), answer.slice(0, 600));
});
const inspector = (...args) => run('mcp-inspector', ['--cli', ...target, '--method', ...args]);
await report.check('the inspector lists the tools', async () => {
  const listed = await inspector('tools/list');
  const tools = JSON.parse(listed).tools.map((tool) => tool.name);
  assert(tools.includes(name('echo')), listed.slice(0, 600));
});
await report.check('the inspector calls a tool', async () => {
  const answer = JSON.parse(await inspector('tools/call', '--tool-name', name('get-sum'), '--tool-arg', 'a=19', 'b=23'));
  assert(JSON.stringify(answer).includes('The sum of 19 and 23 is 42.'), JSON.stringify(answer).slice(0, 600));
});
await report.check('the inspector reads a resource', async () => {
  const answer = await inspector('resources/read', '--uri', 'demo://resource/static/document/features.md');
  assert(JSON.parse(answer).contents[0].mimeType === 'text/markdown', answer.slice(0, 300));
});
process.exit(report.finish());
