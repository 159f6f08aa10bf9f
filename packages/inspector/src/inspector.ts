/**
 * The inspector as one handler. Hides what answers each path, and in which order it checks a
 * request before it reads or changes a run.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { runDigest } from 'mcp-interlock';
import { Access, assertSameSite, type Visitor } from './access.ts';
import type { Done, Overview, ResolvedMany, ResolvedOne } from './api.ts';
import { Assets } from './assets.ts';
import { HeldSteps } from './held-step.ts';
import {
  HttpFailure,
  type HttpRequest,
  readJson,
  sendFailure,
  sendJson,
  sendText,
  setCommonHeaders,
} from './http.ts';
import { Inspected, stepId } from './inspected.ts';
import { Live } from './live.ts';
import { type InspectorConfig, type InspectorOptions, parseInspectorOptions } from './options.ts';
import { parseRequest } from './requests.ts';
import { Seal } from './seal.ts';

/** What {@link inspector} returns: a handler for `app.use()` of Express, or for Node's server. */
export interface Inspector {
  (req: IncomingMessage, res: ServerResponse, next?: (error?: unknown) => void): void;
  /** Ends the streams of all who watch. Call it before the server's own `close()`, which waits. */
  close(): void;
}

/**
 * A page and its data for operators: `app.use('/inspector', inspector({ … }))`.
 *
 * It draws each gate, and shows where its runs stand and which of them need a person. Of a run it
 * shows what its model sees now, and why not the rest. A visitor with `write` may also resolve
 * calls of unknown outcome, send events, restart and delete, and stop runs or all calls of a
 * workflow. It answers every request below its path, and throws nothing.
 *
 * @throws InterlockError `ERR_INTERLOCK_CONFIG` for an option that is wrong or unknown
 */
export function inspector(options: InspectorOptions): Inspector {
  const site = new Site(parseInspectorOptions(options));
  const handler = (
    req: IncomingMessage,
    res: ServerResponse,
    next?: (error?: unknown) => void,
  ): void => void site.handle(req, res, next);
  return Object.assign(handler, { close: () => site.close() });
}

/** One request, once it is let in. */
interface Asked {
  readonly req: HttpRequest;
  readonly res: ServerResponse;
  readonly visitor: Visitor;
  readonly query: URLSearchParams;
}

class Site {
  readonly #basePath: string | undefined;
  readonly #workflows: readonly Inspected[];
  readonly #access: Access;
  readonly #live: Live;
  readonly #assets = new Assets();
  readonly #onError: (error: unknown) => void;

