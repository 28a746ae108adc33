import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import pino from 'pino'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openStorages } from '../../src/features/files/storage/storage.ts'
import { restoreTenant, writeBackup } from '../../src/features/operations/backup/backup.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'
import { storeFile } from '../support/stored-files.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'

/** One tenant comes back, and all others stay as they are. */

const env = { MULTI_TENANT: 'true' }
const choices = { dryRun: false, setNull: false, skip: false, force: false }

let dir: string
let api: Api
let bakery: string
let engines: string
let baker: TenantUser
let picture: { id: string; filename: string }
let place: string
let at: string

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'daybook-tenant-'))
  api = await startApi(env)
  const define = async (collectionName: string, fields: object) => {
    const made = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
    expect([made.status, made.text]).toEqual([201, expect.anything()])
  }
  await define('recipe', { name: { type: 'String' }, price: { type: 'Decimal' } })
  await define('step', {
    text: { type: 'String' },
    recipe: { relType: 'BelongsTo', target: 'recipe', foreignKey: 'recipe_Id', onDelete: 'CASCADE' },
  })
  ;[bakery, engines] = [await createTenant(api, 'Bakery'), await createTenant(api, 'Engines')]
  const role = await createRole(api)
  const every = ['create', 'read', 'update', 'delete'].flatMap((action) =>
    ['recipe', 'step'].map((collection) => ({ collection, action, fields: ['*'] })),
  )
  await grant(api, role, ...every)
  baker = await createUser(api, role, bakery)
  const rows = `insert into recipe (name, price, "tenant_Id") select $1 || i, i + 0.5, $2 from generate_series(1, 10) i`
  for (const [name, tenant] of [
    ['bread ', bakery],
    ['piston ', engines],
    ['nobody’s ', null],
  ])
    await api.sql(rows, [name, tenant])
  await api.sql(
    `insert into step (text, "recipe_Id", "tenant_Id") select 'of ' || name, id, "tenant_Id" from recipe where "tenant_Id" is not null`,
  )
  picture = await storeFile(api, { content: 'a loaf', type: 'text/plain', name: 'loaf.txt', tenant: bakery })
  place = join(dir, 'all.daybook')
  const config = testConfig(api.database.url, env)
  await writeBackup({ config, log: pino({ level: 'silent' }), storages: openStorages(config) }, place)
  at = (await api.admin('GET', '/history/now')).body.data.time
})

afterAll(() => rm(dir, { recursive: true }))

const tables = ['recipe', 'step', 'svc_UserRole', 'svc_File', 'svc_Settings']

/** The rows of a tenant, or of all others, without what a restore writes anew. */
async function rowsOf(which: 'own' | 'others'): Promise<Record<string, unknown[]>> {
  const rows: Record<string, unknown[]> = {}
  const whose = `"tenant_Id" is ${which === 'own' ? 'not' : ''} distinct from $1`
  for (const table of tables)
    rows[table] = (
      await api.sql(
        `select to_jsonb(t) - 'updatedAt' - 'userUpdated_Id' as row from "${table}" t where ${whose} order by id`,
        [bakery],
      )
    ).map(({ row }) => row)
  const tenant = `select to_jsonb(t) - 'updatedAt' as row from "svc_Tenant" t where (id = $1) = $2 order by id`
  rows.svc_Tenant = (await api.sql(tenant, [bakery, which === 'own'])).map(({ row }) => row)
  return rows
}

/** What an import that went wrong leaves behind, in this tenant and beside it. */
async function damage(): Promise<void> {
  await api.sql(`delete from recipe where name in ('bread 1', 'bread 2')`)
  await api.sql(`update recipe set name = upper(name), price = 0 where name like 'bread %'`)
  await api.sql(`insert into recipe (name, "tenant_Id") values ('mould', $1)`, [bakery])
  await api.sql(`update "svc_Tenant" set name = 'Bankrupt' where id = $1`, [bakery])
  await api.sql('delete from "svc_UserRole" where id = $1', [baker.userRoleId])
  expect((await api.admin('DELETE', `/items/svc_File/${picture.id}`)).status).toBeLessThan(300)
  await api.sql(`update recipe set price = price + 1 where "tenant_Id" = $1 or "tenant_Id" is null`, [engines])
  await api.sql(`insert into recipe (name, "tenant_Id") values ('valve', $1)`, [engines])
}

