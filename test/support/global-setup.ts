import type { TestProject } from 'vitest/node'
import { compiledTests } from './compiled.ts'
import { startTestServer, type TestServer } from './server.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    server: TestServer
  }
}

/** Both projects that need PostgreSQL name this file; the first one starts the server, the last one stops it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  shared.users += 1
  shared.server ??= startTestServer()
  const { stop, ...server } = await shared.server
  project.provide('server', server)
  // Inherited by the processes that run the test files. It outlives the run: to compile takes longer than all else of a start.
  process.env.NODE_COMPILE_CACHE = compiledTests
  return async () => {
    shared.users -= 1
    if (shared.users === 0) await stop()
  }
}

type Shared = { users: number; server?: ReturnType<typeof startTestServer> }

// Each project evaluates this module for itself; the process is what they share.
const place = globalThis as { daybookTestServer?: Shared }
place.daybookTestServer ??= { users: 0 }
const shared = place.daybookTestServer
