/** What names a run, as an option of the command says it. */
import {
  conversationKey,
  handleKey,
  managedHandle,
  principalKey,
  type RunKeyStrategy,
  sessionKey,
} from 'mcp-interlock';
import { UsageError } from './command-line.ts';

export const KEY_FORMS =
  'session, principal, conversation, handle:ARGUMENT=TOOL or managed:ARGUMENT=TOOL';

/**
 * @param isNamed whether something says who calls
 * @throws UsageError
 */
export function strategyNamed(key: string, isNamed: boolean): RunKeyStrategy {
  if (key === 'session') return sessionKey();
  if (key === 'principal' || key === 'conversation') {
    if (isNamed) return key === 'principal' ? principalKey() : conversationKey();
    throw new UsageError(`--key ${key} needs --jwks or --principal: nothing else says who calls`);
  }
  const [, kind, argument = '', tool = ''] = /^(handle|managed):([^=]+)=(.+)$/.exec(key) ?? [];
  if (kind === 'handle') return handleKey(argument, { createdBy: tool });
  if (kind === 'managed') return managedHandle({ argument, start: tool });
  throw new UsageError(`--key: expected ${KEY_FORMS}, got ${JSON.stringify(key)}`);
}
