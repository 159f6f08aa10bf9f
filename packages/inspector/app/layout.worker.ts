/** Lays diagrams out beside the page, which stays quick meanwhile. */
import { draw } from './layout.ts';
import type { Drawing, Picture } from './picture.ts';

/** A question and its answer have the same number. */
export interface Question {
  readonly id: number;
  readonly drawing: Drawing;
}

export interface Answer {
  readonly id: number;
  readonly picture?: Picture;
  readonly error?: string;
}

function answer({ id, drawing }: Question): Answer {
  try {
    return { id, picture: draw(drawing) };
  } catch (error) {
    return { id, error: error instanceof Error ? error.message : String(error) };
  }
}

addEventListener('message', ({ data }: MessageEvent<Question>) => postMessage(answer(data)));
