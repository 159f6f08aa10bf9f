let engine: Promise<boolean> | undefined;

/**
 * Loads the optional peer `xstate`. No gate needs that: a machine brings along all that runs it. It
 * tells whether there is one to make machines with.
 *
 * @returns whether it can be used: `false` where it is not installed, or too old for `transition()`
 * as a pure function.
 */
export function initFsmEngine(): Promise<boolean> {
  engine ??= canLoad(() => import('xstate'));
  return engine;
}

/** Whether `load` resolves to a module with the functions that we use. Never rejects. */
export async function canLoad(load: () => Promise<object>): Promise<boolean> {
  try {
    const module = await load();
    return 'transition' in module && 'initialTransition' in module;
  } catch {
    return false;
  }
}
