// Runs every driver against every way into manifold, all real servers behind it at once.
//
//   tests/real/run [--baseline] [--binary PATH] [--jobs N] [ROW...]
//
// A row is a driver and a way in, e.g. `sdk1-http`: the daemon over Streamable HTTP, its 2024-11-05 pair (sse), `manifold stdio`, or
// `manifold stdio --connect` to the daemon (connect). Each row has a working folder, a configuration and a manifold of its own under
// target/real/work. `--baseline` runs the drivers directly against the servers instead. After each row no process that was
// started for it may be left. The last line is `N passed, N failed`.
import { spawn } from 'node:child_process';
import { createWriteStream, existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { HERE, REAL, ROOT, makeFleet } from './fleet.mjs';

const ROW_LIMIT_MS = 300_000;
const DRIVERS = {
  sdk1: ['sdk1.mjs'],
  'sdk2-legacy': ['sdk2.mjs'],
  'sdk2-modern': ['sdk2.mjs', '--era', 'modern'],
  'py-legacy': ['py.py'],
  'py-modern': ['py.py', '--era', 'modern'],
  cli: ['cli.mjs'],
  bytes: ['bytes.mjs'],
};
// The first start of all has to wait for the servers; every later one answers from records, before any server is up.
const COLD_MS = 20_000;
const WARM_MS = 1_000;
const options = { baseline: false, binary: join(ROOT, 'target/debug/manifold'), jobs: 2, rows: [] };
for (let argv = process.argv.slice(2); argv.length > 0; ) {
  const word = argv.shift();
  if (word === '--baseline') options.baseline = true;
  else if (word === '--binary') options.binary = resolve(argv.shift() ?? '');
  else if (word === '--jobs') options.jobs = Number(argv.shift());
  else options.rows.push(word);
}
const ways = options.baseline ? ['direct'] : ['http', 'stdio'];
const all = Object.keys(DRIVERS).flatMap((driver) => ways.map((way) => `${driver}-${way}`)).filter((row) => row !== 'bytes-http');
if (!options.baseline) all.push('sdk1-sse', 'sdk1-connect', 'sdk2-modern-connect', 'rmcp', 'together', 'start-http', 'start-stdio');
const unknown = options.rows.filter((row) => !all.includes(row));
if (unknown.length > 0) { console.error(`unknown row ${unknown}; there are ${all.join(' ')}`); process.exit(2); }
const rows = options.rows.length > 0 ? options.rows : all;

function giveUp(problem) {
  console.log(problem);
  console.log('real: 0 passed, 1 failed');
  process.exit(1);
}
if (!options.baseline && !existsSync(options.binary)) giveUp(`There is no binary at ${options.binary}; build it first (cargo build).`);

const freePort = () => new Promise((done, failed) => {
  const server = createServer();
  server.on('error', failed);
  server.listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => done(port)); });
});
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Processes whose command line or environment names the working folder of a row. */
function leftOver(work) {
  const found = [];
  for (const pid of readdirSync('/proc')) {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) continue;
    const read = (file) => { try { return readFileSync(`/proc/${pid}/${file}`, 'latin1'); } catch { return ''; } };
    const line = read('cmdline');
    if (line && `${line}\0${read('environ')}`.includes(`${work}/`) && !/^State:\s+Z/m.test(read('status'))) found.push({ pid: Number(pid), line: line.replaceAll('\0', ' ').slice(0, 160) });
  }
  return found;
}

