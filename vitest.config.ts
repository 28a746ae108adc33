import { defineConfig } from 'vitest/config'

// Node runs the program itself, as it does in production, from what it has compiled before. Each test file would
// otherwise have all of it transformed and evaluated anew, which was half of the processor time of the suite.
const native = {
  deps: { external: ['src', 'migrations'].map((name) => new RegExp(`${import.meta.dirname}/${name}/`)) },
}

/** The groups run one after the other, so that a broken rule shows before a process is started. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          server: native,
          include: ['test/unit/**/*.test.ts'],
          // Two of them compile all of the project.
          testTimeout: 30_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'integration',
          server: native,
          include: ['test/integration/**/*.test.ts'],
          globalSetup: 'test/support/global-setup.ts',
          maxWorkers: 3,
          testTimeout: 30_000,
          hookTimeout: 30_000,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'process',
          server: native,
          include: ['test/process/**/*.test.ts'],
          globalSetup: 'test/support/global-setup.ts',
          maxWorkers: 3,
          testTimeout: 60_000,
          hookTimeout: 60_000,
          sequence: { groupOrder: 2 },
        },
      },
    ],
    // The last line of a run is the summary's.
    reporters: ['default', './test/support/summary.ts'],
    teardownTimeout: 30_000,
  },
})