  constructor({ runs, authorize, secret, share, amount, look, now, ...config }: InspectorConfig) {
    const { stuckAfterMs, onError, pollMs } = config;
    const seal = new Seal(secret);
    const heldSteps = new HeldSteps({ amount, look, onError });
    this.#basePath = config.basePath;
    this.#workflows = runs.map(
      (each) => new Inspected(each, { seal, share, heldSteps, stuckAfterMs, onError }),
    );
    this.#access = new Access(authorize, { seal, now, onError });
    this.#live = new Live(this.#workflows, { pollMs, onError });
    this.#onError = onError;
  }

  close(): void {
    this.#live.close();
  }

  async handle(
    req: HttpRequest,
    res: ServerResponse,
    next: ((error?: unknown) => void) | undefined,
  ): Promise<void> {
    try {
      const place = placeOf(req, this.#basePath);
      if (place === undefined) {
        if (next === undefined) throw new HttpFailure('unknown', 'There is nothing at this path.');
        return next();
      }
      setCommonHeaders(res);
      await this.#answer(req, res, place);
    } catch (error) {
      const failure = error instanceof HttpFailure ? error : this.#fault(error);
      if (wantsPage(req) && failure.code === 'unauthorized')
        return sendText(req, res, failure.status, 'text/html', refusalPage(failure.message));
      sendFailure(req, res, failure);
    }
  }

  #fault(error: unknown): HttpFailure {
    this.#onError(error);
    return new HttpFailure('internal', 'Something is wrong with the server. Its log says what.');
  }

  async #answer(req: HttpRequest, res: ServerResponse, { path, query }: Place): Promise<void> {
    const isApi = path[0] === 'api';
    // No other site may read data in a person's name, even one that the app's CORS allows.
    if (isApi) assertSameSite(req);
    const visitor = await this.#access.visitorOf(req);
    if (!isApi) return this.#page(req, res, path);
    const asked = { req, res, visitor, query };
    const [, what, key, ...rest] = path;
    if (what === 'workflows' && key !== undefined) {
      const workflow = this.#workflows.find((each) => each.key === key);
      if (workflow === undefined) throw new HttpFailure('unknown', 'There is no such workflow.');
      return this.#ofWorkflow(asked, workflow, rest);
    }
    assertMethod(req, 'GET');
    if (path.length > 2) throw nothingHere();
    if (what === 'session') return sendJson(req, res, 200, this.#access.sessionOf(visitor));
    if (what === 'events') return this.#watch(asked);
    if (what !== 'workflows') throw nothingHere();
    const workflows = await Promise.all(this.#workflows.map((each) => each.summary()));
    const overview: Overview = { workflows };
    sendJson(req, res, 200, overview);
  }

  #page(req: HttpRequest, res: ServerResponse, path: readonly string[]): void {
    assertMethod(req, 'GET');
    const [pathname = '', search] = (req.originalUrl ?? req.url ?? '/').split('?', 2);
    if (path.length === 0 && !pathname.endsWith('/')) {
      // The page names its files and its data from where it is, so that any prefix will do.
      const last = pathname.slice(pathname.lastIndexOf('/') + 1);
      res
        .writeHead(301, { location: `./${last}/${search === undefined ? '' : `?${search}`}` })
        .end();
      return;
    }
    if (!this.#assets.send(req, res, path.join('/'))) throw nothingHere();
  }

  #watch({ req, res, query }: Asked): void {
    const { workflow: key, run: id } = parseRequest.events(query);
    const workflow = this.#workflows.find((each) => each.key === key);
    if ((key !== undefined || id !== undefined) && workflow === undefined)
      throw new HttpFailure('unknown', 'There is no such workflow.');
    // The page watches on where the server has restarted, and names its runs anew.
    const run = id === undefined ? undefined : workflow?.runIfKnown(id);
    const isAllowed = (): Promise<boolean> =>
      this.#access.visitorOf(req).then(
        () => true,
        () => false,
      );
    this.#live.watch(req, res, { workflow, run, isAllowed });
  }

  async #ofWorkflow(asked: Asked, workflow: Inspected, path: readonly string[]): Promise<void> {
    const { req, res, query, visitor } = asked;
    const [what, id, part] = path;
    const answer = (value: unknown): void => sendJson(req, res, 200, value);
    if (path.length === 0) {
      assertMethod(req, 'GET');
      return answer(await workflow.detail());
    }
    if (path.length === 1 && what === 'what-if') {
      const { from, move } = parseRequest.whatIf(await this.#bodyOf(asked));
      return answer(await workflow.whatIf(from, move));
    }
    if (path.length === 1 && what === 'search')
      return answer(
        await workflow.search(parseRequest.search(await this.#bodyOf(asked)), visitor.can),
      );
    if (path.length === 1 && what === 'resolve') {
      const body = await this.#bodyOf(asked);
      assertMayWrite(visitor);
      return answer(await this.#resolveMany(workflow, body, visitor.actor));
    }
    if (path.length === 1 && what !== undefined && Object.hasOwn(CALLS_DEEDS, what)) {
      const body = await this.#bodyOf(asked);
      assertMayWrite(visitor);
      const done = await workflow.switched(async () =>
        CALLS_DEEDS[what]?.(workflow, body, visitor.actor),
      );
      this.#live.nudge();
      return answer(done);
    }
    if (what !== 'runs' || path.length > 3) throw nothingHere();
    if (id === undefined) {
      assertMethod(req, 'GET');
      return answer(await workflow.list(parseRequest.list(query), visitor.can));
    }
    const run = workflow.runOf(id);
    if (part === undefined || part === 'trail') {
      assertMethod(req, 'GET');
      if (part === undefined) return answer(await workflow.look(run, visitor.can));
      const { before, limit } = parseRequest.trail(query);
      return answer(await workflow.trail(run, before, limit));
    }
    const deed = Object.hasOwn(DEEDS, part) ? DEEDS[part] : undefined;
    if (deed === undefined) throw nothingHere();
    const body = await this.#bodyOf(asked);
    assertMayWrite(visitor);
    const done = await workflow.done(() => deed(workflow, run, body, visitor.actor));
    this.#live.nudge();
    answer(done);
  }

  /** One after the other, each as if it were resolved alone: none undoes or stops another. */
  async #resolveMany(workflow: Inspected, body: unknown, actor: string): Promise<ResolvedMany> {
    const { runs, ...said } = parseRequest.resolveMany(body);
    const results: ResolvedOne[] = [];
    for (const { id, step } of runs) {
      try {
        const run = workflow.runOf(id);
        const { state } = await workflow.done(() =>
          resolveStep(workflow, run, { ...said, step, actor }),
        );
        results.push({ id, ...(state !== undefined && { state }) });
      } catch (error) {
        const { code, message } = error instanceof HttpFailure ? error : this.#fault(error);
        results.push({ id, error: { code, message } });
      }
    }
    this.#live.nudge();
    return { results };
  }

  /** The body of a POST that the page itself sent. */
  async #bodyOf({ req, visitor }: Asked): Promise<unknown> {
    assertMethod(req, 'POST');
    this.#access.assertToken(req, visitor);
    return readJson(req);
  }
}

