import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parseConfig } from '../../src/config/config.ts'
import {
  checkMcp,
  judgeOAuth,
  judgeScoping,
  judgeSecretKey,
  readConfiguration,
  withKeptKey,
} from '../../src/doctor/configuration.ts'
import {
  connectionsOfEach,
  judgeCapacity,
  judgeReplica,
  judgeReplication,
  judgeServer,
  judgeSkew,
  judgeSuperuser,
  type ServerFacts,
} from '../../src/doctor/database.ts'
import { type Finding, problem } from '../../src/doctor/finding.ts'
import { judgeSealed } from '../../src/doctor/sealed.ts'
import { secretsOf, withoutSecrets } from '../../src/doctor/secrets.ts'
import { checkService, judgeEviction, unwritable } from '../../src/doctor/services.ts'
import type { Storage } from '../../src/features/files/storage/storage.ts'

const env = { DATABASE_URL: 'postgres://u@db.example/d', SECRET_KEY: 'Kq8#vZ1!tR5@yW9$eU3%iO7^pA2&sD6*' }
const configOf = (more: Record<string, string>) => parseConfig({ ...env, ...more })
const brief = (findings: readonly Finding[]) => findings.map(({ status, says }) => `${status}: ${says}`)

const healthy: ServerFacts = {
  version: 180_001,
  versionText: '18.1',
  role: 'app',
  database: 'd',
  superuser: false,
  recovering: false,
  encoding: 'UTF8',
  isolation: 'read committed',
  replicationRole: 'origin',
  fsync: 'on',
  fullPageWrites: 'on',
  synchronousCommit: 'on',
  autovacuum: 'on',
  collationChanged: false,
  walLevel: 'logical',
  mayReplicate: true,
  freeSlots: 10,
  freeSenders: 10,
  connectionsAtMost: 97,
  connectionsOpen: 5,
}

describe('judgeServer', () => {
  it.each<[Partial<ServerFacts>, string]>([
    [{}, 'ok: PostgreSQL 18.1, its settings are fine'],
    [{ version: 140_011, versionText: '14.11' }, 'problem: PostgreSQL 14.11 is too old'],
    [{ recovering: true }, 'problem: DATABASE_URL leads to a standby, which takes no writes'],
    [{ synchronousCommit: 'off' }, 'warning: synchronous_commit is off: a crash loses what was answered with 2xx'],
    [{ autovacuum: 'off' }, 'warning: autovacuum is off: tables will only grow'],
    [{ encoding: 'LATIN1' }, "problem: the database's encoding is LATIN1"],
    [{ isolation: 'serializable' }, 'problem: default_transaction_isolation is serializable'],
    [{ replicationRole: 'replica' }, 'problem: session_replication_role is replica: nothing is logged'],
    [{ collationChanged: true }, expect.stringMatching(/^warning: the operating system sorts text differently/)],
  ])('%j', (change, says) => {
    const findings = judgeServer({ ...healthy, ...change })
    expect(brief(findings)).toEqual([says])
    expect(findings.every(({ status, remedy }) => status === 'ok' || remedy)).toBe(true)
  })
})

it('warns about a superuser', () => {
  expect(brief([judgeSuperuser(healthy)])).toEqual(['ok: app is none'])
  const warned = judgeSuperuser({ ...healthy, superuser: true })
  expect(warned).toMatchObject({
    status: 'warning',
    says: expect.stringContaining('app is one'),
    remedy: expect.any(String),
  })
})

describe('judgeReplication', () => {
  it.each<[Partial<ServerFacts>, boolean, RegExp]>([
    [{}, true, /^ok: wal_level is logical/],
    [{ walLevel: 'replica' }, false, /^ok: not used/],
    [{ walLevel: 'replica' }, true, /^warning: wal_level is replica: realtime polls/],
    [{ mayReplicate: false }, true, /^warning: the role app may not replicate/],
    [{ freeSlots: 0 }, true, /^warning: no replication slot or WAL sender is free/],
    [{ freeSenders: 0 }, true, /^warning: no replication slot or WAL sender is free/],
  ])('%j', (change, wanted, says) => {
    expect(brief([judgeReplication({ ...healthy, ...change }, wanted)])[0]).toMatch(says)
  })
})

