/** The answer, or a rejection after `ms` milliseconds; what comes later is dropped. */
export function withinDeadline<T>(answer: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
    timer.unref();
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
