import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import pino from 'pino'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { openLogger } from '../../src/adapters/logger.ts'
import { sessionOptions } from '../../src/db/poolers/line.ts'
import { openDatabase, openPool, poolShares, tlsOptions, workerShares } from '../../src/db/pools.ts'
import { sql } from '../../src/db/sql.ts'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { startApi } from '../support/api.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

const silent = pino({ level: 'silent' })
const pools: { end(): Promise<void> }[] = []
afterAll(() => Promise.all(pools.map((pool) => pool.end())))

function pool(url: string, env: Record<string, string>, max = 2) {
  const opened = openPool({ config: testConfig(url, env), log: silent, max, readOnly: true, name: 'test' })
  pools.push(opened)
  return opened
}

describe('the database variables', () => {
  it('DATABASE_POOL_MAX is the sum of all pools of a process', () => {
    for (const max of [5, 8, 20, 100]) {
      for (const realtime of [false, true]) {
        const { feed, ...others } = poolShares(max, realtime)
        expect(Object.values(others).reduce((a, b) => a + b, feed)).toBeLessThanOrEqual(max)
        expect(Math.min(...Object.values(others), realtime ? feed : 1)).toBeGreaterThanOrEqual(1)
        // Transactions may wait for scripts of workflows: no more than a quarter of the pool ever does.
        expect(others.write).toBeLessThanOrEqual(Math.max(1, max / 4))
      }
      const { feed, ...others } = workerShares(max, 'workflows')
      expect(Object.values(others).reduce((a, b) => a + b, feed)).toBeLessThanOrEqual(max)
      expect(Math.min(...Object.values(others))).toBeGreaterThanOrEqual(1)
    }
  })

  it('DATABASE_POOL_ACQUIRE bounds the wait for a connection, as a 503', async () => {
    const { url } = await createDatabase()
    const small = pool(url, { DATABASE_POOL_ACQUIRE: '500' }, 1)
    const client = await small.connect()
    await expect(
      openDatabase(small, { log: silent, logSql: false, onLoss: 'repeat' }).one(sql`select 1 as x`),
    ).rejects.toMatchObject({
      status: 503,
    })
    client.release()
    expect(await openDatabase(small, { log: silent, logSql: false, onLoss: 'repeat' }).one(sql`select 1 as x`)).toEqual(
      { x: 1 },
    )
  })

  it('DATABASE_POOL_IDLE closes idle connections', async () => {
    const { url } = await createDatabase()
    const idle = pool(url, { DATABASE_POOL_IDLE: '20' })
    await idle.query('select 1')
    await waitFor(() => idle.totalCount === 0)
  })

  it('DATABASE_POOL_EVICT is the base of a connection’s life', async () => {
    const { url } = await createDatabase()
    const short = pool(url, { DATABASE_POOL_EVICT: '1' }, 1)
    const pid = async () => (await short.query('select pg_backend_pid() as pid')).rows[0].pid
    const first = await pid()
    await waitFor(async () => (await pid()) !== first)
  })

  it('TRANSACTION_TIMEOUT_MS ends statements and idle transactions', async () => {
    const api = await startApi()
    // Without a sign-in, which would have to be that quick.
    const config = testConfig(api.database.url, { TRANSACTION_TIMEOUT_MS: '200' })
    const runtime = await openRuntime({ config, log: silent, name: 'hurried', worker: false })
    onTestFinished(() => runtime.close())
    const slow = commit(runtime, systemActor, async (tx) => {
      await tx.any(sql`insert into "svc_Tenant" (name) values ('rolled back')`)
      await tx.any(sql`select pg_sleep(5)`)
      return { result: undefined }
    })
    await expect(slow).rejects.toThrow()
    const stalled = commit(runtime, systemActor, async (tx) => {
      await tx.any(sql`insert into "svc_Tenant" (name) values ('rolled back')`)
      await waitFor(
        async () =>
          (
            await api.sql(
              `select from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`,
            )
          ).length === 0,
      )
      return { result: undefined }
    })
    await expect(stalled).rejects.toThrow()
    expect(await api.sql('select name from "svc_Tenant"')).toEqual([])
  })

  it('DATABASE_LOGGING prints statements, never their values', async () => {
    const { url } = await createDatabase()
    const lines: string[] = []
    const log = pino(
      { level: 'info' },
      new Writable({
        write: (chunk, _encoding, done) => {
          lines.push(String(chunk))
          done()
        },
      }),
    )
    const logged = pool(url, { DATABASE_LOGGING: 'true' })
    await openDatabase(logged, {
      log,
      logSql: testConfig(url, { DATABASE_LOGGING: 'true' }).database.logging,
      onLoss: 'fail',
    }).any(sql`select ${'a canary'} as x`)
    expect(lines.join()).toContain('select $1 as x')
    expect(lines.join()).not.toContain('canary')
  })

  it('DATABASE_SSL_* decide over TLS', () => {
    const dir = mkdtempSync(join(tmpdir(), 'daybook-tls-'))
    const certificate = join(dir, 'ca.pem')
    execFileSync(
      'openssl',
      [
        'req',
        '-x509',
        '-newkey',
        'rsa:2048',
        '-nodes',
        '-keyout',
        join(dir, 'key.pem'),
        '-out',
        certificate,
        '-subj',
        '/CN=test',
        '-days',
        '1',
      ],
      { stdio: 'ignore' },
    )
    const url = 'postgres://u:p@localhost/db'
    expect(tlsOptions(testConfig(url))).toBeUndefined()
    expect(tlsOptions(testConfig(`${url}?sslmode=require`))).toEqual({ rejectUnauthorized: false })
    expect(
      tlsOptions(testConfig(url, { DATABASE_SSL_CERTIFICATE: certificate, DATABASE_SSL_REJECT_UNAUTHORIZED: 'true' })),
    ).toEqual({
      ca: readFileSync(certificate, 'utf8'),
      rejectUnauthorized: true,
    })
  })

  it('with TLS wanted, a server without it is refused', async () => {
    const plain = createServer((socket) => socket.once('data', () => socket.end('N'))).listen(0, '127.0.0.1')
    await once(plain, 'listening')
    const { port } = plain.address() as { port: number }
    await expect(pool(`postgres://u:p@127.0.0.1:${port}/db?sslmode=require`, {}).query('select 1')).rejects.toThrow(
      /SSL/,
    )
    plain.close()
  })

  it('every session is in UTC, readers cannot write', async () => {
    expect(sessionOptions(5, true)).toContain('default_transaction_read_only=on')
    const api = await startApi()
    await expect(api.runtime.db.any(sql`insert into "svc_Tenant" (name) values ('x')`)).rejects.toMatchObject({
      code: '25006',
    })
    expect(await api.runtime.db.one(sql`select current_setting('timezone') as zone`)).toEqual({ zone: 'UTC' })
  })
})

