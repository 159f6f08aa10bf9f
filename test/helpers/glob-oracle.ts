import * as fc from 'fast-check';

/** What a glob means, in the shortest code, however slow. */
export function oracleMatches(pattern: string, name: string): boolean {
  return segmentsMatch(pattern.split('.'), name.split('.'));
}

function segmentsMatch([glob, ...globs]: string[], name: string[]): boolean {
  if (glob === undefined) return name.length === 0;
  const [segment, ...rest] = name;
  if (glob === '**')
    return segmentsMatch(globs, name) || (name.length > 0 && segmentsMatch([glob, ...globs], rest));
  return segment !== undefined && charactersMatch(glob, segment) && segmentsMatch(globs, rest);
}

function charactersMatch(glob: string, text: string): boolean {
  if (glob === '') return text === '';
  const rest = glob.slice(1);
  if (glob.startsWith('*'))
    return charactersMatch(rest, text) || (text !== '' && charactersMatch(glob, text.slice(1)));
  return glob[0] === text[0] && charactersMatch(rest, text.slice(1));
}

/** Globs of up to `maxLength` of these segments. */
export function globOf(segments: readonly string[], maxLength: number): fc.Arbitrary<string> {
  return fc
    .array(fc.constantFrom(...segments), { minLength: 1, maxLength })
    .map((chosen) => chosen.join('.'));
}

/** Each name of one to `maxLength` of these segments. */
export function allNames(segments: readonly string[], maxLength: number): string[] {
  let names = [...segments];
  const all = [...names];
  for (let length = 2; length <= maxLength; length++) {
    names = names.flatMap((name) => segments.map((segment) => `${name}.${segment}`));
    all.push(...names);
  }
  return all;
}
