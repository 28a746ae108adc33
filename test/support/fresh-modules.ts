import { vi } from 'vitest'

/*
 * What the test files themselves are made of is evaluated anew for each of them, though they share a process: these modules
 * register hooks, and keep what is to be closed after the file.
 */
vi.resetModules()
