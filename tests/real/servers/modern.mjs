// A small server on the 2.x SDK that does on the modern wire what server-everything does on the legacy one: input_required in its
// three kinds, progress, cancellation, log messages, subscriptions. It serves both eras; manifold finds the modern one.
import { McpServer, ResourceTemplate, completable, inputRequired } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const text = (value) => ({ content: [{ type: 'text', text: value }] });
let cancelled = 0;

serveStdio(() => {
  const server = new McpServer(
    { name: 'modern-test-server', version: '1.0.0' },
    { capabilities: { tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: {}, completions: {}, logging: {} } },
  );

  server.registerTool('add', {
    title: 'Add',
    description: 'Adds two numbers.',
    inputSchema: z.object({ a: z.number(), b: z.number() }),
    outputSchema: z.object({ sum: z.number() }),
    annotations: { readOnlyHint: true },
  }, async ({ a, b }) => ({ ...text(JSON.stringify({ sum: a + b })), structuredContent: { sum: a + b } }));

  server.registerTool('ask_name', { description: 'Asks the user for a name.', inputSchema: z.object({}) }, async (_args, ctx) => {
    const answer = ctx.mcpReq.inputResponses?.name;
    if (answer === undefined) {
      return inputRequired({
        inputRequests: { name: inputRequired.elicit({ message: 'Your name?', requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] } }) },
        requestState: 'asked-for-name',
      });
    }
    return text(`answer ${JSON.stringify(answer)} state ${ctx.mcpReq.requestState()}`);
  });

  server.registerTool('summarise', { description: 'Has the host sample a summary.', inputSchema: z.object({ topic: z.string() }) }, async ({ topic }, ctx) => {
    const answer = ctx.mcpReq.inputResponses?.summary;
    if (answer === undefined) {
      return inputRequired({
        inputRequests: { summary: inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: `Summarise ${topic}` } }], maxTokens: 50 }) },
      });
    }
    return text(`summary ${JSON.stringify(answer)}`);
  });

  server.registerTool('show_roots', { description: 'Asks for the roots.', inputSchema: z.object({}) }, async (_args, ctx) => {
    const answer = ctx.mcpReq.inputResponses?.roots;
    if (answer === undefined) return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
    return text(`roots ${JSON.stringify(answer)}`);
  });

  server.registerTool('count', { description: 'Counts with progress.', inputSchema: z.object({ to: z.number(), delayMs: z.number() }) }, async ({ to, delayMs }, ctx) => {
    const token = ctx.mcpReq._meta?.progressToken;
    for (let i = 1; i <= to; i++) {
      await new Promise((done) => setTimeout(done, delayMs));
      if (ctx.mcpReq.signal.aborted) { cancelled += 1; return text('stopped'); }
      if (token !== undefined) await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken: token, progress: i, total: to, message: `step ${i}` } });
    }
    return text(`counted to ${to}`);
  });

  server.registerTool('cancelled_count', { description: 'How many counts were cancelled.', inputSchema: z.object({}) }, async () => text(String(cancelled)));

  server.registerTool('touch', { description: 'Says that note://one changed.', inputSchema: z.object({}) }, async () => {
    await server.server.sendResourceUpdated({ uri: 'note://one' });
    return text('touched');
  });

  server.registerTool('grow', { description: 'Adds a tool.', inputSchema: z.object({}) }, async () => {
    server.registerTool('grown', { description: 'A tool that came later.', inputSchema: z.object({}) }, async () => text('grown'));
    return text('grew');
  });

  server.registerTool('shout', { description: 'Logs at warning and at debug.', inputSchema: z.object({}) }, async (_args, ctx) => {
    await ctx.mcpReq.log('debug', 'quiet words', 'modern');
    await ctx.mcpReq.log('warning', 'loud words', 'modern');
    return text('shouted');
  });

  server.registerResource('one', 'note://one', { title: 'Note one', mimeType: 'text/plain' }, async (uri) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: 'the first note' }] }));
  server.registerResource('numbered', new ResourceTemplate('note://numbered/{number}', { list: undefined, complete: { number: (value) => ['1', '12', '2'].filter((n) => n.startsWith(value)) } }), { mimeType: 'text/plain' },
    async (uri, { number }) => ({ contents: [{ uri: uri.href, mimeType: 'text/plain', text: `note ${number}` }] }));
  server.registerPrompt('greet', { title: 'Greet', description: 'Greets in a language.', argsSchema: z.object({ language: completable(z.string(), (value) => ['french', 'finnish', 'german'].filter((l) => l.startsWith(value))) }) },
    ({ language }) => ({ messages: [{ role: 'user', content: { type: 'text', text: `Greet me in ${language}.` } }] }));
  return server;
}, { onerror: (error) => console.error('modern-test-server:', error.message) });
