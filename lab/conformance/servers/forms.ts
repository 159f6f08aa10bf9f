/** What the tools ask of a user, with the properties that the suite looks for. */
export const ONE_ANSWER = form({ response: { type: 'string' } }, ['response']);

/** SEP-1034: a default of each primitive type. */
export const WITH_DEFAULTS = form({
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
});

/** SEP-1330: an enum of each form. */
export const EVERY_ENUM = form({
  untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
  titledSingle: { type: 'string', oneOf: titled('First Option', 'Second Option', 'Third Option') },
  legacyEnum: { type: 'string', enum: ['opt1', 'opt2'], enumNames: ['Option One', 'Option Two'] },
  untitledMulti: {
    type: 'array',
    items: { type: 'string', enum: ['option1', 'option2', 'option3'] },
  },
  titledMulti: {
    type: 'array',
    items: { anyOf: titled('First Choice', 'Second Choice', 'Third Choice') },
  },
});

export interface Form {
  readonly type: 'object';
  readonly properties: Record<string, never>;
  readonly required: string[];
  readonly [keyword: string]: unknown;
}

/** Typed as no property at all, since each SDK has types of its own for what may be asked. */
export function form(properties: Record<string, unknown>, required: string[] = []): Form {
  return { type: 'object', properties: properties as Record<string, never>, required };
}

function titled(...titles: string[]) {
  return titles.map((title, index) => ({ const: `value${index + 1}`, title }));
}
