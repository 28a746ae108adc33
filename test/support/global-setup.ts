import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'
import { startTestServer, type TestServer } from './server.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    server: TestServer
    /** Where the processes of a run keep what they compiled: most of what a start costs, and there are hundreds. */
    compileCache: string
  }
}

/** Both projects that need PostgreSQL name this file; the first one starts the server, the last one stops it. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  shared.users += 1
  shared.server ??= startTestServer()
  shared.compileCache ??= mkdtemp(join(tmpdir(), 'daybook-compiled-'))
  const compileCache = await shared.compileCache
  const { stop, ...server } = await shared.server
  project.provide('server', server)
  project.provide('compileCache', compileCache)
  // Inherited by the processes that run the test files.
  process.env.NODE_COMPILE_CACHE = compileCache
  return async () => {
    shared.users -= 1
    if (shared.users > 0) return
    await stop()
    // The process of the last test file may still be writing what it compiled.
    await rm(compileCache, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
  }
}

type Shared = { users: number; server?: ReturnType<typeof startTestServer>; compileCache?: Promise<string> }

// Each project evaluates this module for itself; the process is what they share.
const place = globalThis as { daybookTestServer?: Shared }
place.daybookTestServer ??= { users: 0 }
const shared = place.daybookTestServer
