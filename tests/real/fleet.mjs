// The real servers of one run: their commands, their data, and manifold's configuration for them.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const HERE = dirname(fileURLToPath(import.meta.url));
export const ROOT = resolve(HERE, '../..');
export const REAL = join(ROOT, 'target/real');

/** The servers that speak only the legacy revisions; manifold meets the others in the modern one. */
export const LEGACY_SERVERS = ['everything', 'filesystem', 'memory'];

function git(repo, ...args) {
  const identity = { GIT_AUTHOR_NAME: 'Test', GIT_AUTHOR_EMAIL: 'test@localhost', GIT_COMMITTER_NAME: 'Test', GIT_COMMITTER_EMAIL: 'test@localhost' };
  const dates = { GIT_AUTHOR_DATE: '2026-01-02T03:04:05Z', GIT_COMMITTER_DATE: '2026-01-02T03:04:05Z' };
  const done = spawnSync('git', ['-C', repo, ...args], { env: { ...process.env, ...identity, ...dates, GIT_CONFIG_GLOBAL: '/dev/null' }, encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`git ${args.join(' ')}: ${done.stderr}`);
}

function fill(docs, repo) {
  mkdirSync(docs, { recursive: true });
  mkdirSync(repo, { recursive: true });
  writeFileSync(join(docs, 'hello.txt'), 'Hello, world.\nGrüße, 世界 🌍 \u2028 end.\n');
  writeFileSync(join(docs, 'numbers.json'), '{"big": 9007199254740993, "small": 1.10}\n');
  git(repo, 'init', '--quiet', '--initial-branch=main');
  for (const [file, message] of [['a.txt', 'The first commit'], ['b.txt', 'The second commit']]) {
    writeFileSync(join(repo, file), `${message}\n`);
    git(repo, 'add', file);
    git(repo, 'commit', '--quiet', '--message', message);
  }
}

/**
 * Makes an empty working folder with documents and a repository; returns what drivers and the configuration need. Given another
 * fleet, the documents and the repository are its, for several drivers before one daemon. `tag` tells the drivers apart.
 */
export function makeFleet(name, other) {
  const work = join(REAL, 'work', name);
  rmSync(work, { recursive: true, force: true });
  mkdirSync(work, { recursive: true });
  const docs = other?.docs ?? join(work, 'docs');
  const repo = other?.repo ?? join(work, 'repo');
  if (!other) fill(docs, repo);
  const bin = (folder, command) => {
    const path = join(REAL, folder, command);
    if (!existsSync(path)) throw new Error(`${path} is missing; run tests/real/setup`);
    return path;
  };
  const servers = (memory) => ({
    everything: { command: bin('npm/node_modules/.bin', 'mcp-server-everything'), args: [] },
    filesystem: { command: bin('npm/node_modules/.bin', 'mcp-server-filesystem'), args: [docs] },
    memory: { command: bin('npm/node_modules/.bin', 'mcp-server-memory'), args: [], env: { MEMORY_FILE_PATH: join(work, memory) } },
    time: { command: bin('venv/bin', 'mcp-server-time'), args: ['--local-timezone', 'Europe/Berlin'] },
    git: { command: bin('venv/bin', 'mcp-server-git'), args: ['--repository', repo] },
    modern: { command: process.execPath, args: [join(HERE, 'servers/modern.mjs')] },
  });
  const fleet = { tag: name, work, docs, repo, servers: servers('memory-direct.jsonl') };
  fleet.file = join(work, 'fleet.json');
  writeFileSync(fleet.file, JSON.stringify(fleet, null, 1));
  // JSON is YAML: no quoting of our own.
  const config = {
    listen: { http: '127.0.0.1:0' },
    admin: null,
    state_dir: join(work, 'state'),
    audit: { dir: join(work, 'audit') },
    start_wait: '20s',
    grace: '1s',
    servers: servers('memory-behind.jsonl'),
  };
  fleet.config = (port = 0) => {
    const path = join(work, `manifold-${port}.yaml`);
    writeFileSync(path, JSON.stringify({ ...config, listen: { http: `127.0.0.1:${port}`, sse: true } }, null, 1));
    return path;
  };
  return fleet;
}
