import { defineConfig } from 'vitest/config'
import LongestFirst from './test/support/sequencer.ts'
import { keepTemporaryFilesInMemory } from './test/support/temporary.ts'
import { longestWaitMs } from './test/support/wait.ts'

keepTemporaryFilesInMemory()

/**
 * Node runs the program itself, as it does in production, from what it has compiled before, and the test files of a
 * process share it: loading it anew for each of them was more than half of the processor time of the suite.
 */
const shared = {
  server: {
    deps: { external: ['src', 'migrations'].map((name) => new RegExp(`${import.meta.dirname}/${name}/`)) },
  },
  isolate: false,
  setupFiles: 'test/support/fresh-modules.ts',
  // What a test makes is garbage after it: with more room for it to die in, less of the time goes into collecting it. Threads that
  // help to collect take their time from the other processes, and more of it than they spare their own.
  execArgv: ['--min-semi-space-size=64', '--max-semi-space-size=128', '--no-parallel-scavenge'],
  expect: { poll: { timeout: longestWaitMs } },
}

/** Test files at a time: many wait for processes to start and faults to be noticed, so more than there are cores. */
const atOnce = 4

/** Of a test or a hook, which may wait more than once. */
const patienceMs = 3 * longestWaitMs

/** What needs no server runs first, so that a broken rule shows before a process is started. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          ...shared,
          include: ['test/unit/**/*.test.ts'],
          // Two of them compile all of the project.
          testTimeout: patienceMs,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'integration',
          ...shared,
          include: ['test/integration/**/*.test.ts', 'test/client/**/*.test.ts'],
          globalSetup: 'test/support/global-setup.ts',
          maxWorkers: atOnce,
          testTimeout: patienceMs,
          hookTimeout: patienceMs,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'process',
          ...shared,
          include: ['test/process/**/*.test.ts'],
          globalSetup: 'test/support/global-setup.ts',
          maxWorkers: atOnce,
          testTimeout: patienceMs,
          hookTimeout: patienceMs,
          sequence: { groupOrder: 1 },
        },
      },
    ],
    // The last line of a run is the summary's.
    reporters: ['default', './test/support/summary.ts'],
    sequence: { sequencer: LongestFirst },
    teardownTimeout: 30_000,
  },
})
