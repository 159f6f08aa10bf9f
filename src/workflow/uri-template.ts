/** Two values that have nothing in common, so that only a wildcard matches both. */
const [A, B] = ['a0b', 'c1d'];

/** A template with more expressions than that is not looked into. */
const MOST_URIS = 256;

/**
 * What an expression of RFC 6570 can make, by its operator: enough examples that a glob which matches all of them matches whatever it makes. Queries and
 * fragments are nothing to a glob.
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
export function urisOf(template: string): readonly string[] {
  let uris = [''];
  // Every second piece is an expression.
  for (const [index, piece] of template.split(/\{([^{}]*)\}/).entries()) {
    const isText = index % 2 === 0;
    if (isText && /[{}]/.test(piece)) return [];
    const examples = isText ? [piece] : (EXAMPLES[/^[^\w%]?/.exec(piece)?.[0] ?? ''] ?? []);
    uris = uris.flatMap((uri) => examples.map((example) => uri + example));
    if (uris.length > MOST_URIS) return [];
  }
  return uris;
}
