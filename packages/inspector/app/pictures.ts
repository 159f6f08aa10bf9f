/** Asks the worker for pictures. */
import type { Answer, Question } from './layout.worker.ts';
import type { Drawing, Picture } from './picture.ts';

/** The worker's file, beside the one that this is bundled into. The build says its name. */
declare const LAYOUT_WORKER: string;

const waiting = new Map<number, (answer: Answer) => void>();
let worker: Worker | undefined;
let asked = 0;

function started(): Worker {
  if (worker !== undefined) return worker;
  worker = new Worker(new URL(LAYOUT_WORKER, import.meta.url), { type: 'module' });
  worker.addEventListener('message', ({ data }: MessageEvent<Answer>) => {
    waiting.get(data.id)?.(data);
    waiting.delete(data.id);
  });
  return worker;
}

/** Rejects where the diagram cannot be laid out. */
export async function pictureOf(drawing: Drawing): Promise<Picture> {
  const id = ++asked;
  const question: Question = { id, drawing };
  const { picture, error } = await new Promise<Answer>((resolve) => {
    waiting.set(id, resolve);
    started().postMessage(question);
  });
  if (picture === undefined) throw new Error(error ?? 'no picture');
  return picture;
}
