import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type EmbeddedServer, startEmbedded } from '../../src/db/embedded/embedded.ts'
import { processesWith, root, startProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'

const said: string[] = []
const log = { info: (text: string) => void said.push(text), warn: (text: string) => void said.push(text) }

const ask = async (url: string, statement: string) =>
  (await withClient(url, (client) => client.query({ text: statement, rowMode: 'array' }))).rows[0]?.[0]

describe('a fresh embedded server', () => {
  let dir: string
  let server: EmbeddedServer

  beforeAll(async () => {
    dir = await mkdtemp(join(tmpdir(), 'daybook-embedded-'))
    server = await startEmbedded({ dataDir: dir, log, durable: false })
  })

  afterAll(async () => {
    await server.stop()
    await rm(dir, { recursive: true })
  })

  it('decodes its log and gives the application no more than a hosted server would', async () => {
    expect(await ask(server.url, 'show wal_level')).toBe('logical')
    expect(await ask(server.url, 'select rolsuper from pg_roles where rolname = current_user')).toBe(false)
    expect(await ask(server.url, 'select rolreplication from pg_roles where rolname = current_user')).toBe(true)
  })

  it('sorts and folds letters alike on every machine', async () => {
    expect(await ask(server.url, `select lower('ÄÉŁ')`)).toBe('äéł')
    expect(await ask(server.url, `select string_agg(w, '' order by w) from unnest(array['b', 'a', 'B', 'ä']) w`)).toBe(
      'Babä',
    )
  })

  it('keeps its password to itself', async () => {
    expect((await stat(join(dir, 'database-url'))).mode & 0o777).toBe(0o600)
  })

  it('asks for the password', async () => {
    const wrong = new URL(server.url)
    wrong.password = 'wrong'
    await expect(ask(wrong.href, 'select 1')).rejects.toMatchObject({ code: '28P01' })
  })
})

describe('an embedded server that comes and goes', () => {
  let dataDir: string
  let servers: EmbeddedServer[]

  // One for all: each test leaves data that a server can be started on, and to make them costs the most of a first start.
  beforeAll(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'daybook-embedded-'))
  })

  beforeEach(() => {
    servers = []
    said.length = 0
  })

  afterEach(async () => {
    for (const server of servers) await server.stop('immediate')
    expect(processesWith(dataDir)).toEqual([])
  })

  afterAll(() => rm(dataDir, { recursive: true }))

  async function start({ durable = false } = {}): Promise<EmbeddedServer> {
    const server = await startEmbedded({ dataDir, log, durable })
    servers.push(server)
    return server
  }

  it('keeps rows, address and password from one start to the next', async () => {
    const first = await start()
    await ask(first.url, 'create table kept as select 42 as value')
    await first.stop()
    const second = await start()
    expect(second.url).toBe(first.url)
    expect(await ask(second.url, 'select value from kept')).toBe(42)
  })

  it('takes another port when its own is taken', async () => {
    const first = await start()
    await first.stop()
    const squatter = createServer().listen(Number(new URL(first.url).port), '127.0.0.1')
    await once(squatter, 'listening')
    const second = await start()
    squatter.close()
    expect(new URL(second.url).port).not.toBe(new URL(first.url).port)
    expect(await ask(second.url, 'select 1')).toBe(1)
  })

  it('recovers from a crash with all that was committed', async () => {
    const first = await start({ durable: true })
    await ask(first.url, 'create table committed as select 42 as value')
    await first.stop('immediate')
    const second = await start({ durable: true })
    expect(await ask(second.url, 'select value from committed')).toBe(42)
  })

  it('reports its own end', async () => {
    const { pid, ended } = await start()
    process.kill(pid, 'SIGTERM')
    expect(await ended).toContain('database system is shut down')
  })

  it('owns its directory while it runs', async () => {
    await start()
    const other = startProcess('test/support/run-embedded.ts', [dataDir])
    const { text } = await other.waitForLine((line) => line.text.includes('in use'))
    expect(text).toContain(`process ${process.pid}`)
    expect((await other.exited).code).toBe(1)
  })

  it('ends with the process that started it, even a killed one', async () => {
    const other = startProcess('test/support/run-embedded.ts', [dataDir])
    const { url } = await other.waitForLine((line) => line.url)
    await other.kill('SIGKILL')
    await waitFor(() => processesWith(dataDir).length === 0)
    expect((await start()).url).toBe(url)
  })

  it('is not left alone by a process that is killed while it starts it', async () => {
    const NODE_OPTIONS = `--import=${join(root, 'test/support/dies-with-server.ts')}`
    const other = startProcess('test/support/run-embedded.ts', [dataDir], { NODE_OPTIONS })
    expect(await other.exited).toEqual({ code: null, signal: 'SIGKILL' })
    await waitFor(() => processesWith(dataDir).length === 0)
    await start()
  })

  it('takes the place of one that survived the process which started it', async () => {
    const other = startProcess('test/support/run-embedded.ts', [dataDir])
    const { serverPid: pid } = await other.waitForLine((line) => line.url)
    for (const guardian of processesWith(`stop-with-launcher ${pid}`)) process.kill(guardian, 'SIGKILL')
    await other.kill('SIGKILL')
    const { pid: own } = await start()
    expect(processesWith(`-D ${dataDir}`)).not.toContain(pid)
    expect(processesWith(`-D ${dataDir}`)).toContain(own)
    expect(said.join()).toContain(`process ${pid}`)
  })

  it('is not fooled by a process id that another process has now', async () => {
    const first = await start()
    await first.stop()
    const stranger = spawn('sleep', ['600'])
    await once(stranger, 'spawn')
    await writeFile(join(first.clusterDir, 'postmaster.pid'), `${stranger.pid}\n${first.clusterDir}\n0\n1\n\n\n\n`)
    await start()
    expect(stranger.exitCode).toBeNull()
    stranger.kill()
  })

  it('refuses data of another major version and tells the way out', async () => {
    const { clusterDir, stop } = await start()
    await stop()
    const version = (await readFile(join(clusterDir, 'PG_VERSION'), 'utf8')).trim()
    await writeFile(join(clusterDir, 'PG_VERSION'), '14\n')
    await expect(startEmbedded({ dataDir, log })).rejects.toThrow(/belongs to PostgreSQL 14.*daybook backup/)
    await writeFile(join(clusterDir, 'PG_VERSION'), `${version}\n`)
    await start()
  })
})
