import { type ReadUri, readUri } from './uri-readings.ts';

/** Two values that have nothing in common, so that only a wildcard matches both. */
const [A, B] = ['a0b', 'c1d'];

/** A template that makes more examples, or longer ones in all, is not looked into. */
const MOST_URIS = 256;
const MOST_CHARACTERS = 65_536;

/**
 * What an expression of RFC 6570 can make, by its operator: enough examples that a glob which
 * matches all of them matches all that it makes. Queries and fragments are nothing to a glob.
 */
const EXAMPLES: Readonly<Record<string, readonly string[]>> = {
  '': [A, B],
  '+': [A, B, `${A}/${B}`, `${B}/${A}/${B}`],
  '/': [`/${A}`, `/${B}`, `/${A}/${B}`, `/${B}/${A}/${B}`],
  '.': ['', `.${A}`, `.${B}`],
  ';': ['', `;${A}`, `;${B}`],
  '?': [''],
  '&': [''],
  '#': [''],
};

/** Examples of the URIs that a template makes; none where it is no template, or too long a one. */
export function readTemplate(template: string): readonly (ReadUri | undefined)[] {
  return urisOf(template).map(readUri);
}

function urisOf(template: string): readonly string[] {
  if (template.length > MOST_CHARACTERS) return [];
  let uris = [''];
  // Every second piece is an expression.
  for (const [index, piece] of template.split(/\{([^{}]*)\}/).entries()) {
    const isText = index % 2 === 0;
    if (isText && /[{}]/.test(piece)) return [];
    const examples = isText ? [piece] : (EXAMPLES[/^[^\w%]?/.exec(piece)?.[0] ?? ''] ?? []);
    uris = uris.flatMap((uri) => examples.map((example) => uri + example));
    if (uris.length > MOST_URIS || lengthOf(uris) > MOST_CHARACTERS) return [];
  }
  return uris;
}

function lengthOf(uris: readonly string[]): number {
  return uris.reduce((sum, uri) => sum + uri.length, 0);
}
