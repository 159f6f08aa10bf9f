import { IMAGE } from './media.ts';

type Contents = { uri: string; mimeType: string } & ({ text: string } | { blob: string });

export interface ResourceDefinition {
  readonly name: string;
  readonly uri: string;
  readonly mimeType: string;
  readonly content: { readonly text: string } | { readonly blob: string };
}

export const RESOURCES: readonly ResourceDefinition[] = [
  {
    name: 'static-text',
    uri: 'test://static-text',
    mimeType: 'text/plain',
    content: { text: 'This is the content of the static text resource.' },
  },
  {
    name: 'static-binary',
    uri: 'test://static-binary',
    mimeType: 'image/png',
    content: { blob: IMAGE },
  },
  {
    name: 'watched-resource',
    uri: 'test://watched-resource',
    mimeType: 'text/plain',
    content: { text: 'Watched.' },
  },
];

export const TEMPLATE = { name: 'template', uriTemplate: 'test://template/{id}/data' } as const;

export function contentsOf({ uri, mimeType, content }: ResourceDefinition): Contents {
  return { uri, mimeType, ...content };
}

export function templateContents(uri: string, id: unknown): Contents {
  const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
  return { uri, mimeType: 'application/json', text };
}

export interface PromptDefinition {
  readonly name: string;
  readonly arguments: readonly string[];
  render(args: Record<string, string>): PromptContent[];
}

type PromptContent =
  | { type: 'text'; text: string }
  | { type: 'image'; data: string; mimeType: string }
  | { type: 'resource'; resource: { uri: string; mimeType: string; text: string } };

export const PROMPTS: readonly PromptDefinition[] = [
  {
    name: 'test_simple_prompt',
    arguments: [],
    render: () => [say('This is a simple prompt for testing.')],
  },
  {
    name: 'test_prompt_with_arguments',
    arguments: ['arg1', 'arg2'],
    render: ({ arg1, arg2 }) => [say(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)],
  },
  {
    name: 'test_prompt_with_embedded_resource',
    arguments: ['resourceUri'],
    render: ({ resourceUri = '' }) => [
      {
        type: 'resource',
        resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded.' },
      },
      say('Process the embedded resource above.'),
    ],
  },
  {
    name: 'test_prompt_with_image',
    arguments: [],
    render: () => [
      { type: 'image', data: IMAGE, mimeType: 'image/png' },
      say('Analyze the image above.'),
    ],
  },
];

/** A prompt in the shape that both SDKs answer with. */
export function rendered(prompt: PromptDefinition, args: Record<string, string> = {}) {
  return { messages: prompt.render(args).map((content) => ({ role: 'user' as const, content })) };
}

function say(text: string): PromptContent {
  return { type: 'text', text };
}
