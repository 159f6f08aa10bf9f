/**
 * What a gate's lists show each client. Hides which clients are known not to list again, what the
 * app says of each, and when a warning reports one.
 */
import { putNewest, Reported } from '../basics/clock.ts';
import { asciiText } from '../basics/names.ts';
import { wrongAnswer } from '../basics/options.ts';
import type { LiveSession } from '../session/live-session.ts';
import type { Admission } from '../session/run.ts';
import type { ClientInfo } from '../stores/store.ts';
import type { Observers } from '../wire/exchange.ts';
import type { Workflow } from '../workflow/workflow.ts';

/**
 * `hide`: lists show what is available in the run's state. `stable`: they show every tool. `auto`:
 * `stable` where the era or the client asks for it, else `hide`.
 */
export type Visibility = 'hide' | 'stable' | 'auto';

/**
 * Says what the lists of one client show. It gets the name and the version that the client gave,
 * each up to 100 characters, and empty where it gave none. It must go by them alone: it is asked
 * once for each session and process. What it throws goes to `onError`, and means `hide`.
 */
export type VisibilityOf = (client: ClientInfo) => Visibility;

/**
 * The clients whose models go on with the first list, by the name that they give. A name stands
 * here only with a source for the name and one for the habit. The names that SDKs give by default,
 * such as `mcp`, say nothing of the client. Looked up on 2026-11-25.
 */
const LIST_ONCE: ReadonlySet<string> = new Set([
  // claude.ai asks again, and its model keeps the old list. Names:
  // github.com/anthropics/claude-ai-mcp/issues/792 and /76. Habit: /issues/45, /137 and /1044.
  'Anthropic',
  'Anthropic/ClaudeAI',
  'Anthropic/Toolbox',
  // Claude Desktop, and at times claude.ai. Name: github.com/anthropics/claude-ai-mcp/issues/792.
  // Habit: github.com/anthropics/claude-code/issues/39901.
  'claude-ai',
  // ChatGPT and OpenAI's Responses API. Name: github.com/php-mcp/laravel/issues/28. Habit, "a
  // frozen snapshot of its tools": github.com/openai/tunnel-client/issues/42.
  'openai-mcp',
  // Codex. Name: github.com/openai/codex, codex-rs/codex-mcp/src/rmcp_client.rs. Habit: there,
  // codex-rs/rmcp-client/src/logging_client_handler.rs, and issues/37417.
  'codex-mcp-client',
]);

/**
 * The names that SDKs give where the app gives none. Frameworks that list once by design come under
 * them (Python: modelcontextprotocol/python-sdk, src/mcp/client/session.py).
 */
const SDK_NAMES: ReadonlySet<string> = new Set(['mcp']);

/** Added to a client's own name (github.com/geelen/mcp-remote, src/lib/utils.ts). */
const PROXIED = / \(via mcp-remote [^()]*\)$/;

/** A client that did not say what it is. */
const UNNAMED: ClientInfo = Object.freeze({ name: '', version: '' });

/** So many calls without a new list reveal a client that never asks for one. */
export const REVEALING_CALLS = 3;
/** So do so many sessions of a name that ended without one, of its last ones that were notified. */
const REVEALING_SESSIONS = 3;
const LAST_SESSIONS = 5;
/** So many names are reported. Clients choose them, and could fill a log. */
const MOST_REPORTED = 100;

const STALE_HIDE =
  'visibility "hide" has no effect where calls name their runs by a handle: a list names none. ' +
  'Every tool is listed';
const DEPARTURE =
  'visibility "hide" departs from MCP 2026-07-28, where a list of tools "MUST NOT vary … as a ' +
  'side effect of other requests". Clients may keep such a list';

/** How a mounted gate lists. */
export interface ListingRules extends Observers {
  readonly workflow: Workflow;
  /** What lists show. Ask {@link visibilityFor}, which also goes by the request. */
  readonly visibility: Visibility | VisibilityOf;
  /**
   * Whether the result that causes a move also says in words what is available then. `undefined`:
   * the client's habit decides.
   */
  readonly announce: boolean | undefined;
  /**
   * `explain`: the refusal says what is available and how to get there. `unknown-tool`: it is the
   * upstream's own error for a tool that does not exist.
   */
  readonly refusal: 'explain' | 'unknown-tool';
  readonly clients: ListingClients;
  /** Gives each warning once. */
  readonly warnOnce: (warning: string) => void;
}

/** What is known of the clients of one mounted gate. */
export class ListingClients {
  readonly #chosen = new WeakMap<ClientInfo, Visibility>();
  readonly #reported = new Reported(MOST_REPORTED);
  /** By name, the last sessions that were notified of a new list; the least recent name first. */
  readonly #sessions = new Map<string, readonly LiveSession[]>();

  /**
   * What the client itself is shown. `auto`: nothing is known of it, so the era and the session's
   * conversations decide.
   */
  chosenFor(config: ListingRules, { era, session }: Asker): Visibility {
    const { visibility, refusal, workflow } = config;
    if (visibility === 'hide' || visibility === 'stable') return visibility;
    const client = session.record.clientInfo ?? UNNAMED;
    let chosen = this.#chosen.get(client);
    if (chosen === undefined) {
      chosen = visibility === 'auto' ? 'auto' : asked(visibility, client, config.onError);
      // A client may lie about its name: what is hidden from clients does not go by it.
      const isOpen = refusal === 'explain' && !workflow.hides;
      const name = client.name.replace(PROXIED, '');
      if (chosen === 'auto' && era === 'session' && isOpen) {
        if (LIST_ONCE.has(name)) chosen = 'stable';
        else if (visibility === 'auto' && SDK_NAMES.has(name)) config.warnOnce(sdkNamed(name));
      }
      this.#chosen.set(client, chosen);
    }
    return chosen;
  }

