import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { SMTPServer } from 'smtp-server'
import { afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { checkSender } from '../../src/adapters/mailer.ts'
import { seal } from '../../src/adapters/sealing.ts'
import { pingUpstash } from '../../src/adapters/upstash.ts'
import { examine } from '../../src/doctor/doctor.ts'
import type { Finding } from '../../src/doctor/finding.ts'
import { asSuperuser } from '../support/log.ts'
import { startPooler } from '../support/pooler.ts'
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { testConfig, testEnv } from '../support/prepare.ts'
import { describeWithRedis, startRedis } from '../support/redis.ts'
import { withClient } from '../support/server.ts'
import { startSmtp } from '../support/smtp.ts'
import { startUpstash } from '../support/upstash.ts'

let database: TestDatabase

beforeAll(async () => {
  database = await createDatabase()
})

const look = (more: Record<string, string> = {}, now?: () => number) =>
  examine({ ...testEnv(database.url), ...more }, now)
const of = (findings: readonly Finding[], check: string) =>
  findings.filter((finding) => finding.check === check).map(({ status, says }) => `${status}: ${says}`)
const query = (text: string) => withClient(database.url, (client) => client.query(text))
const asAdministrator = (text: string) => withClient(asSuperuser(database.url), (client) => client.query(text))

it('finds a prepared installation in order, and changes nothing in it', async () => {
  const position = async () => (await query('select max(position) as p from "svc_AuditLog"')).rows[0].p
  const before = await position()
  const findings = await look()
  for (const check of [
    'database',
    'notifications',
    'session settings',
    'clock',
    'setup',
    'role',
    'superuser',
    'definitions',
    'log partitions',
    'queues',
  ])
    expect(of(findings, check), check).toEqual([expect.stringMatching(/^ok: /)])
  expect(findings.filter(({ status }) => status === 'problem')).toEqual([])
  expect(findings.every(({ status, remedy }) => status === 'ok' || remedy)).toBe(true)
  expect(await position()).toBe(before)
})

it('names a migration that has failed', async () => {
  await query(`insert into "svc_Migration" (version, name, type, status, "errorMessage") values
    ('20240102_b', 'b', 'upgrade', 'failed', 'later'), ('20240101_a', 'a', 'upgrade', 'failed', E'no\ngood')`)
  expect(of(await look(), 'migrations')).toEqual(['problem: 20240101_a has failed, and later ones wait: no good'])
  await query(`delete from "svc_Migration" where status = 'failed'`)
  expect(of(await look(), 'migrations')).toEqual([])
})

it('names SQL of definitions that would be refused today, and definitions that use functions made by users', async () => {
  const { url } = await createDatabase()
  await withClient(url, async (client) => {
    await client.query(
      `create table aged (id uuid primary key, a text default current_setting('is_superuser'), b text)`,
    )
    await client.query(`create function public.upper(varchar) returns text language sql immutable as 'select $1::text'`)
    await client.query(`alter table aged add constraint loud check (upper(b::varchar) <> '')`)
    const schema = {
      timestamps: false,
      fields: {
        id: { type: 'UUID', primaryKey: true },
        a: { type: 'Text', defaultValue: { type: 'SQL', value: `current_setting('is_superuser')` } },
        b: { type: 'Text' },
      },
      constraints: [{ type: 'check', name: 'loud', expression: `upper(b::varchar) <> ''` }],
    }
    await client.query('insert into "svc_SchemaDefinition" ("collectionName", schema) values ($1, $2)', [
      'aged',
      schema,
    ])
  })
  expect(of(await look({ DATABASE_URL: url }), 'definitions')).toEqual([
    expect.stringMatching(/^warning: aged: field a calls current_setting\(\), which is not on the list/),
    expect.stringMatching(/^warning: aged: constraint loud uses function upper\(character varying\)/),
  ])
})

it('warns where the program signs in as a superuser', async () => {
  const findings = await look({ DATABASE_URL: asSuperuser(database.url) })
  expect(of(findings, 'superuser')).toEqual([expect.stringMatching(/^warning: postgres is one/)])
})

describe('the database', () => {
  it('that is not there is a problem, and the rest is looked at all the same', async () => {
    const findings = await look({ DATABASE_URL: 'postgres://u:pass9word@127.0.0.1:1/d' })
    expect(of(findings, 'database')).toEqual([
      expect.stringMatching(/^problem: 127.0.0.1:1\/d cannot be reached: .*ECONNREFUSED/),
    ])
    expect(of(findings, 'storage')).toHaveLength(3)
    expect(JSON.stringify(findings)).not.toContain('pass9word')
  })

  it('that is embedded and stopped says how to start it', async () => {
    const dataDir = await mkdtemp(join(tmpdir(), 'daybook-doctor-'))
    onTestFinished(() => rm(dataDir, { recursive: true }))
    await writeFile(join(dataDir, 'database-url'), 'postgres://daybook:pass9word@127.0.0.1:1/daybook\n')
    const findings = await look({ DATABASE_URL: '', DAYBOOK_DATA_DIR: dataDir })
    expect(findings.find(({ check }) => check === 'database')).toMatchObject({
      status: 'problem',
      says: expect.stringContaining('ECONNREFUSED'),
      remedy: 'start Daybook, which starts its embedded PostgreSQL: npm start',
    })
    const given = await look({ DATABASE_URL: 'postgres://u@127.0.0.1:1/d', DAYBOOK_DATA_DIR: dataDir })
    expect(given.find(({ check }) => check === 'database')?.remedy).toContain('correct host and port in DATABASE_URL')
  })

  it('to which a certificate is missing names the variable and the file', async () => {
    const findings = await look({ DATABASE_SSL_CERTIFICATE: '/nope' })
    expect(of(findings, 'database')).toEqual([
      expect.stringMatching(/^problem: DATABASE_SSL_CERTIFICATE: \/nope cannot be read: ENOENT/),
    ])
  })

  it('that does not exist says how to make one', async () => {
    const url = new URL(database.url)
    url.pathname = '/there_is_none'
    const finding = (await look({ DATABASE_URL: url.href })).find(({ check }) => check === 'database')
    expect(finding).toMatchObject({
      status: 'problem',
      remedy: 'create the database, or correct its name in DATABASE_URL',
    })
  })

  it('that is empty has not been set up', async () => {
    const { url } = await createEmptyDatabase()
    const findings = await look({ DATABASE_URL: url })
    expect(of(findings, 'setup')).toEqual(['problem: the database is empty or another program’s'])
    expect(of(findings, 'notifications')).toHaveLength(1)
  })

  it('behind a transaction pooler needs an address past it', async () => {
    const pooled = await startPooler(database.url)
    const [without, past] = await Promise.all([
      look({ DATABASE_URL: pooled }),
      look({ DATABASE_URL: pooled, DATABASE_DIRECT_URL: database.url }),
    ])
    expect(without.find(({ check }) => check === 'notifications')).toMatchObject({
      status: 'problem',
      remedy: 'set DATABASE_DIRECT_URL to the address of the server itself',
    })
    expect(of(past, 'notifications')).toEqual(['ok: NOTIFY reaches LISTEN'])
  })

  it('of which DATABASE_DIRECT_URL names another one is noticed', async () => {
    const { url } = await createEmptyDatabase()
    const findings = await look({ DATABASE_DIRECT_URL: url })
    expect(of(findings, 'notifications')).toEqual([
      'problem: NOTIFY over DATABASE_URL does not reach LISTEN over DATABASE_DIRECT_URL',
    ])
  })

  it('whose role owns nothing and may not replicate', async () => {
    const role = `daybook_test_doctor_${randomBytes(4).toString('hex')}`
    await asAdministrator(`create role ${role} login password 'sesame'`)
    try {
      const url = new URL(database.url)
      url.username = role
      url.password = 'sesame'
      const findings = await look({ DATABASE_URL: url.href, SOCKET_ENABLED: 'true' })
      expect(of(findings, 'role')).toEqual([
        expect.stringMatching(/^problem: schema pgboss, .*\d+ tables, .* belong to/),
      ])
      expect(of(findings, 'realtime by WAL')).toEqual([
        `warning: the role ${role} may not replicate: realtime polls the log instead`,
      ])
      expect(of(findings, 'backlog')).toEqual([expect.stringContaining('could not be checked: permission denied')])
    } finally {
      await asAdministrator(`drop role ${role}`)
    }
  })

  it('with a clock of its own', async () => {
    const findings = await look({}, () => Date.now() - 60_000)
    expect(of(findings, 'clock')).toEqual([expect.stringMatching(/^problem: (59|60)\.\d s behind/)])
  })

  it('is no replica of itself, and an absent one is no replica either', async () => {
    const findings = await look({
      DATABASE_READ_REPLICA_ENABLED: 'true',
      DATABASE_READ_REPLICA_URLS: `${database.url},postgres://127.0.0.1:1/d`,
    })
    expect(of(findings, 'read replica')).toEqual([
      expect.stringMatching(/^warning: .* is no standby/),
      expect.stringMatching(/^problem: 127.0.0.1:1\/d cannot be reached/),
    ])
  })
})

describe('the installation', () => {
  it('with work that no worker does', async () => {
    await query(`insert into pgboss.job (name, retry_limit, expire_seconds, keep_until, policy, start_after) values
      ('mail', 0, 60, now() + interval '1 day', 'standard', now() - interval '1 hour'),
      ('mail-dead', 0, 60, now() + interval '1 day', 'standard', now())`)
    await query(
      `insert into "svc_Tasks" (type, task_status, scheduled_time) values ('t', 'Not started', now() - interval '1 hour')`,
    )
    await query(
      `insert into svc_log.consumer (name, snapshot, state, reason) values ('strict', '3:3:', 'halted', 'why')`,
    )
    await query(`insert into svc_log.set_aside values ('strict', 1, 'why')`)
    const findings = await look()
    expect(of(findings, 'consumers')).toEqual([
      'problem: strict has halted: why',
      'warning: strict has set 1 events aside',
    ])
    await query('delete from svc_log.consumer')
    expect(of(await look(), 'consumers')).toEqual(['ok: none'])
    expect(of(findings, 'backlog')).toEqual(['warning: 1 jobs of mail are overdue, the oldest by 60 minutes'])
    expect(of(findings, 'dead letters')).toEqual(['warning: 1 in mail-dead'])
    expect(of(findings, 'tasks')).toEqual(['warning: 1 tasks are overdue'])
    expect(of(findings, 'workers')).toEqual(['warning: not running: mail, log-cleanup, webhooks, workflows'])
    await query('delete from pgboss.job; delete from "svc_Tasks"')
  })

  it('whose cleanup is behind, and that lacks partitions and queues', async () => {
    await query(
      `insert into "svc_AuditLog" (entity, action, "createdAt") values ('x', 'create', now() - interval '100 days')`,
    )
    const names = (
      await query(`select relname from pg_class where relname ~ '^svc_AuditLog_[0-9]{6}$' order by 1 desc limit 3`)
    ).rows
    for (const { relname } of names.slice(0, 3)) await query(`alter table "svc_AuditLog" detach partition "${relname}"`)
    await query(`delete from pgboss.queue where name = 'session-cleanup'`)
    const findings = await look({ AUDIT_LOG_CLEANUP_ENABLED: 'true' })
    expect(of(findings, 'log partitions')).toEqual(['warning: there is none for the next month'])
    expect(of(findings, 'log retention')).toEqual([
      expect.stringMatching(/^warning: .*100 days, but only 90 are wanted/),
    ])
    expect(of(findings, 'queues')).toEqual(['problem: missing: session-cleanup'])
  })
})

/** An SMTP server that refuses every login; its port. */
async function startRefusing(): Promise<number> {
  const refusing = new SMTPServer({
    authMethods: ['PLAIN', 'LOGIN'],
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    onAuth: (_auth, _session, done) => done(Object.assign(new Error('no'), { responseCode: 535 })),
  })
  onTestFinished(() => new Promise<void>((resolve) => refusing.close(resolve)))
  const server = refusing.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

describe('the mail senders', () => {
  const sender = (port: number) => ({
    MAIL_SENDERS_ENABLED: 'test',
    TEST_SMTP_HOST: '127.0.0.1',
    TEST_SMTP_PORT: String(port),
    TEST_SMTP_USER: 'somebody',
    TEST_SMTP_PASS: 'a secret of the mail',
    TEST_FROM_ADDRESS: 'noreply@daybook.example',
  })

  it('are tried without sending anything', async () => {
    const smtp = await startSmtp()
    expect(of(await look(smtp.env), 'mail')).toEqual([`ok: sender test at 127.0.0.1:${smtp.port} lets us in`])
    expect(smtp.received).toEqual([])
    await smtp.stop()
    expect(of(await look(smtp.env), 'mail')).toEqual([
      `problem: sender test at 127.0.0.1:${smtp.port}: The server could not be reached`,
    ])
  })

  it('must sign in; what they sign in with is not shown', async () => {
    const findings = await look(sender(await startRefusing()))
    expect(of(findings, 'mail')).toEqual([expect.stringContaining('The server refused the user name or password')])
    expect(JSON.stringify(findings)).not.toContain('a secret of the mail')
  })
})

describe('the SMTP of tenants', () => {
  const password = 'a secret of the tenant'
  const env = { SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' }
  /** A tenant with these settings; its id. */
  const tenantWith = async (name: string, port: number, more: Record<string, unknown> = {}) => {
    const settings = {
      smtp_enabled: true,
      smtp_host: '127.0.0.1',
      smtp_port: port,
      smtp_user: 'somebody',
      smtp_pass: seal(testConfig(database.url), { purpose: 'settings', owner: 'smtp_pass' }, password),
      smtp_from_address: 'post@tenant.example',
      ...more,
    }
    const columns = Object.keys(settings)
    const { rows } = await withClient(database.url, (client) =>
      client.query(
        `with t as (insert into "svc_Tenant" (name) values ($1) returning id)
         insert into "svc_Settings" ("tenant_Id", ${columns.join(', ')})
         select t.id, ${columns.map((_column, i) => `$${i + 2}`).join(', ')} from t returning "tenant_Id" as id`,
        [name, ...Object.values(settings)],
      ),
    )
    return rows[0].id as string
  }
  const ofTenants = async (more: Record<string, string> = env) => {
    const findings = await look(more)
    expect(JSON.stringify(findings)).not.toContain(password)
    return of(findings, 'mail').filter((line) => line.includes('tenant'))
  }
  afterEach(() => query(`delete from "svc_Settings" where "tenant_Id" is not null; delete from "svc_Tenant"`))

  it('is tried without sending anything, and named by the tenant where it does not work', async () => {
    const smtp = await startSmtp()
    const refusing = await startRefusing()
    for (const name of ['one', 'two']) await tenantWith(name, smtp.port)
    await tenantWith('switched off', 1, { smtp_enabled: false })
    await tenantWith('incomplete', 1, { smtp_from_address: null })
    const refused = await tenantWith('in \u001b[31mred\n letters', refusing)
    const broken = await tenantWith('with another key', smtp.port, { smtp_pass: 'sealed by nobody' })
    expect((await ofTenants()).sort()).toEqual([
      'ok: SMTP of 2 tenants lets us in',
      `warning: SMTP of tenant in [31mred letters (${refused}) at 127.0.0.1:${refusing}: The server refused the user name or password`,
      `warning: SMTP of tenant with another key (${broken}) at 127.0.0.1:${smtp.port}: no key opens its password`,
    ])
    expect(smtp.received).toEqual([])
  })

  it('is tried beside that of the installation, whose password may be lost as well', async () => {
    const smtp = await startSmtp()
    const [row] = (await query('select smtp_enabled, smtp_host from "svc_Settings" where "tenant_Id" is null')).rows
    expect(row).toEqual({ smtp_enabled: false, smtp_host: null })
    await query(`update "svc_Settings" set smtp_enabled = true, smtp_host = '127.0.0.1', smtp_port = ${smtp.port},
      smtp_user = 'u', smtp_pass = 'sealed by nobody', smtp_from_address = 'x@y.example' where "tenant_Id" is null`)
    onTestFinished(async () => {
      await query(`update "svc_Settings" set smtp_enabled = false, smtp_host = null, smtp_port = null, smtp_user = null,
        smtp_pass = null, smtp_from_address = null where "tenant_Id" is null`)
    })
    const findings = await look({ ...env, ...smtp.env })
    expect(of(findings, 'mail').toSorted()).toEqual([
      expect.stringMatching(/^ok: sender test at 127.0.0.1:\d+ lets us in$/),
      `problem: sender settings at 127.0.0.1:${smtp.port}: no key opens its password`,
    ])
    expect(findings.find(({ says }) => says.startsWith('sender settings'))!.remedy).toBe(
      'name the former key in SECRET_KEY_PREVIOUS, or set the SMTP password of the settings again',
    )
    expect(of(findings, 'sealed values')).toEqual(['ok: SECRET_KEY opens the secrets of webhooks and workflows'])
    expect(smtp.received).toEqual([])
  })

  it('is reached on the public internet alone', async () => {
    const smtp = await startSmtp()
    const id = await tenantWith('private', smtp.port)
    expect(await ofTenants({})).toEqual([
      `warning: SMTP of tenant private (${id}) at 127.0.0.1:${smtp.port}: The server must not be reached: it is not a mail port of the public internet`,
    ])
  })
})

it.each([
  ['says nothing', { secure: false, words: '' }],
  ['never comes to an end', { secure: false, words: '220-still there\r\n' }],
  ['never shakes hands', { secure: true, words: '' }],
])('a mail server that %s does not hold the check up', async (_what, { secure, words }) => {
  const server = createServer((socket) => {
    const timer = setInterval(() => socket.write(words), 20)
    socket
      .on('error', () => undefined)
      .on('close', () => clearInterval(timer))
      .resume()
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const sender = { name: 'slow', host: '127.0.0.1', port, secure, user: 'u', pass: 'p', from: 'a@b.example' }
  expect(await checkSender(sender, 200)).toBe('no answer')
  // Resolves when no connection is left open.
  await new Promise((resolve) => server.close(resolve))
})

describeWithRedis('Upstash', () => {
  it('is asked for a sign of life', async () => {
    const upstash = await startUpstash((await startRedis()).url)
    const env = {
      DATA_CACHE_ENABLED: 'true',
      DATA_CACHE_ADAPTER: 'upstash',
      UPSTASH_REDIS_REST_URL: upstash.url,
      UPSTASH_REDIS_REST_TOKEN: upstash.token,
    }
    const { host } = new URL(upstash.url)
    expect(of(await look(env), 'upstash')).toEqual([`ok: ${host} for the data cache answers`])
    expect(upstash.commands).toEqual(['ping'])
    const refused = await look({ ...env, UPSTASH_REDIS_REST_TOKEN: 'a wrong token' })
    expect(of(refused, 'upstash')).toEqual([`problem: ${host} for the data cache: Unauthorized`])
    expect(JSON.stringify(refused)).not.toContain('a wrong token')
    const away = await look({ ...env, UPSTASH_REDIS_REST_URL: 'http://127.0.0.1:1' })
    expect(of(away, 'upstash')).toEqual(['problem: 127.0.0.1:1 for the data cache: no answer'])
    expect(of(await look({ ...env, DATA_CACHE_ENABLED: 'false' }), 'upstash')).toEqual([])
  })
})

it('says when what answers is not Upstash', async () => {
  const server = createHttpServer((_request, response) => response.end('<html>'))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  expect(await pingUpstash({ url: `http://127.0.0.1:${port}`, token: 'any' })).toBe('what answers is not Upstash')
  server.closeAllConnections()
  server.close()
})

describeWithRedis('Redis', () => {
  it('is asked for what it is used for', async () => {
    const redis = await startRedis()
    const env = { RATE_LIMIT_REDIS_URL: redis.url, RATE_LIMIT_DISABLED: 'false' }
    const { host } = new URL(redis.url)
    expect(of(await look(env), 'redis')).toEqual([`ok: ${host} for rate limits answers`])
    expect(of(await look({ ...env, RATE_LIMIT_DISABLED: 'true' }), 'redis')).toEqual([])
    await redis.stop()
    expect(of(await look(env), 'redis')).toEqual([`problem: ${host} for rate limits: no answer`])
  })
})

describe('what is sealed', () => {
  const key = 'the key of today, of no worth to anybody'
  const former = 'the key of before, of no worth to anybody'
  const sealed = (by: string, purpose: string, owner: string) =>
    seal(testConfig(database.url, { SECRET_KEY: by }), { purpose, owner }, 'a sealed secret')
  const made = async (by: string) => {
    const webhook = randomUUID()
    await withClient(database.url, async (client) => {
      await client.query(
        `insert into "svc_Webhook" (id, name, url, collections, "role_Id", "user_Id", secret, "formerSecret", "formerUntil")
         select $1, 'to the shop', 'http://x.example', '[]', r.id, u.id, $2, $3, now() + interval '1 h'
         from "svc_Role" r, "svc_User" u limit 1`,
        [webhook, sealed(by, 'webhook', webhook), sealed(by, 'webhook', webhook)],
      )
      const value = sealed(by, 'workflow secret', 'svc_Secret')
      await client.query(`insert into "svc_Secret" (name, value) values ($1, $2)`, ['bank\u001b[31m', value])
    })
    return webhook
  }
  const found = async (more: Record<string, string>) => {
    const all = (await look({ SECRET_KEY: key, ...more })).filter(({ check }) => check === 'sealed values')
    expect(JSON.stringify(all)).not.toMatch(/a sealed secret|of no worth/)
    return all.map(({ status, says, remedy }) => [`${status}: ${says}`, remedy])
  }
  afterEach(() => query('delete from "svc_Webhook"; delete from "svc_Secret"'))

  it('opens by the present key', async () => {
    await made(key)
    expect(await found({})).toEqual([[expect.stringMatching(/^ok: SECRET_KEY opens the secrets/), undefined]])
  })

  it('is named where no key opens it, with what to do', async () => {
    const webhook = await made(former)
    expect(await found({})).toEqual([
      [
        `problem: no key opens webhook to the shop (${webhook})`,
        expect.stringMatching(/SECRET_KEY_PREVIOUS, or rotate/),
      ],
      ['problem: no key opens workflow secret bank [31m', expect.stringMatching(/SECRET_KEY_PREVIOUS, or set/)],
    ])
  })

  it('is named where only the former key opens it, which must stay that long', async () => {
    const webhook = await made(former)
    const shop = `to the shop (${webhook})`
    expect(await found({ SECRET_KEY_PREVIOUS: former })).toEqual([
      [
        `warning: only SECRET_KEY_PREVIOUS opens webhook ${shop}; former secret of webhook ${shop}; workflow secret bank [31m`,
        expect.stringMatching(/^keep SECRET_KEY_PREVIOUS until/),
      ],
    ])
  })

  it('is not judged by a key that stands in for a bad one', async () => {
    await made(former)
    expect(await found({ NODE_ENV: 'production', SECRET_KEY: 'short' })).toEqual([])
  })
})

it('says that no one can register where the role for that is missing', async () => {
  const said = async (env: Record<string, string>) => of(await look(env), 'registration')
  expect(await said({})).toEqual(['ok: gives the role user'])
  expect(await said({ DEFAULT_ROLE_REGISTERED: 'nobody' })).toEqual([
    'problem: there is no role "nobody", so nobody can register',
  ])
  expect(await said({ DEFAULT_ROLE_REGISTERED: 'nobody', PUBLIC_REGISTRATION: 'false' })).toEqual([])
})

describe('storage', () => {
  it('says which directory cannot be written to', async () => {
    const temp = `${import.meta.filename}/files`
    expect(of(await look({ STORAGE_TEMP_PATH: temp }), 'storage')).toEqual([
      expect.stringMatching(/^ok: local: /),
      expect.stringMatching(/^problem: STORAGE_TEMP_PATH: .*doctor\.test\.ts\/files cannot be written to/),
      expect.stringMatching(/^ok: ASSET_TEMP_DIR: /),
      expect.stringMatching(/^ok: MIGRATIONS_DIR: /),
    ])
  })

  it.runIf(process.platform === 'linux')(
    'says which directories can never be made, and does not go on trying',
    async () => {
      const never = '/proc/nothing/x'
      const env = { LOCAL_STORAGE_PATH: never, STORAGE_TEMP_PATH: never, ASSET_TEMP_DIR: never, MIGRATIONS_DIR: never }
      expect(of(await look(env), 'storage')).toEqual([
        expect.stringMatching(/^problem: local: ENOENT: .*'\/proc\/nothing'/),
        expect.stringMatching(/^problem: STORAGE_TEMP_PATH: \/proc\/nothing\/x cannot be written to: /),
        expect.stringMatching(/^problem: ASSET_TEMP_DIR: \/proc\/nothing\/x cannot be written to: /),
        expect.stringMatching(/^problem: MIGRATIONS_DIR: /),
      ])
    },
  )

  it('is tried with a probe in each service, of which nothing stays', async () => {
    const files = await mkdtemp(join(tmpdir(), 'daybook-doctor-'))
    onTestFinished(() => rm(files, { recursive: true }))
    const s3 = { S3_STORAGE_DRIVER: 'S3', S3_BUCKET: 'b', S3_REGION: 'r', S3_ACCESS_KEY_ID: 'k' }
    const findings = await look({
      STORAGE_SERVICES_ENABLED: 'good,bad,s3',
      GOOD_STORAGE_DRIVER: 'LOCAL',
      GOOD_STORAGE_PATH: files,
      BAD_STORAGE_DRIVER: 'LOCAL',
      BAD_STORAGE_PATH: import.meta.filename,
      ...{ ...s3, S3_SECRET_ACCESS_KEY: 'a secret key', S3_ENDPOINT: 'http://127.0.0.1:1' },
    })
    expect(of(findings, 'storage')).toEqual([
      'ok: good: content can be written, read and deleted',
      expect.stringMatching(/^problem: bad: .*(ENOTDIR|EEXIST)/),
      expect.stringMatching(/^problem: s3: .*ECONNREFUSED/),
      expect.stringMatching(/^ok: ASSET_TEMP_DIR: /),
      expect.stringMatching(/^ok: MIGRATIONS_DIR: /),
    ])
    expect(await readdir(files)).toEqual([])
    expect(JSON.stringify(findings)).not.toContain('a secret key')
  })
})

describe('the extensions', () => {
  const filesOf = async (folders: Readonly<Record<string, string>>) => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-doctor-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    for (const [file, text] of Object.entries(folders)) {
      await mkdir(join(directory, dirname(file)), { recursive: true })
      await writeFile(join(directory, file), text)
    }
    return directory
  }
  const lookAt = async (EXTENSIONS_DIR: string) => of(await look({ EXTENSIONS_DIR }), 'extension files')

  it('whose directory is not there, or has a folder that is none, are a problem', async () => {
    expect(await lookAt('/nope')).toEqual(['problem: EXTENSIONS_DIR: /nope does not exist'])
    const directory = await filesOf({ 'svc-hok-x/index.ts': '' })
    expect(await lookAt(directory)).toEqual([expect.stringMatching(/^problem: .*svc-hok-x is no kind of extension/)])
  })

  it('are named where they cannot be read, and none is run', async () => {
    const directory = await filesOf({
      'svc-hook-a/index.ts': 'interface A { x: string }\nthrow new Error("run")',
      'svc-hook-b/index.js': 'export default { handler() {',
      'svc-task-c/index.ts': 'enum A { x }\nexport default A',
    })
    expect(await lookAt(directory)).toEqual([
      expect.stringMatching(/^problem: .*svc-hook-b\/index\.js: Expected/),
      expect.stringMatching(/^problem: .*svc-task-c\/index\.ts: TypeScript enum is not supported/),
    ])
    await rm(join(directory, 'svc-hook-b'), { recursive: true })
    await rm(join(directory, 'svc-task-c'), { recursive: true })
    expect(await lookAt(directory)).toEqual(['ok: 1 can be read in EXTENSIONS_DIR'])
  })
})
