/**
 * A reporter for Vitest: prints each test that passed only when it ran again, with its first error. A busy machine
 * causes one or two of them; more fail the run, so that tests which hang on luck do not gather.
 */
const MOST = 3;

export default class SecondTries {
  tries = [];

  onTestCaseResult(test) {
    const { retryCount = 0 } = test.diagnostic() ?? {};
    if (retryCount === 0 || test.options.retry !== 1) return;
    const { state, errors = [] } = test.result();
    if (state !== 'passed') return;
    const [first] = (errors[0]?.message ?? 'no error').split('\n');
    this.tries.push(`second try: ${test.module.relativeModuleId} > ${test.fullName}: ${first}`);
  }

  onTestRunEnd() {
    for (const line of this.tries) console.log(line);
    if (this.tries.length <= MOST) return;
    console.log(`TOO MANY: at most ${MOST} tests of a run may pass at their second try only`);
    process.exitCode = 1;
  }
}