it.each<[how: string, from: () => { at: string } | { file: string }]>([
  ['the log', () => ({ at })],
  ['a backup', () => ({ file: place })],
])(
  'by %s a tenant is what it was, with members and files, and nothing else changes',
  async (_how, from) => {
    const before = await rowsOf('own')
    await damage()
    const [damaged, others] = [await rowsOf('own'), await rowsOf('others')]
    const users = await api.sql('select id from "svc_User" order by id')
    const position = await api.position()

    if ('file' in from()) await api.runtime.storages.named('local').delete(picture.filename)
    const looked = await restoreTenant(api.runtime, bakery, from(), { ...choices, dryRun: true })
    expect(looked).toMatchObject({ isRefused: false, conflicts: [] })
    expect(await rowsOf('own')).toEqual(damaged)
    expect(await api.log(position)).toEqual([])

    const done = await restoreTenant(api.runtime, 'Bankrupt', from(), choices)
    expect(done.counts).toEqual(looked.counts)
    expect(done.counts).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ collection: 'recipe', create: 2, update: 8, delete: 1 }),
        expect.objectContaining({ collection: 'step', create: 2, update: 0, delete: 0 }),
        expect.objectContaining({ collection: 'svc_UserRole', create: 1 }),
        expect.objectContaining({ collection: 'svc_File', create: 1 }),
        expect.objectContaining({ collection: 'svc_Tenant', update: 1 }),
      ]),
    )
    expect(await rowsOf('own')).toEqual(before)
    expect(await rowsOf('others')).toEqual(others)
    expect(await api.sql('select id from "svc_User" order by id')).toEqual(users)

    // The member signs in and reads what is theirs; the content of the file is there again.
    const login = { email: baker.email, password: 'password of a user' }
    const { token } = (await api.anonymous('POST', '/auth/login', login)).body
    const seen = await api.as(token)('GET', '/items/recipe?limit=100')
    expect([seen.status, seen.body.data.length]).toEqual([200, 10])
    const [{ storage, filename }] = await api.sql('select storage, filename from "svc_File" where id = $1', [
      picture.id,
    ])
    const content = await api.runtime.storages.named(storage).read(filename)
    expect(String(await buffer(content!))).toBe('a loaf')

    const logged = await api.log(position)
    expect(logged.findLast(({ type }) => type !== 'auth')).toMatchObject({ action: 'restored', entityId: bakery })
    const wrote = await api.sql(
      `select distinct "logRequestId" as request, xid::text from "svc_AuditLog" where position > $1 and type = 'data' and "logRequestId" is not null`,
      [String(position)],
    )
    expect(wrote.filter(({ request }) => request === done.requestId)).toHaveLength(1)
    // Nothing differs any more.
    const again = await restoreTenant(api.runtime, bakery, from(), choices)
    expect(again.counts.every((one) => one.create + one.update + one.delete === 0)).toBe(true)
  },
  120_000,
)

it('a tenant that was not there then stays as it is, and one that is gone comes back', async () => {
  const cursorNow = async () => (await api.admin('GET', '/history/now')).body.data
  const before = await cursorNow()
  const mill = await createTenant(api, 'Mill')
  await api.sql(`insert into recipe (name, "tenant_Id") values ('flour', $1)`, [mill])
  const position = await api.position()
  for (const [from, message] of [
    [{ file: place }, 'The backup has no tenant Mill'],
    [{ at: before.time }, `Mill did not exist at ${before.time}`],
    [{ at: before.cursor }, `Mill did not exist at ${before.cursor}`],
    [{ at: '2020-01-01' }, 'Mill did not exist at 2020-01-01'],
  ] as const)
    for (const dryRun of [true, false])
      await expect(restoreTenant(api.runtime, 'Mill', from, { ...choices, dryRun })).rejects.toMatchObject({
        status: 404,
        message,
      })
  expect(await api.log(position)).toEqual([])

  const whole = await cursorNow()
  await api.sql('delete from recipe where "tenant_Id" = $1', [mill])
  await api.sql('delete from "svc_Tenant" where id = $1', [mill])
  const gone = await cursorNow()
  await expect(restoreTenant(api.runtime, 'Mill', { at: gone.cursor }, choices)).rejects.toMatchObject({ status: 404 })
  const done = await restoreTenant(api.runtime, 'Mill', { at: whole.time }, choices)
  expect(done).toMatchObject({ isRefused: false })
  expect(await api.sql('select name from recipe where "tenant_Id" = $1', [mill])).toEqual([{ name: 'flour' }])
  // What came back was not there in between.
  await expect(restoreTenant(api.runtime, mill, { at: gone.cursor }, choices)).rejects.toMatchObject({ status: 404 })
})
