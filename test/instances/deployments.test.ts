/**
 * The recipes of docs/build/change-rules.md, each by two packed builds of an app in processes of
 * their own that share one store: forwards, side by side, and back.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { OrderRules } from '../../src/index.ts';
import type { GivenFact } from '../../src/runs/index.ts';
import { Consumer } from '../helpers/consumer.ts';
import { ADDRESS, type Program, startProgram } from '../helpers/program.ts';
import { reasonOf } from '../helpers/raw.ts';
import { makeSqliteFile } from '../helpers/sqlite-file.ts';
import { ask } from '../helpers/two-eras.ts';
import { sharedTarball } from '../services/shared.ts';

const HOUR = 3_600_000;

/** A build of the app. */
interface Build {
  readonly rules: OrderRules<string, string>;
  /** The tools of its server. */
  readonly tools: readonly string[];
}

/** Which build a call comes to. `back`: the first one, in a new process after a roll-back. */
type Process = 'old' | 'new' | 'back';

interface Recipe {
  readonly old: Build;
  readonly new: Build;
  /** What the run has done before, by `begin`. */
  readonly facts?: readonly GivenFact[];
  /** Calls, and the reason for which the gate refuses each; or `ok`, or that there is `no tool`. */
  readonly play: readonly (readonly [Process, tool: string, args: object, said: string])[];
}

const sum = (max: number, within: '1h' | '24h' = '24h', path = 'amount') => ({
  limit: { sum: path, max, within },
});
const paid = (amount: number) => ({ amount });
const total = (amount: number) => ({ total: amount });
const AGO = Date.now() - 2 * HOUR;
const FROM = new Date(Date.now() - HOUR).toISOString();
const SETTLE = { ...sum(100, '24h', 'total'), renamed: ['pay'], args: { total: 'amount' } };

const RECIPES: Readonly<Record<string, Recipe>> = {
  add: {
    facts: [{ tool: 'refund', arguments: { amount: 100 }, at: AGO }],
    old: { rules: { pay: {}, refund: {} }, tools: ['pay', 'refund'] },
    new: {
      rules: { pay: { once: true }, refund: { ...sum(100), from: FROM } },
      tools: ['pay', 'refund'],
    },
    play: [
      ['old', 'pay', {}, 'ok'],
      // A new rule finds what came before it, but for what came before its time.
      ['new', 'pay', {}, 'state'],
      ['new', 'refund', paid(60), 'ok'],
      ['new', 'refund', paid(41), 'limit'],
      ['old', 'refund', paid(30), 'ok'],
      ['new', 'refund', paid(11), 'limit'],
      ['back', 'pay', {}, 'ok'],
      ['new', 'refund', paid(10), 'ok'],
    ],
  },
  remove: {
    old: { rules: { pay: sum(100), look: {} }, tools: ['pay', 'look'] },
    new: { rules: { look: {} }, tools: ['pay', 'look'] },
    play: [
      ['old', 'pay', paid(100), 'ok'],
      ['new', 'look', {}, 'ok'],
      ['new', 'pay', paid(1), 'ok'],
      ['old', 'pay', paid(1), 'limit'],
      ['back', 'pay', paid(1), 'limit'],
    ],
  },
  rename: {
    old: { rules: { pay: sum(100) }, tools: ['pay'] },
    new: { rules: { settle: SETTLE }, tools: ['settle'] },
    play: [
      ['old', 'pay', paid(60), 'ok'],
      ['new', 'settle', total(41), 'limit'],
      ['new', 'settle', total(30), 'ok'],
      ['old', 'pay', paid(11), 'limit'],
      ['old', 'pay', paid(5), 'ok'],
      ['new', 'settle', total(6), 'limit'],
      ['back', 'pay', paid(6), 'limit'],
      ['back', 'pay', paid(5), 'ok'],
    ],
  },
  tighten: {
    old: { rules: { pay: sum(100, '1h') }, tools: ['pay'] },
    new: { rules: { pay: sum(50) }, tools: ['pay'] },
    facts: [{ tool: 'pay', arguments: { amount: 20 }, at: AGO }],
    play: [
      ['old', 'pay', paid(20), 'ok'],
      // Also what only the longer window has counts.
      ['new', 'pay', paid(11), 'limit'],
      ['new', 'pay', paid(10), 'ok'],
      ['old', 'pay', paid(70), 'ok'],
      ['new', 'pay', paid(0), 'limit'],
      ['back', 'pay', paid(1), 'limit'],
    ],
  },
  loosen: {
    old: { rules: { pay: sum(50) }, tools: ['pay'] },
    new: { rules: { pay: sum(100, '1h') }, tools: ['pay'] },
    facts: [{ tool: 'pay', arguments: { amount: 50 }, at: AGO }],
    play: [
      ['old', 'pay', paid(1), 'limit'],
      ['new', 'pay', paid(90), 'ok'],
      ['new', 'pay', paid(11), 'limit'],
      ['old', 'pay', paid(0), 'limit'],
      ['back', 'pay', paid(0), 'limit'],
    ],
  },
  split: {
    old: { rules: { pay: sum(100) }, tools: ['pay'] },
    new: {
      rules: { by_card: { ...sum(100), renamed: ['pay'] }, by_cash: sum(100) },
      tools: ['by_card', 'by_cash'],
    },
    play: [
      ['old', 'pay', paid(90), 'ok'],
      ['new', 'by_card', paid(11), 'limit'],
      ['new', 'by_cash', paid(100), 'ok'],
      ['new', 'by_cash', paid(1), 'limit'],
      ['new', 'by_card', paid(5), 'ok'],
      ['old', 'pay', paid(6), 'limit'],
      ['back', 'pay', paid(5), 'ok'],
    ],
  },
  'roll back': {
    old: {
      rules: { pay: { limit: { times: 3 } }, ship: { after: 'pay' } },
      tools: ['pay', 'ship', 'risk'],
    },
    new: {
      rules: { pay: { after: 'risk', limit: { times: 9 } }, ship: {} },
      tools: ['pay', 'ship', 'risk'],
    },
    play: [
      ['new', 'ship', {}, 'ok'],
      ['old', 'ship', {}, 'state'],
      ['old', 'pay', {}, 'ok'],
      ['new', 'pay', {}, 'state'],
      ['new', 'risk', {}, 'ok'],
      ['new', 'pay', {}, 'ok'],
      ['back', 'ship', {}, 'ok'],
      ['back', 'pay', {}, 'ok'],
      ['back', 'pay', {}, 'limit'],
    ],
  },
  expand: {
    old: { rules: { pay: sum(100) }, tools: ['pay'] },
    new: { rules: { settle: SETTLE }, tools: ['pay', 'settle'] },
    play: [
      ['old', 'pay', paid(60), 'ok'],
      ['new', 'settle', total(20), 'ok'],
      ['new', 'pay', paid(21), 'limit'],
      ['new', 'pay', paid(10), 'ok'],
      ['old', 'pay', paid(11), 'limit'],
      ['back', 'pay', paid(10), 'ok'],
      ['new', 'settle', total(1), 'limit'],
    ],
  },
  contract: {
    old: { rules: { settle: SETTLE }, tools: ['pay', 'settle'] },
    new: { rules: { settle: SETTLE }, tools: ['settle'] },
    play: [
      ['old', 'pay', paid(60), 'ok'],
      ['new', 'settle', total(41), 'limit'],
      ['new', 'settle', total(30), 'ok'],
      ['new', 'pay', paid(1), 'no tool'],
      ['back', 'pay', paid(11), 'limit'],
      ['back', 'pay', paid(10), 'ok'],
    ],
  },
};

