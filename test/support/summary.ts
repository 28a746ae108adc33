import type { Reporter, TestModule } from 'vitest/node'

/** Ends the run with one line that says it all: `N passed, N failed`, and what was skipped where anything was. */
export default class Summary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 }
    for (const module of modules) {
      let tests = 0
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        tests += 1
        if (state !== 'pending') counts[state] += 1
      }
      // A file that fails outside of its tests: it does not load, or a hook of it throws.
      if (!module.ok() && (tests === 0 || module.errors().length > 0)) counts.failed += 1
    }
    const skipped = counts.skipped === 0 ? '' : `, ${counts.skipped} skipped`
    process.on('exit', () => process.stdout.write(`${counts.passed} passed, ${counts.failed} failed${skipped}\n`))
    if (counts.skipped > 0 && process.env.CI === 'true') process.exitCode = 1
  }
}