/** Runs a command, gives its output line by line to a log file and to the caller. */
function run(command, args, log, { env, limit = ROW_LIMIT_MS } = {}) {
  return new Promise((done) => {
    const child = spawn(command, args, { cwd: ROOT, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    const take = (chunk) => { text += chunk; log.write(chunk); };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    const timer = setTimeout(() => { take(`not ok - the driver: no end after ${limit / 1000} s\n`); child.kill('SIGKILL'); }, limit);
    child.on('error', (error) => take(`not ok - the driver: ${error.message}\n`));
    child.on('close', (code) => { clearTimeout(timer); done({ code, text }); });
  });
}

async function openLog(fleet) {
  const log = createWriteStream(join(fleet.work, 'manifold.log'), { flags: 'a' });
  await new Promise((done) => log.on('open', done));
  return log;
}

/** Starts `manifold serve` and waits until it answers. */
async function serve(fleet, log) {
  const port = await freePort();
  const child = spawn(options.binary, ['serve', '--config', fleet.config(port)], { cwd: fleet.work, stdio: ['ignore', log, log] });
  const gone = new Promise((done) => { child.on('close', done); child.on('error', done); });
  let ended = false;
  gone.then(() => { ended = true; });
  const url = `http://127.0.0.1:${port}/mcp`;
  for (let tries = 0; tries < 200 && !ended; tries++) {
    try { await (await fetch(url, { method: 'OPTIONS', signal: AbortSignal.timeout(1000) })).arrayBuffer(); break; } catch { await pause(50); }
  }
  return {
    url,
    ended: () => ended,
    async stop() {
      child.kill('SIGTERM');
      const prompt = await Promise.race([gone.then(() => true), pause(8000).then(() => false)]);
      if (!prompt) { child.kill('SIGKILL'); await gone; }
      return prompt;
    },
  };
}

function driverCommand(driver, fleet, where) {
  const [file, ...more] = DRIVERS[driver];
  const runtime = file.endsWith('.py') ? join(REAL, 'venv/bin/python') : process.execPath;
  return [runtime, [join(HERE, 'clients', file), '--fleet', fleet.file, ...where, ...more]];
}

/** Every line of every audit file must be a JSON object; there must be one line at least. */
function auditProblem(work) {
  const folder = join(work, 'audit');
  if (!existsSync(folder)) return 'there is no audit folder';
  let lines = 0;
  for (const file of readdirSync(folder).filter((name) => name.includes('.jsonl'))) {
    for (const line of readFileSync(join(folder, file), 'utf8').split('\n').filter(Boolean)) {
      try { JSON.parse(line); lines += 1; } catch { return `a line of ${file} is not JSON: ${line.slice(0, 200)}`; }
    }
  }
  return lines > 0 ? undefined : 'no audit record';
}

async function runRow(row) {
  const fleet = makeFleet(row);
  const path = join(fleet.work, 'row.log');
  writeFileSync(path, '');
  const log = createWriteStream(path);
  const checks = [];
  const check = (name, problem) => checks.push(problem ? `not ok - ${name}: ${problem}` : `ok - ${name}`);
  const collect = ({ code, text }, who) => {
    const lines = text.split('\n').filter((line) => /^(ok|not ok) - /.test(line)).map((line) => (who ? line.replace(' - ', ` - ${who}: `) : line));
    checks.push(...lines);
    const claimed = /^# (\d+) passed, (\d+) failed$/m.exec(text);
    if (!claimed) check(`${who ?? 'the driver'} ends with its summary`, `it ended with ${code}: ${text.trim().split('\n').filter((line) => !/^(ok|not ok) - /.test(line)).join(' ').slice(-600)}`);
  };
  const stdio = () => ['--stdio', JSON.stringify([options.binary, 'stdio', '--config', fleet.config()])];
  const impatient = (where, limit) => run(process.execPath, [join(HERE, 'clients/warm.mjs'), '--fleet', fleet.file, '--within', String(limit), ...where], log);
  if (row === 'start-stdio') {
    collect(await impatient(stdio(), COLD_MS), 'first start');
    collect(await impatient(stdio(), WARM_MS), 'second start');
  } else if (row === 'start-http') {
    for (const [limit, who] of [[COLD_MS, 'first start'], [WARM_MS, 'second start']]) {
      const daemon = await serve(fleet, await openLog(fleet));
      collect(await impatient(['--http', daemon.url], limit), who);
      check(`${who}: the daemon ends when asked to`, !(await daemon.stop()) && 'it had to be killed after 8 s');
    }
  } else if (row.endsWith('-direct')) {
    collect(await run(...driverCommand(row.replace(/-direct$/, ''), fleet, ['--direct']), log));
  } else if (row.endsWith('-stdio')) {
    collect(await run(...driverCommand(row.replace(/-stdio$/, ''), fleet, stdio()), log));
  } else {
    const daemon = await serve(fleet, await openLog(fleet));
    const [, driver, way] = /^(.*)-(http|sse|connect)$/.exec(row) ?? [];
    const entries = { http: ['--http', daemon.url], sse: ['--sse', daemon.url.replace('/mcp', '/sse')], connect: ['--stdio', JSON.stringify([options.binary, 'stdio', '--connect', daemon.url])] };
    if (way) collect(await run(...driverCommand(driver, fleet, entries[way]), log));
    else if (row === 'together') {
      // Several hosts of both eras at once before one daemon.
      const hosts = ['sdk1', 'sdk2-modern', 'py-legacy', 'py-modern'];
      const ran = await Promise.all(hosts.map((driver) => {
        const own = makeFleet(`${row}-${driver}`, fleet);
        return run(...driverCommand(driver, own, ['--http', daemon.url]), log);
      }));
      ran.forEach((one, i) => collect(one, hosts[i]));
    } else if (row === 'rmcp') {
      const { code, text } = await run('cargo', ['test', '--quiet', '--test', 'e2e_rmcp', 'real_servers', '--', '--nocapture', '--test-threads=1'], log, { env: { REAL_FLEET: fleet.file, REAL_URL: daemon.url, REAL_STDIO: JSON.stringify([options.binary, 'stdio', '--config', fleet.config()]) } });
      collect({ code, text });
    }
    check('the daemon is alive after its hosts have left', daemon.ended() && 'it ended by itself');
    const prompt = await daemon.stop();
    check('the daemon ends when asked to', !prompt && 'it had to be killed after 8 s');
    check('the audit holds records', auditProblem(fleet.work));
  }
  let left = leftOver(fleet.work);
  for (let tries = 0; tries < 50 && left.length > 0; tries++) { await pause(100); left = leftOver(fleet.work); }
  check('no process is left', left.length > 0 && JSON.stringify(left));
  for (const { pid } of left) try { process.kill(pid, 'SIGKILL'); } catch { /* gone */ }
  log.end();
  return { checks, path };
}

let passed = 0;
let failed = 0;
const waiting = [...rows];
async function worker() {
  while (waiting.length > 0) {
    const row = waiting.shift();
    const started = Date.now();
    let result;
    try { result = await runRow(row); } catch (error) { result = { checks: [`not ok - the row: ${error.stack}`], path: '' }; }
    const bad = result.checks.filter((line) => line.startsWith('not ok'));
    passed += result.checks.length - bad.length;
    failed += bad.length;
    console.log(`${row}\t${result.checks.length - bad.length} passed, ${bad.length} failed (${Math.round((Date.now() - started) / 1000)} s)`);
    for (const line of bad) console.log(`  ${line}`);
    if (bad.length > 0) console.log(`  log: ${result.path}`);
  }
}
await Promise.all(Array.from({ length: options.jobs }, worker));
console.log(`real: ${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