function assertMayWrite({ can }: Visitor): void {
  if (!can.write) throw new HttpFailure('read-only', 'You may look, and not act.');
}

/** What may be done to all calls of a workflow. */
const CALLS_DEEDS: Readonly<
  Record<string, (workflow: Inspected, body: unknown, actor: string) => Promise<void>>
> = {
  async freeze({ runs }, body, actor) {
    const frozen = await runs.freezeAll({ ...parseRequest.freezeCalls(body), actor });
    if (!frozen.frozen) throw new HttpFailure('conflict', 'That is stopped already.');
  },
  async unfreeze({ runs }, body, actor) {
    const { at, ...said } = parseRequest.unfreezeCalls(body);
    // A person acts on what they saw: it may have been stopped anew, for another reason.
    const isThere = (await runs.frozen()).some((each) => each.tool === said.tool && each.at === at);
    const thawed = isThere && (await runs.unfreezeAll({ ...said, actor })).unfrozen;
    if (!thawed) throw new HttpFailure('conflict', 'That was let go on meanwhile. Look again.');
  },
};

type Deed = (workflow: Inspected, run: string, body: unknown, actor: string) => Promise<Done>;

const CONFLICTS: Readonly<Record<string, string>> = {
  'not-held': 'This call no longer waits: a person said what it came to, or it ended by itself.',
  running: 'A call has the run now.',
  busy: 'A call has the run now. Try again when it is over.',
  held: 'The run is held: resolve it first.',
  pinned: 'A step that must not be repeated has the run: wait for it, or resolve it first.',
  unhandled: 'The state of the run does not know this event.',
  frozen: 'An operator has stopped it.',
  'not-frozen': 'It is not stopped any more.',
};