/** An app with a route for each recipe: SDK v2 behind the middlewares, on SQLite. */
const APP = `
  import { toNodeHandler } from '@modelcontextprotocol/node';
  import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
  import express from 'express';
  import Database from 'libsql';
  import { beginIn, fsmGate, principalKey, StateMachineGate, sessionStore } from 'mcp-interlock';
  import { sqliteStore } from 'mcp-interlock/stores/sqlite';
  import * as z from 'zod';

  const store = sqliteStore({ database: new Database(process.argv[2]) });
  const app = express();
  app.use((req, res, next) => {
    const extra = { iss: 'https://issuer.example', sub: req.headers['x-user'] };
    Object.assign(req, { auth: { token: 'secret', clientId: 'app', scopes: [], extra } });
    next();
  });
  for (const [id, { rules, tools, facts }] of Object.entries(BUILDS)) {
    const handler = toNodeHandler(createMcpHandler(() => {
      const server = new McpServer({ name: 'bank', version: '1.0.0' });
      for (const tool of tools)
        server.registerTool(tool, { inputSchema: z.looseObject({}) }, async () => ({
          content: [{ type: 'text', text: 'ok' }],
        }));
      return server;
    }));
    const gate = StateMachineGate.fromOrder(rules, { id });
    const begin = facts && (() => beginIn({ facts }));
    const own = [sessionStore({ store, key: principalKey() }), fsmGate(gate, { begin })];
    app.all('/' + id, ...own, (req, res) => handler(req, res, req.body));
  }
  const server = app.listen(0, '127.0.0.1', () =>
    console.log('http://127.0.0.1:' + server.address().port + '/'));
`;

const file = makeSqliteFile();
const programs: Partial<Record<Process, Program>> = {};
const projects: Consumer[] = [];
const idOf = (name: string): string => name.replace(' ', '-');

/** A project with the packed package and that build of the app. */
async function projectOf(build: 'old' | 'new'): Promise<Consumer> {
  const project = new Consumer();
  projects.push(project);
  project.link('@modelcontextprotocol/node', '@modelcontextprotocol/server', 'express');
  project.link('libsql', 'zod');
  const folder = join(project.folder, 'node_modules/mcp-interlock');
  mkdirSync(folder);
  await project.run('tar', '-xzf', await sharedTarball(), '-C', folder, '--strip-components=1');
  const builds = Object.entries(RECIPES).map(([name, { facts, [build]: own }]) => {
    return [idOf(name), { ...own, facts }];
  });
  project.write('app.mjs', `const BUILDS = ${JSON.stringify(Object.fromEntries(builds))};${APP}`);
  return project;
}

beforeAll(async () => {
  const [before, after] = await Promise.all([projectOf('old'), projectOf('new')]);
  const start = async (name: Process, { folder }: Consumer): Promise<void> => {
    const options = { args: [file.path], ready: ADDRESS };
    programs[name] = await startProgram(join(folder, 'app.mjs'), options);
  };
  await Promise.all([start('old', before), start('new', after), start('back', before)]);
}, 60_000);

afterAll(async () => {
  await Promise.all(Object.values(programs).map((each) => each.kill9()));
  for (const each of projects) each.remove();
  file.remove();
});

it.each(Object.entries(RECIPES))('keeps what runs did: %s', async (name, { play }) => {
  const said: unknown[] = [];
  for (const [process, tool, args] of play) {
    const url = new URL(idOf(name), programs[process]?.match);
    const call = { name: tool, arguments: args };
    const { messages } = await ask(url, 'tools/call', call, { user: 'ann' });
    const message = messages.at(-1);
    const { isError, content = [] } = message?.result ?? {};
    const words = isError === true || content.length === 0 ? 'no tool' : content[0]?.text;
    said.push([process, tool, args, reasonOf(message) ?? words]);
  }
  expect(said).toEqual(play);
});
