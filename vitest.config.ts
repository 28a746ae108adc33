import { defineConfig } from 'vitest/config'

/** The groups run one after the other, so that a broken rule shows before a process is started. */
export default defineConfig({
  test: {
    projects: [
      {
        test: {
          name: 'unit',
          include: ['test/unit/**/*.test.ts'],
          // Two of them compile all of the project.
          testTimeout: 30_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        test: {
          name: 'integration',
          include: ['test/integration/**/*.test.ts'],
          globalSetup: 'test/support/global-setup.ts',
          maxWorkers: 2,
          testTimeout: 30_000,
          hookTimeout: 30_000,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'process',
          include: ['test/process/**/*.test.ts'],
          globalSetup: 'test/support/global-setup.ts',
          maxWorkers: 2,
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
