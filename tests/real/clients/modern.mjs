// The scenarios of a modern host: lists and plain calls to all servers, and everything else with the modern server, whose family it is.
import { LEGACY_SERVERS } from '../fleet.mjs';
import { assert, callScenarios, cancelScenario, comparer, listScenarios, pause, progressScenario, readScenarios, until } from './common.mjs';

// server-everything registers these for a client that can be asked; a modern host sees a list that does not depend on the connection.
const CONDITIONAL = /^(get-roots-list|trigger-.*request.*|trigger-url-elicitation|simulate-research-query)$/;

export async function modernScenarios(report, sides, options) {
  const through = sides.tested;
  const compare = comparer(report, sides);

  await report.check('the connection is modern and offers tools, prompts, resources, completions', async () => {
    const client = through.on('modern');
    assert(client.revision === '2026-07-28', client.revision);
    for (const kind of ['tools', 'prompts', 'resources', 'completions']) assert(client.offered[kind], `no ${kind} in ${JSON.stringify(client.offered)}`);
  });
  await listScenarios(report, sides, options, {
    complete: (server, item) => !(server === 'everything' && CONDITIONAL.test(item.name)),
    // The modern schema has no `execution`: a tool of a legacy server comes without it.
    expected: (server, item) => { const { execution: _, ...rest } = item; return LEGACY_SERVERS.includes(server) && !options.direct ? rest : item; },
  });
  await callScenarios(report, sides, options);
  await readScenarios(report, sides);

  await progressScenario(report, sides, 'modern', 'count', { to: 8, delayMs: 40 }, 8);
  const cancelledBefore = async () => Number((await through.on('modern').call(through.name('modern', 'cancelled_count'), {})).content[0].text);
  let before;
  await report.check('the modern server has a count of cancelled calls', async () => { before = await cancelledBefore(); });
  await cancelScenario(report, sides, 'modern', 'count', { to: 40, delayMs: 200 }, {
    after: async () => {
      const end = Date.now() + 3000;
      while (await cancelledBefore() <= before) { assert(Date.now() < end, 'the server never heard of the cancellation'); await pause(50); }
    },
  });

  await compare('elicitation by input_required reaches the host, its answer and the state the server', 'modern', 'tools/call', async (client, name) => {
    const earlier = client.asked.elicitation.length;
    const answer = await client.call(name('ask_name'), {});
    const asked = client.asked.elicitation.slice(earlier);
    assert(asked.length === 1 && asked[0].message.includes('Your name?'), JSON.stringify(asked));
    assert(answer.content[0].text.includes('Ada Lovelace') && answer.content[0].text.endsWith('state asked-for-name'), JSON.stringify(answer));
  });
  await compare('sampling by input_required', 'modern', 'tools/call', async (client, name) => {
    const answer = await client.call(name('summarise'), { topic: 'rivers' });
    assert(answer.content[0].text.includes('sampled words'), JSON.stringify(answer));
  });
  await compare('roots by input_required', 'modern', 'tools/call', async (client, name) => {
    const answer = await client.call(name('show_roots'), {});
    assert(answer.content[0].text.includes(options.fleet.docs), JSON.stringify(answer));
  });

  await report.check('a listening host hears of an updated resource and of nothing else', async () => {
    const client = through.on('modern');
    const subscription = await client.listen({ resourceSubscriptions: ['note://one'] });
    assert(subscription.honoredFilter.resourceSubscriptions?.includes('note://one'), JSON.stringify(subscription.honoredFilter));
    const since = client.wire.received.length;
    await client.call(through.name('modern', 'touch'), {});
    await until(() => client.wire.notifications('notifications/resources/updated', since).length > 0, 3000, 'no update');
    assert(client.wire.notifications('notifications/resources/updated', since)[0].params.uri === 'note://one', 'another URI');
    await subscription.close();
    await pause(100);
    const later = client.wire.received.length;
    await client.call(through.name('modern', 'touch'), {});
    await pause(300);
    assert(client.wire.notifications('notifications/resources/updated', later).length === 0, 'an update after the end of the subscription');
  });
  await report.check('a listening host hears of a new tool and finds it', async () => {
    const client = through.on('modern');
    const subscription = await client.listen({ toolsListChanged: true });
    const since = client.wire.received.length;
    await client.call(through.name('modern', 'grow'), {});
    await until(() => client.wire.notifications('notifications/tools/list_changed', since).length > 0, 3000, 'no list_changed');
    await client.list('tools/list');
    const grown = through.name('modern', 'grown');
    assert(client.wire.answer('tools/list').result.tools.some((tool) => tool.name === grown) || client.wire.received.slice(since).some((message) => message.result?.tools?.some((tool) => tool.name === grown)), 'the new tool is not listed');
    const answer = await client.call(grown, {});
    assert(answer.content[0].text === 'grown', JSON.stringify(answer));
    await subscription.close();
  });
  await report.check('log messages come at the level that the call asks for', async () => {
    const client = through.on('modern');
    const since = client.wire.received.length;
    await client.call(through.name('modern', 'shout'), {}, { _meta: { 'io.modelcontextprotocol/logLevel': 'info' } });
    const data = client.wire.notifications('notifications/message', since).map((message) => message.params.data);
    assert(data.length === 1 && data[0] === 'loud words', JSON.stringify(data));
    const later = client.wire.received.length;
    await client.call(through.name('modern', 'shout'), {});
    assert(client.wire.notifications('notifications/message', later).length === 0, 'a message that nobody asked for');
  });
}
