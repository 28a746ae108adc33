import { join } from 'node:path'
import { compiledDirectory } from '../../src/process/start-up.ts'

/**
 * Where tests keep what they compile. The program's own processes compile under other flags: in one directory, each kind would
 * refuse and replace what the other one has left.
 */
export const compiledTests = join(compiledDirectory, 'tests')
