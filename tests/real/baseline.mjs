// usage: node baseline.mjs DRIVER [ARGUMENT...]: runs a driver directly against the servers (no manifold), as a check of the driver itself.
import { spawnSync } from 'node:child_process';
import { HERE, REAL, makeFleet } from './fleet.mjs';
import { join } from 'node:path';
const [driver, ...rest] = process.argv.slice(2);
const fleet = makeFleet('baseline');
const runtime = driver.endsWith('.py') ? join(REAL, 'venv/bin/python') : process.execPath;
const done = spawnSync(runtime, [join(HERE, 'clients', driver), '--fleet', fleet.file, '--direct', ...rest], { stdio: ['ignore', 'inherit', 'inherit'] });
process.exit(done.status ?? 1);