describe('judgeCapacity', () => {
  it('adds up what one of each process may open', () => {
    // 20 and one to listen; five and one to listen of each worker that has work; one past the pools.
    // One more of the worker of workflows, for transactions.
    expect(connectionsOfEach(configOf({}))).toBe(20 + 1 + 4 * (5 + 1) + 1 + 1)
    expect(connectionsOfEach(configOf({ TASK_SERVICE_ENABLED: 'true' }))).toBe(20 + 1 + 5 * (5 + 1) + 1 + 1)
  })

  it.each<[Record<string, string>, Partial<ServerFacts>, string]>([
    [{}, {}, 'ok'],
    [{ DATABASE_POOL_MAX: '90' }, {}, 'warning'],
    [{}, { connectionsOpen: 90 }, 'warning'],
    [{}, { connectionsAtMost: 30 }, 'warning'],
  ])('%j %j', (more, change, status) => {
    expect(judgeCapacity(configOf(more), { ...healthy, ...change }).status).toBe(status)
  })
})

it.each([
  [12, 'ok: within 12 ms'],
  [-2500, "warning: 2.5 s ahead of the database's"],
  [45_000, "problem: 45.0 s behind the database's"],
])('a clock that is %i ms off', (skew, says) => {
  expect(brief([judgeSkew(skew)])[0]).toContain(says)
})

it.each([
  [{ recovering: true, lagSeconds: 2 }, 'ok'],
  [{ recovering: true, lagSeconds: 60 }, 'warning'],
  [{ recovering: false, lagSeconds: 0 }, 'warning'],
])('a replica with %j', (facts, status) => {
  expect(judgeReplica('replica.example/d', facts).status).toBe(status)
})

describe('a directory that cannot be written to', () => {
  const failure = (code: string) => Object.assign(new Error(`${code}: no`), { code })
  const storage = (code: string) =>
    ({ name: 'files', driver: 'LOCAL', write: () => Promise.reject(failure(code)) }) as unknown as Storage

  it.each([
    ['ENOSPC', /^make room: the disk is full/],
    ['EDQUOT', /^make room: the disk is full/],
    ['EACCES', /^(let this user|make the directory)/],
  ])('%s has its own remedy', async (code, remedy) => {
    for (const found of [await checkService(storage(code)), unwritable('ASSET_TEMP_DIR', '/x', failure(code))]) {
      expect(found).toMatchObject({ status: 'problem', says: expect.stringContaining(code) })
      expect(found.remedy).toMatch(remedy)
    }
  })
})

describe('judgeEviction', () => {
  const [counter, cache] = [{ keeps: true }, { keeps: false }]
  it.each([
    ['noeviction', true, [counter], undefined],
    ['allkeys-lru', false, [counter], undefined],
    ['allkeys-lru', true, [counter], 'config set maxmemory-policy noeviction'],
    [
      'volatile-ttl',
      true,
      [counter, cache],
      'use two Redis: noeviction for counters and locks, allkeys-lru for caches',
    ],
    ['noeviction', true, [cache], 'config set maxmemory-policy allkeys-lru'],
    ['allkeys-lru', true, [cache], undefined],
  ])('%s, limited: %s', (policy, limited, uses, remedy) => {
    expect(judgeEviction('r', { policy, limited }, uses)?.remedy).toBe(remedy)
  })
})

