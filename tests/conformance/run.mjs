// Runs the official MCP conformance suite through the built binary and judges it.
//
//   tests/conformance/run [--bridge] [--fixture] [--prepare] [--binary PATH] [ROW...]
//
// The glue (suite runner, fixture server, configuration templates) lives in ../shared/conformance beside the checkout (or in
// $CONFORMANCE_SHARED/conformance) and is read only: it is copied to target/conformance, where npm installs the pinned suite once. Rows are the ways the fixture stands
// behind the gateway. `--bridge` runs the rows that cross the revision families instead, `--fixture` runs every row against the
// fixture alone (to see that the harness works), `--prepare` only installs. The results are compared with expected-failures.txt: an unexpected failure, an
// unexpected pass and a scenario that did not run all fail the run. The last line is `N passed, N failed`.
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));
const ROOT = resolve(HERE, '../..');
const SHARED = resolve(process.env.CONFORMANCE_SHARED ?? join(ROOT, '../shared'), 'conformance');
const WORK = join(ROOT, 'target/conformance');
const ROW_LIMIT_MS = 240_000;

// `scenarios`: how many results a revision must yield, so that a suite that ran only half of them does not look green.
const both = { '2025-11-25': 33, '2026-07-28': 50 };
const ROWS = {
  http: { config: 'manifold.yaml', scenarios: both },
  stdio: { config: 'manifold-stdio.yaml', scenarios: both },
  sse: { config: 'manifold-sse.yaml', args: ['--era', 'legacy'], scenarios: { '2025-11-25': 33 } },
  'old-2025-06-18': { config: 'manifold.yaml', args: ['--all'], scenarios: { '2025-06-18': 27 } },
  'old-2025-03-26': { config: 'manifold.yaml', args: ['--all'], scenarios: { '2025-03-26': 1 } },
};
const BRIDGE_ROWS = {
  'bridge-legacy-host': { config: 'manifold.yaml', args: ['--era', 'modern'], scenarios: { '2025-11-25': 33 } },
  'bridge-modern-host': { config: 'manifold.yaml', args: ['--era', 'legacy'], scenarios: { '2026-07-28': 50 } },
};

const options = { bridge: false, fixture: false, prepare: false, binary: join(ROOT, 'target/debug/manifold'), rows: [] };
for (let argv = process.argv.slice(2); argv.length > 0; ) {
  const word = argv.shift();
  if (word === '--bridge') options.bridge = true;
  else if (word === '--fixture') options.fixture = true;
  else if (word === '--prepare') options.prepare = true;
  else if (word === '--binary') options.binary = resolve(argv.shift() ?? '');
  else if (word in ROWS || word in BRIDGE_ROWS) options.rows.push(word);
  else usage(`unknown argument ${word}`);
}
const table = { ...ROWS, ...BRIDGE_ROWS };
const rows = options.rows.length > 0 ? options.rows : Object.keys(options.bridge ? BRIDGE_ROWS : ROWS);

function usage(problem) {
  console.error(`${problem}\nusage: tests/conformance/run [--bridge] [--fixture] [--binary PATH] [${Object.keys(ROWS).join('|')}]...`);
  process.exit(2);
}

function giveUp(problem) {
  console.log(problem);
  console.log('conformance: 0 passed, 1 failed');
  process.exit(1);
}

function prepare() {
  if (!existsSync(join(SHARED, 'run.mjs'))) giveUp(`The conformance harness is not at ${SHARED}; it is laid beside the checkout (or where CONFORMANCE_SHARED says), nothing can be run without it.`);
  if (!options.fixture && !options.prepare && !existsSync(options.binary)) giveUp(`There is no binary at ${options.binary}; build it first (cargo build).`);
  mkdirSync(WORK, { recursive: true });
  for (const name of readdirSync(SHARED)) {
    if (name !== 'node_modules' && name !== 'out') cpSync(join(SHARED, name), join(WORK, name), { recursive: true, force: true });
  }
  // The stamp holds what was installed, so that a changed pin installs again and everything else starts at once.
  const stamp = join(WORK, 'node_modules/.manifold-installed');
  const wanted = readFileSync(join(WORK, 'package.json'), 'utf8');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return;
  console.log('Installing the conformance suite into target/conformance ...');
  const npm = spawnSync('npm', ['install', '--no-progress', '--no-update-notifier'], { cwd: WORK, stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8' });
  if (npm.status !== 0) giveUp(`npm install failed in ${WORK}:\n${npm.stderr ?? npm.error}`);
  writeFileSync(stamp, wanted);
}

// All processes below `pid`: the harness puts fixture and gateway into groups of their own.
function descendants(pid) {
  const parents = new Map();
  for (const entry of readdirSync('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    try {
      const stat = readFileSync(`/proc/${entry}/stat`, 'utf8');
      parents.set(Number(entry), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]));
    } catch { /* it ended meanwhile */ }
  }
  const found = [pid];
  for (const parent of found) for (const [child, its] of parents) if (its === parent) found.push(child);
  return found;
}

