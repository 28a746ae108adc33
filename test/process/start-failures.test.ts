import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { asSuperuser } from '../support/log.ts'
import { createDatabase, createEmptyDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { type OutputLine, root, startProcess, survivors, type TestProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'

/** Of the packages that the program names; another one belongs behind its first use, or here with a reason. */
const neededByTheStart = (
  '@fastify/cors @fastify/multipart @slonik/errors fastify ipaddr.js lru-cache p-limit p-retry ' +
  'pg pg-cursor pino semver sql-template-tag uuid'
).split(' ')

const unreachable = 'postgres://nobody:hidden@127.0.0.1:1/none'

describe.each([
  ['the web process', 'src/api/main.ts', []],
  ['a worker', 'src/workers/main.ts', ['mail']],
])('%s', (_what, script, args) => {
  it.each<[why: string, env: Record<string, string>, says: RegExp]>([
    [
      'the database does not answer',
      { DATABASE_URL: unreachable, DATABASE_MAX_RETRY: '3', DATABASE_RETRY_INTERVAL: '10' },
      /^DATABASE_URL: .*\b3\b.*ECONNREFUSED/,
    ],
    [
      'variables are wrong',
      { DATABASE_URL: unreachable, PORT: 'many', LOG_LEVEL: 'loud' },
      /^ +PORT: .*\n.*\n +LOG_LEVEL: /m,
    ],
    [
      'there is no key in production',
      { DATABASE_URL: unreachable, NODE_ENV: 'production', SECRET_KEY: '' },
      /^ +SECRET_KEY: /m,
    ],
    ['there is no database', { DATABASE_URL: '' }, /^ +DATABASE_URL: /m],
  ])('does not start when %s, and says what to change', async (_why, env, says) => {
    expect(await refusal(script, args, { ...testEnv(unreachable), ...env })).toMatch(says)
  })

  it('that waits for its database ends when it is told to', async () => {
    const patient = { DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '60000' }
    const waiting = startProcess(script, args, { ...testEnv(unreachable), ...patient })
    await waiting.waitForLine(({ msg }) => msg === away)
    const exit = await waiting.kill('SIGTERM')
    expect(exit?.code ?? exit?.signal).toBeOneOf([0, 'SIGTERM'])
  })

  it('waits where the database has no connection to give for what comes after its look at it', async () => {
    const { url, name } = await createDatabase()
    await limitConnections(name, 1)
    const patient = { DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '50', PORT: '0' }
    const waiting = startProcess(script, args, { ...testEnv(url), ...patient })
    await waiting.waitForLine(({ msg, reason }) => msg === away && /too many connections/.test(String(reason)))
    await limitConnections(name, -1)
    await waiting.waitForLine(({ msg }) => msg === 'ready')
    expect(await waiting.kill()).toEqual({ code: 0, signal: null })
  })

  it('does not start where the database never has a connection to give, and says so', async () => {
    const { url, name } = await createDatabase()
    await limitConnections(name, 1)
    const env = { ...testEnv(url), DATABASE_MAX_RETRY: '3', DATABASE_RETRY_INTERVAL: '10', PORT: '0' }
    expect(await refusal(script, args, env)).toMatch(
      /^DATABASE_URL: the database cannot be reached \(attempts: 3\): too many connections for database/,
    )
  })

  it('does not start where the certificate of its database is not there, and names its variable', async () => {
    const { url } = await createDatabase()
    const env = { ...testEnv(url), DATABASE_SSL_CERTIFICATE: '/nope' }
    expect(await refusal(script, args, env)).toMatch(/^DATABASE_SSL_CERTIFICATE: \/nope cannot be read: ENOENT/)
  })

  it('does not start on a database that was never set up, and says how to', async () => {
    const { url } = await createEmptyDatabase()
    expect(await refusal(script, args, testEnv(url))).toMatch(/^DATABASE_URL: .*npx daybook setup/)
  })

  it('does not start on tables of another version of the job queue, and says how to get its own', async () => {
    const { url } = await createDatabase()
    await withClient(url, (client) => client.query('update pgboss.version set version = version - 1'))
    expect(await refusal(script, args, testEnv(url))).toMatch(
      /^DATABASE_URL: the tables of the job queue have version \d+, and this program needs \d+: run npx daybook setup$/,
    )
  })
})

describe('a worker that has begun to start when the database has no connection to give', () => {
  const hook = `import { writeSync } from 'node:fs'\nexport default () => { writeSync(1, 'hook registered\\n') }`

  it.each([
    ['mail', 'pgboss.schedule'],
    ['tasks', '"svc_Tasks"'],
    ['log-cleanup', 'svc_log.consumer'],
    ['workflows', 'svc_log.consumer'],
  ])('waits for one: %s, which writes to %s', async (name, table) => {
    const { url } = await createDatabase()
    const directory = await extensionsWith('svc-hook-once/index.js', hook)
    await withClient(url, (client) => client.query(noConnectionFor(table)))
    const patient = { DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '50' }
    const env = { ...testEnv(url), ...patient, TASK_SERVICE_ENABLED: 'true', EXTENSIONS_DIR: directory }
    const start = () => startProcess('src/workers/main.ts', [name], env)
    const told = start()
    await told.waitForLine(isAwayAgain)
    expect(await told.kill()).toEqual({ code: 0, signal: null })
    const waiting = start()
    await waiting.waitForLine(isAwayAgain)
    await withClient(url, (client) => client.query(`drop trigger refuse on ${table}`))
    await waiting.waitForLine(({ msg }) => msg === 'ready')
    expect(waiting.lines.filter(({ text }) => text === 'hook registered').length).toBeLessThan(2)
    expect(await waiting.kill()).toEqual({ code: 0, signal: null })
  })
})

const away = 'the database cannot be reached yet'
const isAwayAgain = ({ msg, attempt }: OutputLine) => msg === away && attempt === 2

const noConnectionFor = (table: string) => `
  create function refuse() returns trigger language plpgsql as $$
    begin raise 'too many connections' using errcode = '53300'; end $$;
  create trigger refuse before insert or update on ${table} for each statement execute function refuse()`

const limitConnections = (name: string, limit: number) =>
  withClient(inject('server').url, (client) => client.query(`alter database ${name} connection limit ${limit}`))

/** A directory of extensions with this file; removed after the test. */
async function extensionsWith(name: string, content: string): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-extensions-'))
  onTestFinished(() => rm(directory, { recursive: true }))
  const file = join(directory, name)
  await mkdir(dirname(file))
  await writeFile(file, content)
  return directory
}

const refuseSchedules = `
  create function refuse() returns trigger language plpgsql as $$ begin raise 'no schedule today'; end $$;
  create trigger refuse before insert or update on pgboss.schedule for each row execute function refuse()`

describe('a worker whose start fails after it has begun to work', () => {
  it.each(['mail', 'tasks', 'log-cleanup'])(
    'says why and ends, and so do the processes that it has started: %s',
    async (name) => {
      const { url } = await createDatabase()
      await withClient(url, (client) => client.query(refuseSchedules))
      const env = { ...testEnv(url), TASK_SERVICE_ENABLED: 'true' }
      const worker = startProcess('src/workers/main.ts', [name], env)
      expect(await worker.exited).toEqual({ code: 1, signal: null })
      const said = worker.lines.filter(({ level }) => level === 'fatal').map(({ msg }) => msg)
      expect(said).toEqual(['the worker failed: no schedule today'])
      await waitFor(() => survivors().length === 0)
    },
  )

  it('starts no process for tasks where it cannot take back tasks', async () => {
    const { url } = await createDatabase()
    await withClient(url, (client) => client.query('alter table "svc_Tasks" rename to gone'))
    const worker = startProcess('src/workers/main.ts', ['tasks'], { ...testEnv(url), TASK_SERVICE_ENABLED: 'true' })
    expect(await worker.exited).toEqual({ code: 1, signal: null })
    expect(worker.lines.filter(({ level }) => level === 'fatal')).toHaveLength(1)
    expect(survivors()).toEqual([])
  })
})

describe('the web process', () => {
  it('warns once when it signs in as a superuser', async () => {
    const { url } = await createDatabase()
    const web = await readyAndEnded(testEnv(asSuperuser(url)))
    expect(web.lines.filter(warnsOfSuperuser).map(({ role }) => role)).toEqual(['postgres'])
  })

  it('is otherwise silent about its role, and ready before it has loaded what its first requests may need', async () => {
    const { url } = await createDatabase()
    const keys = { ACCESS_KEY_ID: 'key', SECRET_ACCESS_KEY: 'secret' }
    const s3 = { ...keys, REGION: 'here', BUCKET: 'bucket', ENDPOINT: 'http://127.0.0.1:9' }
    const storage = Object.entries({ DRIVER: 'S3', ...s3 }).map(([name, value]) => [`S3_STORAGE_${name}`, value])
    const services = { STORAGE_SERVICES_ENABLED: 's3', ...Object.fromEntries(storage) }
    const web = await readyAndEnded({ ...testEnv(url), ...services, NODE_OPTIONS })
    expect(web.lines.filter(warnsOfSuperuser)).toEqual([])
    const { packages, sources } = loadedBy(web)
    const { dependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    expect(packages.filter((name) => name in dependencies).toSorted()).toEqual(neededByTheStart)
    // What Fastify compiles shapes with, for routes that there are none of here.
    expect(packages.filter((name) => /ajv|fast-json-stringify-compiler/.test(name))).toEqual([])
    // Of workflows only what answers requests, and knows which changes are guarded.
    expect(sources.filter((file) => ofScripts.test(file) || ofExecutions.test(file))).toEqual([])
    expect(sources).toContain('src/features/work/workflows/hooked.ts')
  })

  it('has loaded nothing of workflows where they are off, nor has their worker', async () => {
    const { url } = await createDatabase()
    const env = { ...testEnv(url), NODE_OPTIONS, WORKFLOWS_ENABLED: 'false' }
    const worker = startProcess('src/workers/main.ts', ['workflows'], env)
    const web = await readyAndEnded(env)
    await worker.waitForLine(({ msg }) => msg === 'ready')
    await worker.kill('SIGTERM')
    for (const { sources } of [web, worker].map(loadedBy)) {
      expect(sources).toContain('src/process/runtime.ts')
      expect(sources.filter((file) => ofScripts.test(file) || ofWorkflows.test(file))).toEqual([])
    }
  })

  it('is ready with one connection of each kind, after one that looks at the database', async () => {
    const { url, name } = await createDatabase()
    await readyAndEnded(testEnv(url))
    const stats = 'select numbackends as open, sessions::int from pg_stat_database where datname = $1'
    const sessions = await withClient(inject('server').url, (client) =>
      waitFor(async () => {
        const [{ open, sessions }] = (await client.query(stats, [name])).rows
        return open === 0 && sessions
      }),
    )
    // Reserved, listening and reading. On a busy machine there was one more once in four runs of all tests; two of each kind are too many.
    expect([1 + 3, 1 + 3 + 1]).toContain(sessions)
  })

  it('does not start on a port that is taken, and names it', async () => {
    const squatter = createServer().listen(0, '127.0.0.1')
    await once(squatter, 'listening')
    const { port } = squatter.address() as { port: number }
    const { url } = await createDatabase()
    expect(await refusal('src/api/main.ts', [], { ...testEnv(url), PORT: String(port) })).toMatch(
      new RegExp(`^PORT: .*${port}`),
    )
    squatter.close()
  })
})

describe('the web process with an extension that cannot be loaded', () => {
  it('does not start, and names its file in one line', async () => {
    const { url } = await createDatabase()
    const broken = 'export default () => { throw new Error("no such service") }'
    const directory = await extensionsWith('svc-hook-broken/index.ts', broken)
    const file = join(directory, 'svc-hook-broken', 'index.ts')
    const said = await refusal('src/api/main.ts', [], { ...testEnv(url), EXTENSIONS_DIR: directory, PORT: '0' })
    expect(said).toBe(`EXTENSIONS_DIR: ${file} failed: no such service`)
  })
})

const NODE_OPTIONS = `--import=${join(root, 'test/support/loaded-packages.ts')}`
const ofWorkflows = /^src\/features\/work\/workflows\//
const ofScripts = /^src\/features\/work\/scripts\//
const ofExecutions = /^src\/features\/work\/workflows\/(run|before|triggers|endings|group-commit)\.ts$/

/** What a process had loaded by its end. */
const loadedBy = (ended: TestProcess) =>
  ended.lines.find(({ packages }) => Array.isArray(packages)) as unknown as { packages: string[]; sources: string[] }

const warnsOfSuperuser = ({ msg }: OutputLine) => /superuser/.test(String(msg))

async function readyAndEnded(env: Record<string, string>): Promise<TestProcess> {
  const web = startProcess('src/api/main.ts', [], { ...env, PORT: '0', SOCKET_ENABLED: 'false' })
  await web.waitForLine(({ msg }) => msg === 'ready')
  await web.kill('SIGTERM')
  return web
}

/** What a process that fails to start tells people: everything but its log lines. */
async function refusal(script: string, args: readonly string[], env: Record<string, string>): Promise<string> {
  const failing = startProcess(script, args, env)
  expect(await failing.exited).toEqual({ code: 1, signal: null })
  const all = failing.lines.map(({ text }) => text)
  expect(all.join('\n')).not.toMatch(/hidden|^ +at /m)
  expect(all.filter((text) => /"level":"(error|fatal)"/.test(text))).toEqual([])
  return all.filter((text) => !text.startsWith('{')).join('\n')
}