describe('BODY_SIZE_LIMIT', () => {
  it('answers 413 in the body format of the path', async () => {
    const api = await startApi({ BODY_SIZE_LIMIT: '1kb' })
    const big = { name: 'x'.repeat(2000) }
    expect(await api.admin('POST', '/items/svc_Tenant', big)).toMatchObject({
      status: 413,
      body: { error: { message: 'Request body is too large' } },
    })
    const auth = await startApi({}, api.database)
    expect(
      await auth.anonymous('POST', '/auth/login', { email: 'a@example.com', password: 'x'.repeat(1_000_000) }),
    ).toMatchObject({
      status: 413,
      body: { message: 'Request body is too large' },
    })
  })
})

describe('CORS', () => {
  const origins = async (env: Record<string, string>, origin: string) => {
    const api = await startApi(env)
    const { headers } = await api.anonymous('OPTIONS', '/items/x', undefined, {
      origin,
      'access-control-request-method': 'GET',
    })
    return headers
  }
  it.each([
    ['https://app.example.com', 'https://app.example.com'],
    ['https://app.example.com:8443', 'https://app.example.com:8443'],
    ['http://app.example.com', undefined],
    ['https://app.example.com.evil.test', undefined],
    ['https://evil.test/?app.example.com', undefined],
    ['null', undefined],
  ])('%s gets %s', async (origin, allowed) => {
    const headers = await origins({ AUTH_CORS_ALLOWED_ORIGINS: 'https://app.example.com' }, origin)
    expect(headers['access-control-allow-origin']).toBe(allowed)
    if (allowed !== undefined)
      expect(headers).toMatchObject({
        'access-control-allow-credentials': 'true',
        vary: expect.stringMatching(/origin/i),
      })
  })

  it('AUTH_CORS_ALLOW_ANY_PORT and AUTH_CORS_CREDENTIALS can be switched off; AUTH_APP_URL counts', async () => {
    const env = {
      AUTH_APP_URL: 'https://app.example.com',
      AUTH_CORS_ALLOW_ANY_PORT: 'false',
      AUTH_CORS_CREDENTIALS: 'false',
    }
    const other = await origins(env, 'https://app.example.com:8443')
    expect(other['access-control-allow-origin']).toBeUndefined()
    const same = await origins(env, 'https://app.example.com')
    expect(same['access-control-allow-origin']).toBe('https://app.example.com')
    expect(same['access-control-allow-credentials']).toBeUndefined()
  })
})