  /**
   * A session is notified that its list of tools changed. A client that never lists again may call
   * nothing more, and end: its next session that is notified reveals it.
   */
  noteNotified(session: LiveSession, config: ListingRules): void {
    const { name } = session.record.clientInfo ?? UNNAMED;
    const last = this.#sessions.get(name) ?? [];
    if (last.includes(session)) return;
    putNewest(this.#sessions, name, [...last, session].slice(-LAST_SESSIONS), MOST_REPORTED);
    const ended = last.filter(
      ({ isOver, callsSinceNotified }) => isOver && callsSinceNotified !== undefined,
    );
    if (ended.length < REVEALING_SESSIONS || last.some(({ listsAgain }) => listsAgain)) return;
    this.warnOf(session, config, 'sessions');
  }

  /**
   * Warns once of a client that goes on with an old list.
   *
   * @param by what revealed it: the calls of this session, or the earlier sessions of its name
   */
  warnOf(
    { record }: LiveSession,
    { visibility, workflow, onWarning }: ListingRules,
    by: 'calls' | 'sessions',
  ): void {
    const { name } = record.clientInfo ?? UNNAMED;
    if (!this.#reported.isNew(name)) return;
    const quoted = asciiText(name);
    const line =
      typeof visibility === 'function'
        ? `let your visibility return 'stable' for the name ${quoted}`
        : 'give fsmGate(gate, { visibility: (client) => ' +
          `client.name === ${quoted} ? 'stable' : '${visibility}' })`;
    const seen =
      by === 'calls'
        ? `the client ${quoted} was notified that its list of tools changed, and called ` +
          `${REVEALING_CALLS} times without listing again`
        : `${REVEALING_SESSIONS} sessions of the client ${quoted} were notified that their list of ` +
          'tools changed, and ended without listing again';
    onWarning(
      `${seen}, as far as this process saw. Its model may not see what "${workflow.id}" allows ` +
        `now. If it never lists again, ${line}; see mcp-interlock/docs/start/clients.md`,
    );
  }
}

function sdkNamed(name: string): string {
  return (
    `a client gives its SDK's own name, "${name}". Frameworks that do, such as LangChain, list ` +
    'once, and their models never see what a call makes available. If yours does, give ' +
    `fsmGate(gate, { visibility: (client) => client.name === "${name}" ? 'stable' : 'auto' }); ` +
    'see mcp-interlock/docs/start/clients.md'
  );
}

/** Whose lists are asked about. */
type Asker = Pick<Admission, 'era' | 'session' | 'byArgument'>;

/** What the app says. Where it fails, the list hides what is not available. */
function asked(
  visibility: VisibilityOf,
  client: ClientInfo,
  onError: (error: unknown) => void,
): Visibility {
  try {
    const given: unknown = visibility({ name: client.name, version: client.version });
    if (given === 'hide' || given === 'stable' || given === 'auto') return given;
    throw wrongAnswer("fsmGate(): visibility() must return 'hide', 'stable' or 'auto'", given);
  } catch (error) {
    onError(error);
    return 'hide';
  }
}

/** How one gate lists its tools for one request. */
export function visibilityFor(config: ListingRules, admission: Admission): 'hide' | 'stable' {
  const { visibility, refusal, clients, warnOnce } = config;
  if (admission.byArgument) {
    if (visibility === 'hide') warnOnce(STALE_HIDE);
    return 'stable';
  }
  const chosen = clients.chosenFor(config, admission);
  const isStateless = admission.era === 'stateless';
  if (isStateless && chosen === 'hide') warnOnce(DEPARTURE);
  if (chosen !== 'auto') return chosen;
  // Its list names no conversation. Where names are secret, it shows the last one all the same.
  const isSettled = admission.isMany && refusal === 'explain';
  return isStateless || isSettled ? 'stable' : 'hide';
}

/** Whether results say what is available next. By default the client's own habit decides. */
export function announcesTo(config: ListingRules, asker: Asker): boolean {
  if (config.announce !== undefined) return config.announce;
  if (config.visibility === 'stable' || asker.era !== 'session' || asker.byArgument) return false;
  return config.clients.chosenFor(config, asker) === 'stable';
}

/** Whether a client must not find out that something hidden exists. */
export function keepsSecrets(config: ListingRules, admission: Admission): boolean {
  return config.refusal === 'unknown-tool' && visibilityFor(config, admission) === 'hide';
}

/** Whether every mount of a gate in this process lists the same tools in every state. */
const stable = new WeakMap<Workflow, boolean>();

/** Remembers how a mount of a gate lists, for moves that no request is about. */
export function noteListing(workflow: Workflow, visibility: Visibility | VisibilityOf): void {
  stable.set(workflow, visibility === 'stable' && stable.get(workflow) !== false);
}

/** Whether no move of this workflow changes a list: every mount in this process is stable. */
export function isStableEverywhere(workflow: Workflow): boolean {
  return stable.get(workflow) === true;
}