function runRow(name, row, revisions) {
  const out = join(WORK, 'rows', name);
  for (const folder of [out, join(WORK, 'out')]) rmSync(folder, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const saved = join(out, 'results.json');
  const argv = ['run.mjs', 'server', '--revisions', revisions.join(','), '--save', saved, ...(row.args ?? [])];
  if (!options.fixture) {
    argv.push('--config-template', join(WORK, row.config));
    argv.push('--gateway', `${options.binary} serve --config {config} 2>${join(out, 'manifold.log')}`);
  }
  return new Promise((done) => {
    const child = spawn(process.execPath, argv, { cwd: WORK, stdio: ['ignore', 'pipe', 'pipe'] });
    let text = '';
    child.stdout.on('data', (chunk) => { text += chunk; });
    child.stderr.on('data', (chunk) => { text += chunk; });
    const timer = setTimeout(() => {
      text += `\nThe row was not done after ${ROW_LIMIT_MS / 1000} s.`;
      for (const pid of descendants(child.pid)) try { process.kill(pid, 'SIGKILL'); } catch { /* gone */ }
    }, ROW_LIMIT_MS);
    child.on('close', () => {
      clearTimeout(timer);
      writeFileSync(join(out, 'harness.log'), text);
      for (const log of existsSync(join(WORK, 'out')) ? readdirSync(join(WORK, 'out')) : []) {
        if (log.endsWith('.log')) cpSync(join(WORK, 'out', log), join(out, log));
      }
      let results = {};
      try { results = JSON.parse(readFileSync(saved, 'utf8')); } catch { /* it never came so far; the text says why */ }
      done({ results, text, out });
    });
  });
}

const expected = new Set(readFileSync(join(HERE, 'expected-failures.txt'), 'utf8')
  .split('\n').map((line) => line.replace(/#.*/, '').trim().replace(/\s+/g, ' ')).filter(Boolean));
const alone = existsSync(join(SHARED, 'baseline-fixture.json')) ? JSON.parse(readFileSync(join(SHARED, 'baseline-fixture.json'), 'utf8')) : {};

prepare();
if (options.prepare) process.exit(0);
let passed = 0;
let failed = 0;
for (const name of rows) {
  const row = table[name];
  const revisions = Object.keys(row.scenarios);
  const started = Date.now();
  const { results, text, out } = await runRow(name, row, revisions);
  for (const revision of revisions) {
    const found = results[`server ${revision}`] ?? {};
    const tally = { scored: 0, scoredOk: 0, checks: 0, bad: 0 };
    const fail = (what) => { failed += 1; tally.bad += 1; console.log(`FAILED  ${name} ${revision} ${what}`); };
    for (const [scenario, result] of Object.entries(found)) {
      const key = `${name} ${revision} ${scenario}`;
      tally.checks += result.passed;
      if (result.scored) { tally.scored += 1; tally.scoredOk += result.ok ? 1 : 0; }
      if (result.ok && !expected.has(key)) passed += 1;
      else if (!result.ok && expected.has(key)) { passed += 1; console.log(`expected failure  ${key}`); }
      else if (result.ok) fail(`${scenario}: passes although expected-failures.txt lists it; remove the line`);
      else fail(`${scenario}: ${result.passed} checks passed, ${result.failed} failed`);
      const before = alone[`server ${revision}`]?.[scenario];
      if (result.ok && before?.ok && result.passed < before.passed) console.log(`note    ${key}: ${result.passed} checks ran here, ${before.passed} against the fixture alone`);
    }
    const missing = row.scenarios[revision] - Object.keys(found).length;
    for (const scenario of Object.keys(alone[`server ${revision}`] ?? {})) if (!(scenario in found)) console.log(`        ${name} ${revision} ${scenario}: did not run`);
    if (missing > 0) { failed += missing - 1; fail(`${missing} scenarios did not run`); }
    if (tally.scored + missing > 0 || tally.bad > 0) {
      console.log(`${name}\t${revision}\tscored ${tally.scoredOk}/${tally.scored}, all ${Object.values(found).filter((r) => r.ok).length}/${row.scenarios[revision]}, ${tally.checks} checks (${Math.round((Date.now() - started) / 1000)} s)`);
    }
    if (tally.bad > 0) console.log(`        logs: ${out}`);
    if (Object.keys(found).length === 0) console.log(text.trim().split('\n').slice(-15).map((line) => `        ${line}`).join('\n'));
  }
}
console.log(`conformance: ${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
