import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { chmod, mkdtemp, readFile, rm, stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { processesWith, startProcess, survivors, type TestProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'

/** A directory for each test, in which nothing may run afterwards. */
function inItsOwnHome(): { readonly path: string } {
  const home = { path: '' }
  beforeEach(async () => {
    home.path = await mkdtemp(join(tmpdir(), 'daybook-start-'))
  })
  afterEach(async () => {
    try {
      await nothingRuns(home.path)
    } finally {
      await cleanUp(home.path)
    }
  })
  return home
}

async function cleanUp(directory: string): Promise<void> {
  for (const pid of survivors()) process.kill(pid, 'SIGKILL')
  await rm(directory, { recursive: true })
}

/** `npm start` in a directory. */
function launch(cwd: string, env: Record<string, string> = {}): TestProcess {
  return startProcess('src/start.ts', [], { NODE_ENV: 'development', PORT: '0', ...env }, { cwd })
}

/** The rows of the banner once it is complete, e.g. `{ URL: 'http://…', Password: '…' }`. */
async function banner(launcher: TestProcess): Promise<Record<string, string>> {
  await launcher.waitForLine(({ text }) => text.includes('Ctrl-C stops everything'))
  const rows = launcher.lines.map(({ text }) => /^ {4}(URL|Console|Docs|Admin|Password|Sign-in|Data) +(.*)$/.exec(text))
  return Object.fromEntries(rows.filter((row) => row !== null).map((row) => [row[1], row[2]]))
}

async function nothingRuns(directory: string): Promise<void> {
  await waitFor(() => survivors().length === 0 && processesWith(directory).length === 0)
}

const users = async (url: string) =>
  (await withClient(url, (client) => client.query('select email from "svc_User" order by email'))).rows

// One installation for all of them: a start costs seconds, and each of them would begin with the same one.
describe('npm start on a machine with nothing else', () => {
  let place: string
  let launcher: TestProcess
  let shown: Record<string, string>

  const start = async () => {
    launcher = launch(place)
    shown = await banner(launcher)
  }

  beforeAll(async () => {
    place = await mkdtemp(join(tmpdir(), 'daybook-start-'))
    // Open to the server's own OS user, or its data would be kept elsewhere, on a slow disk.
    await chmod(place, 0o755)
    await start()
  })

  afterAll(() => cleanUp(place))

  it('runs everything', async () => {
    expect((await fetch(`${shown.URL}/health`)).status).toBe(200)
    expect((await fetch(`${shown.URL}/ready`)).status).toBe(200)
    // The console follows changes over it.
    expect((await fetch(`${shown.URL}/realtime/?EIO=4&transport=polling`)).status).toBe(200)
    expect(shown.Admin).toBe('admin@example.com')
    expect(shown.Password).toMatch(/^\S{16,} +\(shown only this once\)$/)
    expect(shown.Console).toBe(`${shown.URL}/console`)
    expect(shown['Sign-in']).toMatch(/\/console\/welcome#[0-9a-f]{64} +\(works once, within 10 minutes\)$/)
  })

  it('keeps the key it makes to itself', async () => {
    const file = join(place, '.daybook/secret-key')
    expect((await stat(file)).mode & 0o777).toBe(0o600)
    const key = (await readFile(file, 'utf8')).trim()
    expect(key.length).toBeGreaterThanOrEqual(32)
    expect(launcher.lines.filter(({ text }) => text.includes(key))).toEqual([])
  })

  it('starts a worker again that has died', async () => {
    const [worker] = pidsOf('workers/main.ts mail')
    process.kill(worker!, 'SIGKILL')
    const { text } = await launcher.waitForLine((line) => line.text.includes('starting it again'))
    expect(text).toContain('mail ended (signal SIGKILL)')
    await waitFor(() => pidsOf('workers/main.ts mail').some((pid) => pid !== worker))
  })

  it('stops everything on SIGTERM, and finds its data again', async () => {
    expect(await launcher.kill('SIGTERM')).toEqual({ code: 0, signal: null })
    await nothingRuns(place)
    await start()
    expect((await fetch(`${shown.URL}/health`)).status).toBe(200)
    expect(shown).not.toHaveProperty('Password')
    const url = (await readFile(join(place, '.daybook/database-url'), 'utf8')).trim()
    expect(await users(url)).toEqual([{ email: 'admin@example.com' }])
  })

  it('stops at once on a second Ctrl-C, whatever hangs', async () => {
    const [worker] = pidsOf('workers/main.ts mail')
    process.kill(worker!, 'SIGSTOP')
    let ended = false
    void launcher.exited.then(() => {
      ended = true
    })
    await waitFor(() => ended || !process.kill(launcher.pid, 'SIGINT'))
    expect((await launcher.exited).code).toBe(130)
    await nothingRuns(place)
  })

  it('leaves nothing behind when it is killed', async () => {
    await start()
    expect(survivors().length).toBeGreaterThan(2)
    await launcher.kill('SIGKILL')
    await nothingRuns(place)
  })
})

function pidsOf(command: string): number[] {
  const ours = new Set(survivors())
  return processesWith(command).filter((pid) => ours.has(pid))
}

describe('npm start with DATABASE_URL', () => {
  const home = inItsOwnHome()

  it('uses that server, in production too, starts none, and stops everything on Ctrl-C', async () => {
    const { url } = await createDatabase()
    const env = { ...testEnv(url), NODE_ENV: 'production', HOST: '127.0.0.1' }
    const launcher = launch(home.path, env)
    const shown = await banner(launcher)
    expect(shown.Data).toBe(`${new URL(url).host}${new URL(url).pathname} (DATABASE_URL)`)
    expect((await fetch(`${shown.URL}/ready`)).status).toBe(200)
    expect(existsSync(join(home.path, '.daybook'))).toBe(false)
    expect(await launcher.kill('SIGINT')).toEqual({ code: 0, signal: null })
    await nothingRuns(home.path)
  })
})

describe('npm start refuses in one message', () => {
  const home = inItsOwnHome()
  const unreachable = 'postgres://nobody:hidden@127.0.0.1:1/none'

  it.each<[why: string, env: Record<string, string>, variable: string]>([
    ['no key in production', { NODE_ENV: 'production', DATABASE_URL: unreachable }, 'SECRET_KEY'],
    ['a bad variable', { DATABASE_POOL_MAX: 'many' }, 'DATABASE_POOL_MAX'],
    ['an address that is not ours', { HOST: '192.0.2.1' }, 'HOST'],
    [
      'a database that does not answer',
      { DATABASE_URL: unreachable, DATABASE_MAX_RETRY: '2', DATABASE_RETRY_INTERVAL: '10' },
      'DATABASE_URL',
    ],
  ])('%s', async (_why, env, variable) => {
    await refuses(launch(home.path, env), variable)
  })

  it('a port that is taken', async () => {
    const squatter = createServer().listen(0, '127.0.0.1')
    await once(squatter, 'listening')
    const { port } = squatter.address() as { port: number }
    await refuses(launch(home.path, { PORT: String(port) }), `PORT: ${port}`)
    squatter.close()
    expect(existsSync(join(home.path, '.daybook'))).toBe(false)
  })

  async function refuses(launcher: TestProcess, variable: string): Promise<void> {
    expect((await launcher.exited).code).toBe(1)
    const text = launcher.lines.map((line) => line.text).join('\n')
    expect(text).toContain(variable)
    expect(text).not.toMatch(/^ +at |hidden/m)
  }
})