/** What may be done to a run. */
const DEEDS: Readonly<Record<string, Deed>> = {
  resolve: (workflow, run, body, actor) =>
    resolveStep(workflow, run, { ...parseRequest.resolve(body), actor }),
  async send(workflow, run, body, actor) {
    const { event, payload, version } = parseRequest.send(body);
    await assertVersion(workflow, run, version);
    const sent = await workflow.runs.send(run, event, { actor, payload });
    if (!sent.sent) throw conflict(sent.reason);
    return { done: true, state: sent.state };
  },
  async restart(workflow, run, body, actor) {
    const { version } = parseRequest.restart(body);
    await assertVersion(workflow, run, version);
    const restarted = await workflow.runs.restart(run, { actor });
    if (!restarted.restarted) throw conflict(restarted.reason);
    return { done: true, state: restarted.state };
  },
  async freeze(workflow, run, body, actor) {
    const frozen = await workflow.runs.freeze(run, { ...parseRequest.freeze(body), actor });
    if (!frozen.frozen) throw conflict(frozen.reason);
    return { done: true, state: frozen.state };
  },
  async unfreeze(workflow, run, body, actor) {
    const thawed = await workflow.runs.unfreeze(run, { ...parseRequest.freeze(body), actor });
    if (!thawed.unfrozen) throw conflict(thawed.reason);
    return { done: true, state: thawed.state };
  },
  async delete(workflow, run, body) {
    const { digest } = parseRequest.delete(body);
    if (digest !== runDigest(run))
      throw new HttpFailure('bad-request', 'digest: not that of this run.');
    const result = await workflow.runs.delete(run);
    // A run that is gone already is as the person wants it.
    if (!result.deleted && result.reason === 'pinned') throw conflict(result.reason);
    return { done: true };
  },
};

type SaidOutcome = ReturnType<typeof parseRequest.resolve> & { readonly actor: string };

async function resolveStep(
  workflow: Inspected,
  run: string,
  { outcome, step, ...said }: SaidOutcome,
): Promise<Done> {
  const { claim, status, unsettled = [] } = await workflow.viewOf(run);
  const held = status === 'held' && claim !== undefined ? [claim] : [];
  const found = [...held, ...unsettled].find((each) => stepId(each) === step);
  if (found === undefined) throw conflict(status === 'running' ? 'running' : 'not-held');
  if (said.event !== undefined) await workflow.assertEvent(run, said.event);
  const resolved =
    'token' in found
      ? await workflow.runs.resolve(run, outcome, { ...said, token: found.token })
      : await workflow.runs.resolve({ idempotencyKey: found.idempotencyKey }, outcome, said);
  if (!resolved.resolved) throw conflict(resolved.reason);
  return { done: true, state: resolved.state };
}

/** A person acts on what they saw. */
async function assertVersion(workflow: Inspected, run: string, version: number): Promise<void> {
  const { snapshot } = await workflow.viewOf(run);
  if ((snapshot.version ?? 0) !== version)
    throw new HttpFailure('conflict', `The run has moved meanwhile, to "${snapshot.state}".`);
}

function conflict(reason: string): HttpFailure {
  if (reason === 'unknown-run') return new HttpFailure('unknown', 'There is no such run any more.');
  return new HttpFailure('conflict', CONFLICTS[reason] ?? reason);
}

function nothingHere(): HttpFailure {
  return new HttpFailure('unknown', 'There is nothing at this path.');
}

function assertMethod({ method }: IncomingMessage, right: 'GET' | 'POST'): void {
  if (method === right || (right === 'GET' && method === 'HEAD')) return;
  throw new HttpFailure('method', `Use ${right}.`, right === 'GET' ? 'GET, HEAD' : right);
}

/** Where a request goes, below where the inspector is mounted. */
interface Place {
  /** Without an empty end. */
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

/** `undefined` where it is somewhere else. @throws HttpFailure `unknown` */
function placeOf({ url = '/' }: IncomingMessage, basePath = ''): Place | undefined {
  const [pathname = '/', search = ''] = url.split('?', 2);
  if (pathname !== basePath && !pathname.startsWith(`${basePath}/`)) return undefined;
  const below = pathname.slice(basePath.length).replace(/^\//, '');
  const path = below.split('/');
  if (path.at(-1) === '') path.pop();
  try {
    return { path: path.map(decodeURIComponent), query: new URLSearchParams(search) };
  } catch {
    throw nothingHere();
  }
}

/** Whether a browser asks for something to show. */
function wantsPage({ url = '', headers: { accept = '' } }: IncomingMessage): boolean {
  return accept.includes('text/html') && !/(?:^|\/)api\//.test(url);
}

function refusalPage(message: string): string {
  const text = message.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
  return (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">' +
    '<title>Interlock inspector</title>' +
    '<meta name="viewport" content="width=device-width"></head>' +
    `<body><main><h1>Not allowed</h1><p>${text}</p></main></body></html>\n`
  );
}