describe('judgeSealed', () => {
  const lost = { kind: 'webhook', by: 'neither' } as const
  it('names a few of many', () => {
    const many = ['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => ({ ...lost, name }))
    expect(brief(judgeSealed(many))).toEqual(['problem: no key opens webhook a, b, c, d, e and 2 more'])
  })

  it('leaves to others what they say, and what nobody misses', () => {
    const others = ['SMTP password', 'former secret of webhook'] as const
    expect(judgeSealed(others.map((kind) => ({ ...lost, kind, name: 'x' })))).toMatchObject([{ status: 'ok' }])
  })
})

it('takes the key that npm start keeps beside its data where none is set', () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'daybook-doctor-'))
  onTestFinished(() => rmSync(dataDir, { recursive: true }))
  const keyOf = (more: Record<string, string>) =>
    withKeptKey(parseConfig({ DAYBOOK_DATA_DIR: dataDir, ...more }, { allowMissingSecret: true })).auth.secretKey
  expect(keyOf({})).toBe('')
  writeFileSync(join(dataDir, 'secret-key'), 'kept\n')
  expect(keyOf({})).toBe('kept')
  expect(keyOf({ SECRET_KEY: 'set' })).toBe('set')
})

describe('judgeSecretKey', () => {
  it.each([
    ['short', 'warning'],
    ['abababababababababababababababababab', 'warning'],
    ['please-change-me-0123456789-abcdefgh', 'warning'],
    [env.SECRET_KEY, 'ok'],
  ])('%s', (key, status) => {
    const finding = judgeSecretKey(configOf({ SECRET_KEY: key }))
    expect(finding.status).toBe(status)
    expect(JSON.stringify(finding)).not.toContain(key)
  })

  it('is stricter in production', () => {
    const config = configOf({ NODE_ENV: 'production', SECRET_KEY: 'please-change-me-0123456789-abcdefgh' })
    expect(judgeSecretKey(config).status).toBe('problem')
  })
})

it('does not let a new SECRET_KEY replace the one that npm start keeps', () => {
  const dataDir = mkdtempSync(join(tmpdir(), 'daybook-doctor-'))
  onTestFinished(() => rmSync(dataDir, { recursive: true }))
  const judged = () => judgeSecretKey(parseConfig({ DAYBOOK_DATA_DIR: dataDir }, { allowMissingSecret: true }))
  expect(judged()).toMatchObject({ status: 'warning', remedy: expect.stringContaining('32 random bytes') })
  writeFileSync(join(dataDir, 'secret-key'), `${env.SECRET_KEY}\n`)
  const finding = judged()
  expect(finding).toMatchObject({
    status: 'warning',
    remedy: expect.stringContaining(`put the key that npm start keeps in ${join(dataDir, 'secret-key')} into .env`),
  })
  expect(JSON.stringify(finding)).not.toMatch(/random bytes|openssl/)
  expect(JSON.stringify(finding)).not.toContain(env.SECRET_KEY)
})

describe('judgeScoping', () => {
  it.each([
    [{}, 'ok'],
    [{ SOCKET_ENABLED: 'true', REALTIME_ROW_LEVEL_SCOPING: 'true' }, 'ok'],
    [{ SOCKET_ENABLED: 'true' }, 'warning'],
  ])('%o: %s', (more, status) => {
    expect(judgeScoping(configOf(more as Record<string, string>)).status).toBe(status)
  })
})

describe('judgeOAuth', () => {
  it.each([
    [{}, 'ok'],
    [{ HOST: '0.0.0.0' }, 'warning'],
    [{ HOST: '0.0.0.0', OAUTH_SERVER_ENABLED: 'false' }, 'ok'],
    [{ NODE_ENV: 'production', BASE_URL: 'http://api.example.com' }, 'warning'],
    [{ NODE_ENV: 'production', BASE_URL: 'https://api.example.com' }, 'ok'],
  ])('%j', (more, status) => {
    expect(judgeOAuth(configOf(more as Record<string, string>)).status).toBe(status)
  })
})

