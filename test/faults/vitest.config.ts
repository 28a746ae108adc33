import { defineConfig } from 'vitest/config'
import { keepTemporaryFilesInMemory } from '../support/temporary.ts'

keepTemporaryFilesInMemory()

/** Apart from the tests: hours of it belong to no `npm test`. */
export default defineConfig({
  test: {
    include: ['test/faults/run.test.ts'],
    globalSetup: 'test/support/global-setup.ts',
    hookTimeout: 120_000,
    teardownTimeout: 30_000,
    disableConsoleIntercept: true,
  },
})
