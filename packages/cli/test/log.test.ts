import { expect, it, onTestFinished, vi } from 'vitest';
import { aloneInMemory } from '../../../src/doors/session-store.ts';
import { inOwnWords, Log } from '../src/log.ts';

function printed(write: (log: Log) => void): string {
  const lines: string[] = [];
  const stdout = vi.spyOn(process.stdout, 'write').mockImplementation((chunk) => {
    lines.push(String(chunk));
    return true;
  });
  onTestFinished(() => stdout.mockRestore());
  for (const format of ['text', 'json'] as const) write(new Log(format));
  stdout.mockRestore();
  return lines.join('');
}

/** C1 controls, marks that turn the direction of text, separators of lines, half a character. */
const ODD = ['\u009b31m', '\u0085', '\u202e', '\u2066', '\u200f', '\u2028', '\u007f', '\u{e0041}'];

it.each([...ODD, '\ud800', '\u001b[2J'])('escapes what a name must not hold: %j', (odd) => {
  const tool = `pay${odd}evil`;
  const text = printed((log) => {
    log.say('call.refused', { tool });
    log.warn(`the host ${JSON.stringify(tool)} is not allowed`);
    log.say('ready', { tool }, `Listening for ${tool}`);
  });
  expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
  expect(text).toContain('\\u');
  const logged = text.split('\n').filter((line) => line.startsWith('{'));
  expect(logged.map((line) => JSON.parse(line).tool)).toEqual([tool, undefined, tool]);
  expect(text.split('\n')).toHaveLength(7);
});

it('leaves the letters of all languages as they are', () => {
  const tool = 'zahlen-für-日本-é';
  expect(printed((log) => log.say('call.refused', { tool }))).toContain(`tool="${tool}"`);
});

it.each([
  [aloneInMemory({ NODE_ENV: 'production' }, false) ?? '', '--store'],
  [
    "If it never lists again, give fsmGate(gate, { visibility: (client) => client.name === \"a }) b\" ? 'stable' : 'auto' }); see",
    '--visibility stable',
  ],
  [
    'give sessionStore({ key: [conversationKey(), principalKey()] })',
    '--key conversation --key principal',
  ],
  [
    "for any number sessionStore({ key: managedHandle({ start: 'begin', argument: 'run' }) }); see",
    '--key managed:run=begin',
  ],
  [
    'mount authentication in front, and give sessionStore({ key: principalKey() }): no call',
    '--jwks',
  ],
  ['Else let idleMs be long, and keep runs', '--idle'],
  ['Clients that open one for each call need another key than sessionKey()', '--key'],
])('says %j in the words of the command', (text, own) => {
  expect(inOwnWords(text)).toContain(own);
  expect(inOwnWords(text)).not.toMatch(/(?:Store|Gate|Key|Handle)\(|\w+Ms\b/);
});