describe('readConfiguration', () => {
  it('says everything that is wrong, and goes on with the rest', () => {
    const { config, findings } = readConfiguration({
      ...env,
      NODE_ENV: 'production',
      SECRET_KEY: '',
      PORT: 'many',
      DATABASE_POOL_MAX: '-1',
    })
    expect(findings.map(({ status, says }) => [status, says.split(' ')[0]])).toEqual([
      ['problem', 'PORT'],
      ['problem', 'DATABASE_POOL_MAX'],
      ['problem', 'SECRET_KEY'],
    ])
    expect(config?.database).toMatchObject({ url: env.DATABASE_URL, poolMax: 20 })
  })

  it('has nothing to go on with without a database', () => {
    const { config, findings } = readConfiguration({ SECRET_KEY: env.SECRET_KEY, DAYBOOK_DATA_DIR: '/nowhere' })
    expect(config).toBeUndefined()
    expect(brief(findings)).toEqual([expect.stringMatching(/^problem: DATABASE_URL is missing/)])
  })
})

describe('checkMcp', () => {
  it('shows a line to paste for each client, once the endpoint is on', () => {
    expect(checkMcp(configOf({}))).toEqual([])
    const found = checkMcp(configOf({ MCP_ENABLED: 'true', MCP_PATH: '/agents', BASE_URL: 'https://api.example.com/' }))
    const byKey = ['Claude', 'VS Code', 'Cursor'].map((client) => [`mcp for ${client} by key`, 'ok'])
    expect(found.map(({ check, status }) => [check, status])).toEqual([
      ...['Claude', 'VS Code', 'Cursor', 'ChatGPT'].map((client) => [`mcp for ${client} by OAuth`, 'ok']),
      ...byKey,
    ])
    expect(found.filter(({ says }) => says.includes('<API key>')).map(({ check }) => check)).toEqual(
      byKey.map(([check]) => check),
    )
    for (const { says } of found) expect(says).toContain('https://api.example.com/agents')
    const [first, second] = checkMcp(configOf({ MCP_ENABLED: 'true', PORT: '8056' }))
    expect([first!.status, second!.says]).toEqual(['warning', expect.stringContaining('http://127.0.0.1:8056/mcp')])
    const unsafe = { MCP_ENABLED: 'true', HOST: '0.0.0.0' }
    const withoutOAuth = (env: Record<string, string>) => checkMcp(configOf(env)).map(({ check }) => check)
    expect(withoutOAuth(unsafe)).toEqual(['mcp', ...byKey.map(([check]) => check), 'mcp by OAuth'])
    expect(withoutOAuth({ ...unsafe, OAUTH_SERVER_ENABLED: 'false' })).toEqual([
      'mcp',
      ...byKey.map(([check]) => check),
    ])
  })
})

describe('secrets in findings', () => {
  const shown = (says: string, env: Record<string, string>) =>
    withoutSecrets(problem('x', says, says), secretsOf(env)).says
  const withPassword = (password: string) => ({ DATABASE_URL: `postgres://app:${password}@db.example:5432/shop` })

  it.each<[string, Record<string, string>, string]>([
    ['refused pass9word', withPassword('pass9word'), 'refused ********'],
    ['refused xpass9wordx', withPassword('pass9word'), 'refused x********x'],
    ['refused p@ss and p%40ss', withPassword('p%40ss'), 'refused ******** and ********'],
    ['refused "sesame", sesame_', withPassword('sesame'), 'refused "********", ********_'],
    ['refused b', { MAIN_SMTP_PASS: 'b' }, 'refused ********'],
    ['refused abcdefgh-ijk', { MAIN_SMTP_PASS: 'abcdefgh', OTHER_SMTP_PASS: 'abcdefgh-ijk' }, 'refused ********'],
    ['refused postgres', { ...withPassword('x'), MAIN_SMTP_PASS: 'postgres' }, 'refused ********'],
  ])('%s', (says, env, expected) => {
    expect(shown(says, env)).toBe(expected)
  })

  it('are not told by a mask within other words, or over a name of the same address', () => {
    expect(shown('db.example/shop cannot be reached', withPassword('b'))).toBe('db.example/shop cannot be reached')
    const says = 'db.example/postgres cannot be reached'
    for (const address of ['postgres:postgres@db.example/p', 'app:postgres@db.example:5432/postgres?a=b'])
      expect(shown(says, { DATABASE_URL: `postgres://${address}` })).toBe(says)
  })
})
