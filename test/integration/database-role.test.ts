import { randomBytes } from 'node:crypto'
import { Writable } from 'node:stream'
import pino from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { ConfigError } from '../../src/config/config.ts'
import { examine } from '../../src/doctor/doctor.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { startApi } from '../support/api.ts'
import { blocksOf } from '../support/guides.ts'
import { asSuperuser, silent } from '../support/log.ts'
import { atEnd, createDatabase, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { prepareDatabase, testConfig, testEnv } from '../support/prepare.ts'
import { urlOf, withClient } from '../support/server.ts'

/* Which role may run an installation, and which database can hold one: docs/operating.md#the-database-role. */

const asAdministrator = (url: string, text: string) => withClient(asSuperuser(url), (client) => client.query(text))
const findings = async (url: string, check: string) =>
  (await examine(testEnv(url))).filter((finding) => finding.check === check)
const setUp = (url: string, log = silent) => runSetup(testConfig(url), log)

/** A plain role, and the address of the database for it. At the end the role is gone, and what it has come to own is given back. */
async function plainRole({ url }: TestDatabase): Promise<{ role: string; address: string }> {
  const role = `daybook_test_role_${randomBytes(4).toString('hex')}`
  await asAdministrator(url, `create role ${role} login replication password 'sesame'`)
  onTestFinished(async () => {
    await asAdministrator(url, `reassign owned by ${role} to ${new URL(url).username}; drop owned by ${role}`)
  })
  atEnd(async () => {
    await asAdministrator(urlOf(url, 'postgres'), `drop role ${role}`)
  })
  const address = new URL(url)
  address.username = role
  address.password = 'sesame'
  return { role, address: address.href }
}

/** What setup warns of. */
async function warnings(url: string): Promise<string[]> {
  const said: string[] = []
  const stream = new Writable({
    write(line, _encoding, done) {
      said.push(JSON.parse(line).msg)
      done()
    },
  })
  await setUp(url, pino({ level: 'warn' }, stream))
  return said
}

/** Of each kind that has an owner, with names to be quoted. */
const byHand = [
  `create table thing (id serial primary key, other bigint generated always as identity)`,
  `create type mood as enum ('so-so')`,
  `create domain amount as numeric check (value > 0)`,
  `create type place as (lat double precision, "Long" double precision)`,
  `create view "A view" as select id from thing`,
  `create materialized view totals as select count(*) from thing`,
  `create sequence alone`,
  `create function doubled(n integer default 2, "of" mood default 'so-so') returns integer language sql return n * 2`,
  `create procedure nothing_at_all() language plpgsql as $$ begin null; end $$`,
  `create aggregate product(double precision) (sfunc = float8mul, stype = float8)`,
]

describe('an installation that a superuser has set up', () => {
  it('moves to a plain role by the statements of the page, and the doctor sees what is left to move', async () => {
    const database = await createEmptyDatabase()
    await asAdministrator(database.url, `alter database ${database.name} owner to postgres`)
    await prepareDatabase(asSuperuser(database.url))
    for (const statement of byHand) await asAdministrator(database.url, statement)
    const { role, address } = await plainRole(database)
    // As far as one who only looks at tables goes.
    await asAdministrator(
      database.url,
      `alter database ${database.name} owner to ${role};
       do $$ declare one record; begin
         for one in select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') loop
           execute format('alter table %I owner to ${role}', one.name);
         end loop; end $$`,
    )
    const before = await findings(address, 'role')
    expect(before).toMatchObject([
      { status: 'problem', says: expect.stringMatching(/^schema pgboss, schema svc_log, publication svc_realtime, /) },
    ])
    expect(before[0]!.remedy).toContain('docs/operating.md#the-database-role')
    expect(await findings(address, 'queues')).toMatchObject([
      { says: expect.stringContaining('permission denied'), remedy: expect.stringContaining('#the-database-role') },
    ])

    const { text } = blocksOf('operating.md').find(({ words }) => words.includes('owner'))!
    expect(text).toContain(`'daybook'`)
    // Twice, as one who is not sure does.
    for (let time = 0; time < 2; time += 1) await asAdministrator(database.url, text.replace(`'daybook'`, `'${role}'`))
    const left = await withClient(database.url, (client) =>
      client.query(
        `select relname as name from pg_class where relowner <> '${role}'::regrole and relnamespace::regnamespace::text in ('public', 'svc_log', 'pgboss')
         union all select proname from pg_proc where proowner <> '${role}'::regrole and pronamespace::regnamespace::text in ('public', 'svc_log', 'pgboss')
         union all select typname from pg_type where typowner <> '${role}'::regrole and typnamespace::regnamespace::text in ('public', 'svc_log', 'pgboss')`,
      ),
    )
    expect(left.rows).toEqual([])
    expect(await warnings(address)).toEqual([])
    const found = await examine(testEnv(address))
    expect(found.filter(({ status }) => status === 'problem')).toEqual([])
    expect(await findings(address, 'role')).toMatchObject([{ status: 'ok' }])
    // Which looks at the tables of jobs, and gives tables triggers in the schema of the log.
    const api = await startApi({}, { ...database, url: address })
    const schema = { fields: { id: { type: 'Integer', primaryKey: true } } }
    expect(await api.admin('POST', '/schemas', { collectionName: 'moved', schema })).toMatchObject({ status: 201 })
    expect(await api.admin('POST', '/items/moved', { id: 1 })).toMatchObject({ status: 201 })
  })
})

describe('a publication', () => {
  it('of another owner stays and works, and setup and doctor say so', async () => {
    const { url } = await createDatabase()
    await asAdministrator(url, 'alter publication svc_realtime owner to postgres')
    expect(await warnings(url)).toEqual([
      'the publication svc_realtime could not be changed and stays as it is: realtime goes on reading the WAL by it',
    ])
    const { username } = new URL(url)
    expect(await findings(url, 'role')).toMatchObject([
      {
        status: 'warning',
        says: `publication svc_realtime belongs to postgres, not to ${username}`,
        remedy: `as a superuser: alter publication svc_realtime owner to "${username}"`,
      },
    ])
  })

  it('that the role may not create is missing, and setup says so', async () => {
    const { url, name } = await createDatabase()
    const { username } = new URL(url)
    await asAdministrator(
      url,
      `drop publication svc_realtime; alter database ${name} owner to postgres; grant create on schema public to ${username}`,
    )
    expect(await warnings(url)).toEqual(['no publication of the log could be made: realtime will poll the log'])
    await asAdministrator(url, `alter database ${name} owner to ${username}`)
  })
})

describe('an empty database', () => {
  it('that the role does not own is refused with the statement that makes it its own', async () => {
    const database = await createEmptyDatabase()
    const { url, name } = database
    const { role, address } = await plainRole(database)
    await asAdministrator(url, `alter database ${name} owner to postgres; grant all on database ${name} to ${role}`)
    const remedy = `alter database "${name}" owner to "${role}"`
    const refusal = await setUp(address).catch((error: unknown) => error)
    expect(refusal).toBeInstanceOf(ConfigError)
    expect((refusal as Error).message).toBe(
      `DATABASE_URL: the role ${role} lacks CREATE on the schema public: let it own the database, as a superuser connected to it: ${remedy}`,
    )
    expect(await findings(address, 'setup')).toMatchObject([
      {
        status: 'problem',
        says: `the database is empty or another program’s, and the role ${role} lacks CREATE on the schema public`,
        remedy: expect.stringContaining(remedy),
      },
    ])
    await asAdministrator(url, remedy)
    expect(await warnings(address)).toEqual([])
  })

  it.each(['LATIN1', 'SQL_ASCII'])(
    'in %s is refused before anything is made, with the statement for one in UTF8',
    async (encoding) => {
      const { url, name } = await createEmptyDatabase(`encoding '${encoding}' locale_provider libc locale 'C'`)
      const refusal = await setUp(url).catch((error: unknown) => error)
      expect(refusal).toBeInstanceOf(ConfigError)
      const { message } = refusal as Error
      expect(message).toMatch(`DATABASE_URL: the database's encoding is ${encoding}: `)
      const made = await withClient(url, (client) =>
        client.query(`select nspname from pg_namespace where nspname in ('svc_log', 'pgboss')`),
      )
      expect(made.rows).toEqual([])
      const [statement] = /create database .*/.exec(message)!
      expect(await findings(url, 'server')).toMatchObject([{ remedy: expect.stringContaining(statement) }])
      await asAdministrator(url, statement)
      const better = urlOf(url, `${name}_utf8`)
      const encoded = await withClient(better, (client) => client.query('show server_encoding'))
      expect(encoded.rows).toEqual([{ server_encoding: 'UTF8' }])
      await asAdministrator(url, `drop database "${name}_utf8"`)
    },
  )
})

it('sets an installation up again that is in another encoding, of which the doctor tells', async () => {
  const { url, name } = await createEmptyDatabase(`encoding 'UTF8' locale_provider libc locale 'C'`)
  await prepareDatabase(url)
  const latin1 = `pg_char_to_encoding('LATIN1')`
  await asAdministrator(url, `update pg_database set encoding = ${latin1} where datname = '${name}'`)
  await expect(setUp(url)).resolves.toEqual({ admin: undefined })
  expect(await findings(url, 'server')).toMatchObject([
    { status: 'problem', says: `the database's encoding is LATIN1` },
  ])
  expect(await findings(url, 'setup')).toMatchObject([{ status: 'ok' }])
})