describe('errors and logs', () => {
  const breakIt = async (api: Awaited<ReturnType<typeof startApi>>) => {
    await api.sql('alter table "svc_Tenant" rename column name to title')
    return api.admin('GET', '/items/svc_Tenant')
  }

  it('EXPOSE_ERROR_DETAILS=false answers a reference that is in the log, true the raw text', async () => {
    const hidden = await breakIt(await startApi({ EXPOSE_ERROR_DETAILS: 'false' }))
    expect(hidden.status).toBe(503)
    expect(hidden.text).not.toMatch(/column|title|select/i)
  })

  it('request ids are accepted when they are safe, made otherwise, and echoed', async () => {
    const api = await startApi()
    expect(
      (await api.anonymous('GET', '/health', undefined, { 'x-request-id': 'abc-123' })).headers['x-request-id'],
    ).toBe('abc-123')
    expect(
      (await api.anonymous('GET', '/health', undefined, { 'x-request-id': 'a b{}' })).headers['x-request-id'],
    ).toMatch(/^[0-9a-f-]{36}$/)
    const before = await api.position()
    await api.admin('POST', '/items/svc_Tenant', { name: 'T' }, { 'x-request-id': 'trace-me' })
    const [row] = await api.sql('select "requestId" from "svc_AuditLog" where position > $1', [String(before)])
    expect(row.requestId).toBe('trace-me')
  })

  it('LOG_LEVEL and LOG_WARN_STACK take effect; secrets are replaced', () => {
    const printed = (script: string) =>
      execFileSync(
        process.execPath,
        [
          '--input-type=module',
          '-e',
          `import { openLogger } from ${JSON.stringify(join(process.cwd(), 'src/adapters/logger.ts'))}; ${script}`,
        ],
        { encoding: 'utf8' },
      )
    expect(openLogger({ level: 'warn', name: 'x' }).isLevelEnabled('info')).toBe(false)
    const warn = (warnStack: boolean) =>
      printed(`openLogger({ level: 'info', name: 'x', warnStack: ${warnStack} }).warn({ err: new Error('oops') }, 'w')`)
    expect(warn(false)).not.toContain('"stack"')
    expect(warn(true)).toContain('"stack"')
    const secret = printed(
      `openLogger({ level: 'info', name: 'x' }).info({ body: { password: 'canary', nested: { token: 'canary' } }, authorization: 'canary' }, 'i')`,
    )
    expect(secret).not.toContain('canary')
    expect(
      printed(`openLogger({ level: 'info', name: 'x' }).info({ path: '/\\n{"level":50}\\u001b[31m' }, 'i')`)
        .trim()
        .split('\n'),
    ).toHaveLength(1)
  })
})
