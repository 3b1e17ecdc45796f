// The scenarios of a legacy host: everything that server-everything can do to a client, and the plain work of the other servers.
import { DOCUMENT, assert, callScenarios, cancelScenario, comparer, listScenarios, progressScenario, readScenarios, until } from './common.mjs';

export async function legacyScenarios(report, sides, options) {
  const through = sides.tested;
  const compare = comparer(report, sides);

  await report.check('the connection is legacy and offers tools, prompts, resources, completions, logging', async () => {
    for (const client of through.all()) assert(client.revision < '2026', client.revision);
    const offered = through.on('everything').offered;
    for (const kind of ['tools', 'prompts', 'resources', 'completions', 'logging']) assert(offered[kind], `no ${kind} in ${JSON.stringify(offered)}`);
    assert(offered.resources.subscribe === true, 'no resources.subscribe');
  });
  await report.check('ping', () => through.on('everything').ping());
  await listScenarios(report, sides, options);
  await callScenarios(report, sides, options);
  await readScenarios(report, sides);

  await progressScenario(report, sides, 'everything', 'trigger-long-running-operation', { duration: 0.8, steps: 8 }, 8);
  // The server goes on reporting after a cancellation; manifold does not let it through.
  await cancelScenario(report, sides, 'everything', 'trigger-long-running-operation', { duration: 6, steps: 20 }, { silent: !options.direct });
  await report.check('a quick call overtakes a long one on the same server', async () => {
    const client = through.on('everything');
    let longDone = false;
    const long = client.call(through.name('everything', 'trigger-long-running-operation'), { duration: 1.5, steps: 3 }).then(() => { longDone = true; });
    await client.call(through.name('everything', 'echo'), { message: 'quick' });
    assert(!longDone, 'the long one ended first');
    await long;
  });

  await compare('sampling reaches the host and its answer the server', 'everything', 'tools/call', async (client, name) => {
    const before = client.asked.sampling.length;
    await client.call(name('trigger-sampling-request'), { prompt: 'a rhyme', maxTokens: 33 });
    const asked = client.asked.sampling.slice(before);
    assert(asked.length === 1 && asked[0].maxTokens === 33 && asked[0].systemPrompt === 'You are a helpful test server.', JSON.stringify(asked));
  });
  await compare('elicitation reaches the host and its answer the server', 'everything', 'tools/call', async (client, name) => {
    const before = client.asked.elicitation.length;
    await client.call(name('trigger-elicitation-request'), {});
    const asked = client.asked.elicitation.slice(before);
    assert(asked.length === 1 && asked[0].requestedSchema.properties.legacyTitledEnum.enumNames[0] === 'Cats', JSON.stringify(asked));
  });
  await compare('roots of the host reach the server', 'everything', 'tools/call', async (client, name) => {
    const answer = await client.call(name('get-roots-list'), {});
    assert(JSON.stringify(answer).includes(options.fleet.docs), JSON.stringify(answer));
  });

  await report.check('a subscribed resource is reported as updated, an unsubscribed one is not', async () => {
    const client = through.on('everything');
    const toggle = through.name('everything', 'toggle-subscriber-updates');
    await client.subscribe(DOCUMENT);
    let since = client.wire.received.length;
    await client.call(toggle, {});
    await until(() => client.wire.notifications('notifications/resources/updated', since).length > 0, 3000, 'no update');
    assert(client.wire.notifications('notifications/resources/updated', since).every((message) => message.params.uri === DOCUMENT), 'another URI');
    await client.call(toggle, {});
    await client.unsubscribe(DOCUMENT);
    since = client.wire.received.length;
    await client.call(toggle, {});
    await client.ping();
    await client.call(toggle, {});
    assert(client.wire.notifications('notifications/resources/updated', since).length === 0, 'an update after unsubscribing');
  });
  await report.check('log messages arrive after logging/setLevel', async () => {
    const client = through.on('everything');
    const toggle = through.name('everything', 'toggle-simulated-logging');
    await client.setLevel('debug');
    const since = client.wire.received.length;
    await client.call(toggle, {});
    await until(() => client.wire.notifications('notifications/message', since).some((message) => /level[ -]message/i.test(JSON.stringify(message.params.data))), 3000, 'no log message');
    await client.call(toggle, {});
  });
}
