import { createHash, randomUUID } from 'node:crypto'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Collection, Field } from '../../src/catalog/catalog.ts'
import { openStorages } from '../../src/features/files/storage/storage.ts'
import { type BackupHost, exportTenant } from '../../src/features/operations/backup/backup.ts'
import { exportedSystemCollections } from '../../src/features/operations/backup/tenant-export.ts'
import { type Api, startApi } from '../support/api.ts'
import { asSuperuser } from '../support/log.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { storeFile } from '../support/stored-files.ts'
import { createRole, createTenant, createUser } from '../support/tenants.ts'

const env = { MULTI_TENANT: 'true' }
const silent = pino({ level: 'silent' })

let dir: string
let api: Api
let host: BackupHost
let bakery: string
let engines: string
let role: string
/** A member of both. */
let member: string
/** Of the engines alone. */
let stranger: string
let pages: { readonly [tenant: string]: string }

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'daybook-tenants-'))
  api = await startApi(env)
  const config = testConfig(api.database.url, { ...env, QUERY_MAX_LIMIT: '10' })
  host = { config, log: silent, storages: openStorages(config) }
  await define('recipe', {
    name: { type: 'String' },
    price: { type: 'Decimal' },
    pin: { type: 'String', hidden: true },
  })
  await define('step', {
    text: { type: 'Text' },
    recipe: { relType: 'BelongsTo', target: 'recipe', foreignKey: 'recipe_Id' },
  })
  ;[bakery, engines] = [await createTenant(api, 'Bakery'), await createTenant(api, 'Engines')]
  role = await createRole(api)
  const both = await createUser(api, role, bakery)
  member = both.id
  await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
    ...[member, await createRole(api, { description: 'canary of the engines' }), engines],
  ])
  stranger = (await createUser(api, role, engines)).id
  const rows = `insert into recipe (name, price, pin, "tenant_Id") select $1 || i, i + 0.5, 'canary pin', $2 from generate_series(1, $3) i`
  await api.sql(rows, ['bread ', bakery, 2500])
  await api.sql(rows, ['canary of the engines ', engines, 5])
  await api.sql(rows, ['canary of nobody ', null, 5])
  await api.sql(
    `insert into step (text, "recipe_Id", "tenant_Id") select E'knead\\n"ü"\\t\\\\', id, $1 from recipe where "tenant_Id" = $1`,
    [bakery],
  )
})

afterAll(() => rm(dir, { recursive: true }))

async function define(collectionName: string, fields: object): Promise<void> {
  const { status, text } = await api.admin('POST', '/schemas', { collectionName, schema: { paranoid: true, fields } })
  expect([status, text]).toEqual([201, expect.anything()])
}

/** Every file beneath a directory, with its text. */
async function filesIn(folder: string): Promise<ReadonlyMap<string, string>> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true })
  const files = found.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  return new Map(
    await Promise.all(
      files.sort().map(async (file) => [file.slice(folder.length + 1), await readFile(file, 'latin1')] as const),
    ),
  )
}

const linesOf = (files: ReadonlyMap<string, string>, collection: string): any[] =>
  Buffer.from(files.get(`collections/${collection}.ndjson`)!, 'latin1')
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))

const sha256 = (text: string) => createHash('sha256').update(text, 'latin1').digest('hex')

describe('the export of a tenant', () => {
  it('holds its rows once, in the form of answers, and nothing of another tenant', async () => {
    const out = join(dir, 'whole')
    const deleted = (await api.sql(`update recipe set "deletedAt" = now() where name = 'bread 7' returning id`))[0].id
    const manifest = await exportTenant(host, 'Bakery', out)
    const files = await filesIn(out)
    const recipes = linesOf(files, 'recipe')
    expect(recipes).toHaveLength(2500)
    expect(new Set(recipes.map(({ id }) => id)).size).toBe(2500)
    expect(recipes.find(({ id }) => id === deleted)).toMatchObject({ deletedAt: expect.stringMatching(/Z$/) })
    const one = recipes.find(({ name }) => name === 'bread 9')
    const shown = await api.admin('GET', `/items/recipe/${one.id}`)
    expect(one).toEqual(shown.body.data)
    expect(linesOf(files, 'step')[0].text).toBe('knead\n"ü"\t\\')
    expect(linesOf(files, 'svc_Tenant')).toMatchObject([{ id: bakery, name: 'Bakery' }])
    expect([...files.values()].join('\n')).not.toMatch(/canary|engines/i)
    expect(manifest.collections.find(({ collection }) => collection === 'recipe')).toMatchObject({
      rows: 2500,
      withoutFields: ['pin'],
    })
  })

  it('has each member once, with name and address alone, and the roles that they have here', async () => {
    const out = join(dir, 'members')
    await exportTenant(host, bakery.toUpperCase(), out)
    const files = await filesIn(out)
    const [{ email }] = await api.sql('select email from "svc_User" where id = $1', [member])
    expect(linesOf(files, 'svc_User')).toEqual([{ id: member, firstName: 'T', lastName: null, email }])
    expect(linesOf(files, 'svc_UserRole')).toMatchObject([{ user_Id: member, role_Id: role, tenant_Id: bakery }])
    expect(linesOf(files, 'svc_Role')).toEqual([{ id: role, name: expect.any(String), description: null }])
  })

  it('says of every file what it must be, and no other user may read one', async () => {
    const out = join(dir, 'digests')
    const stored = await storeFile(api, { content: 'a cake', name: 'Cake.PNG', tenant: bakery, folder: 'deep/er' })
    await storeFile(api, { content: 'a cake', name: 'again', tenant: bakery })
    await storeFile(api, { content: 'canary of the engines', tenant: engines })
    await storeFile(api, { content: 'canary of nobody' })
    const gone = await storeFile(api, { content: 'gone', tenant: bakery, isStored: false })
    const manifest = await exportTenant(host, 'Bakery', out)
    const files = await filesIn(out)
    expect(JSON.parse(files.get('manifest.json')!)).toEqual(manifest)
    const listed = manifest.collections.map(({ file, bytes, sha256: digest, rows }) => ({ file, bytes, digest, rows }))
    for (const { file, bytes, digest, rows } of listed) {
      const text = files.get(file)!
      expect([text.length, sha256(text), text.split('\n').length - 1]).toEqual([bytes, digest, rows])
    }
    expect(sha256(files.get('contents.ndjson')!)).toBe(manifest.contents.sha256)
    const contents = files
      .get('contents.ndjson')!
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(contents).toHaveLength(2)
    expect(contents).toContainEqual({
      id: stored.id,
      file: `contents/${stored.id}.png`,
      bytes: 6,
      sha256: sha256('a cake'),
    })
    for (const { file, sha256: digest } of contents) expect(sha256(files.get(file)!)).toBe(digest)
    expect(manifest.contents).toMatchObject({ count: 2, bytesOfContents: 12 })
    expect(manifest.notes).toEqual([`the content of file ${gone.id} is missing`])
    const named = [
      ...listed.map(({ file }) => file),
      ...contents.map(({ file }) => file),
      'contents.ndjson',
      'manifest.json',
    ]
    expect([...files.keys()].sort()).toEqual(named.sort())
    for (const file of files.keys()) expect((await stat(join(out, file))).mode & 0o777).toBe(0o600)
    for (const folder of ['.', 'collections', 'contents'])
      expect((await stat(join(out, folder))).mode & 0o777).toBe(0o700)
    await api.sql('delete from "svc_File" where id = $1', [gone.id])
  })

  it('is as of one moment, whatever is written meanwhile', async () => {
    let first = true
    const out = join(dir, 'moment')
    const before = await api.sql('select count(*)::int as n from step where "tenant_Id" = $1', [bakery])
    const writing: Promise<unknown>[] = []
    await exportTenant(host, 'Bakery', out, (step, done) => {
      if (step !== 'rows' || done !== 'svc_Tenant' || !first) return
      first = false
      writing.push(api.sql(`insert into step (text, "tenant_Id") values ('later', $1)`, [bakery]))
    })
    await Promise.all(writing)
    const files = await filesIn(out)
    expect(first).toBe(false)
    expect(linesOf(files, 'step')).toHaveLength(before[0].n)
  })

  it('leaves the directory by no key or name of a file', async () => {
    const inside = join(dir, 'confined')
    const out = join(inside, 'out')
    const add = (folder: string | null, filename: string, original: string) =>
      api.sql(
        `insert into "svc_File" (id, filename, "originalFilename", type, size, storage, storage_folder, "tenant_Id", "createdAt", "updatedAt")
         values ($1, $2, $3, 'text/plain', 4, 'local', $4, $5, now(), now()) returning id`,
        [randomUUID(), filename, original, folder, bakery],
      )
    const here = await storeFile(api, { content: 'mine', name: 'x.txt', tenant: bakery })
    await api.sql(`update "svc_File" set "originalFilename" = '../../../evil.sh/../x' where id = $1`, [here.id])
    const bad = [
      ...(await add('../..', '../../evil', '../../evil')),
      ...(await add(null, '/etc/hostname', '/etc/hostname')),
      ...(await add('a/../../..', 'etc/hostname', '..')),
    ]
    await mkdir(inside)
    const { notes } = await exportTenant(host, 'Bakery', out)
    expect(await readdir(inside)).toEqual(['out'])
    for (const { id } of bad) expect(notes).toContain(`the content of file ${id} is missing`)
    expect(await readdir(join(out, 'contents'))).toContain(here.id)
    await api.sql(`delete from "svc_File" where id = any($1)`, [bad.map(({ id }) => id)])
  })
})

describe('an export that is not written', () => {
  it('leaves nothing, and takes the place of nothing', async () => {
    const own = join(dir, 'own')
    await mkdir(own)
    const taken = join(own, 'taken')
    await mkdir(taken)
    await writeFile(join(taken, 'mine'), 'mine')
    await expect(exportTenant(host, 'Bakery', taken)).rejects.toMatchObject({ status: 409, code: 'EXPORT_EXISTS' })
    await expect(exportTenant(host, 'Nobody', join(own, 'none'))).rejects.toMatchObject({ status: 404 })
    await expect(exportTenant(host, randomUUID(), join(own, 'none'))).rejects.toMatchObject({ status: 404 })
    await expect(exportTenant(host, 'Bakery', join(own, 'no', 'where'))).rejects.toMatchObject({ status: 404 })
    const config = testConfig(api.database.url)
    await expect(exportTenant({ ...host, config }, 'Bakery', join(own, 'none'))).rejects.toMatchObject({ status: 400 })
    // Somebody takes the name while it is written.
    const racing = exportTenant(host, 'Bakery', join(own, 'raced'), (step, done) => {
      if (step === 'rows' && done === 'svc_Tenant')
        taking.push(mkdir(join(own, 'raced')).then(() => writeFile(join(own, 'raced', 'x'), '')))
    })
    const taking: Promise<unknown>[] = []
    await expect(racing).rejects.toMatchObject({ code: 'EXPORT_EXISTS' })
    await Promise.all(taking)
    // A place where a file cannot be read: nothing half written remains.
    const lost = await storeFile(api, { content: 'x', tenant: bakery })
    await api.sql(`update "svc_File" set storage = 'unplugged' where id = $1`, [lost.id])
    await expect(exportTenant(host, 'Bakery', join(own, 'none'))).rejects.toMatchObject({ status: 503 })
    await api.sql(`delete from "svc_File" where id = $1`, [lost.id])
    expect((await readdir(own)).sort()).toEqual(['raced', 'taken'])
    expect(await readdir(taken)).toEqual(['mine'])
  })

  it('by a process that was killed is removed by the next one', async () => {
    const own = join(dir, 'killed')
    const left = join(own, '.next.999999999.partial', 'collections')
    await mkdir(left, { recursive: true })
    await writeFile(join(left, 'x.ndjson'), 'left')
    await exportTenant(host, 'Bakery', join(own, 'next'))
    expect(await readdir(own)).toEqual(['next'])
  })
})

/* A row in every system collection, whose every text says whether a tenant may see it. */

/** The installation's own rows: nothing of them is anybody's, and what is no definition would end the program. */
const ofInstallation = ['svc_SchemaDefinition', 'svc_Migration']

type Planting = {
  readonly tenant: string | null
  readonly user: string
  readonly shows: (collection: Collection, field: Field) => boolean
}

let planted = 0

/** Past every trigger and foreign key: what is there counts, not how it came. */
async function plant({ tenant, user, shows }: Planting): Promise<void> {
  const system = [...api.runtime.catalog.current().collections.values()].filter(
    ({ name, system }) => system && !ofInstallation.includes(name),
  )
  const ids: Record<string, string> = {
    svc_User: user,
    svc_Role: role,
    svc_Page: pages[tenant ?? ''] ?? randomUUID(),
    ...(tenant !== null && { svc_Tenant: tenant }),
  }
  await withClient(asSuperuser(api.database.url), async (client) => {
    await client.query('set session_replication_role = replica')
    // One of each is all that there may be.
    await client.query(`delete from "svc_Settings" where "tenant_Id" is not distinct from $1`, [tenant])
    await client.query('delete from "svc_UserRole" where "user_Id" = $1 and "tenant_Id" = $2', [user, tenant])
    for (const collection of system) {
      planted += 1
      const cells = [...collection.fields.values()].flatMap((field) => {
        const value = cellOf(collection, field, { ids, tenant, mark: shows(collection, field) ? 'shown' : 'canary' })
        return value === undefined ? [] : [[field.name, value] as const]
      })
      const stored = ['svc_User', 'svc_Tenant'].includes(collection.name) && tenant !== null
      const list = (each: (name: string, place: number) => string) =>
        cells.map(([name], i) => each(name, i + 1)).join(', ')
      const statement = stored
        ? `update "${collection.name}" set ${list((name, place) => `"${name}" = $${place}`)} where id = '${ids[collection.name]}'`
        : `insert into "${collection.name}" (${list((name) => `"${name}"`)}) values (${list((_name, place) => `$${place}`)})`
      await client.query(
        statement,
        cells.map(([, value]) => value),
      )
    }
  })
}

type Cell = {
  readonly ids: Readonly<Record<string, string>>
  readonly tenant: string | null
  readonly mark: 'shown' | 'canary'
}

/** Undefined for what the database fills in. */
function cellOf(collection: Collection, field: Field, { ids, tenant, mark }: Cell): unknown {
  const { name, kind, primaryKey, generated, enumValues, sameAs } = field
  const [own, relation] = [
    ids[collection.name],
    [...collection.relations.values()].find((one) => one.kind === 'belongsTo' && one.foreignKey === name),
  ]
  if (generated !== undefined || sameAs !== undefined) return undefined
  if (primaryKey)
    return kind === 'uuid'
      ? ['svc_User', 'svc_Tenant', 'svc_Page'].includes(collection.name)
        ? own
        : randomUUID()
      : kind === 'text'
        ? `${mark}-${planted}`
        : undefined
  if (name === 'tenant_Id') return tenant
  if (collection.name === 'svc_File' && name === 'storage') return 'local'
  if (enumValues !== undefined) return enumValues[0]
  const text = `${mark}-${collection.name}-${name}-${planted}`
  switch (kind) {
    case 'uuid':
      return (relation && ids[relation.target]) ?? randomUUID()
    case 'json':
      return JSON.stringify([text])
    case 'boolean':
      return false
    case 'datetime':
      return new Date()
    case 'integer':
    case 'bigint':
    case 'float':
      return planted
    default:
      return text
  }
}

describe('secrets', () => {
  it('of no system collection are in an export, and all that is the tenant’s own is', async () => {
    pages = { [bakery]: randomUUID(), [engines]: randomUUID() }
    const isOwn = (collection: Collection, field: Field) => {
      if (field.hidden) return false
      if (collection.name === 'svc_User') return ['firstName', 'lastName', 'email'].includes(field.name)
      return ['svc_Tenant', 'svc_Block', ...exportedSystemCollections].includes(collection.name)
    }
    await plant({ tenant: bakery, user: member, shows: isOwn })
    await plant({ tenant: engines, user: stranger, shows: () => false })
    await plant({ tenant: null, user: randomUUID(), shows: () => false })
    const everything = await withClient(api.database.url, async (client) => {
      const { rows } = await client.query(
        `select c.relname as name from pg_class c where relname like 'svc\\_%' and relkind in ('r', 'p') and relnamespace = 'public'::regnamespace`,
      )
      const texts: string[] = []
      for (const { name } of rows)
        texts.push(
          (await client.query(`select coalesce(string_agg(t::text, ' '), '') as text from "${name}" t`)).rows[0].text,
        )
      return texts.join(' ')
    })
    const hidden = [...api.runtime.catalog.current().collections.values()].flatMap(({ name, system, fields }) =>
      [...fields.values()]
        .filter((field) => system && field.hidden && ['text', 'json'].includes(field.kind))
        .map((field) => `canary-${name}-${field.name}-`),
    )
    // They are there to be found.
    expect(hidden.length).toBeGreaterThan(10)
    for (const canary of hidden) expect(everything).toContain(canary)
    const out = join(dir, 'canaries')
    const manifest = await exportTenant(host, bakery, out)
    const files = await filesIn(out)
    const found = [...files].flatMap(([file, text]) =>
      [...text.matchAll(/canary[-\w]*/g)].map(([canary]) => `${file}: ${canary}`),
    )
    expect(found).toEqual([])
    const text = [...files.values()].join('\n')
    for (const collection of api.runtime.catalog.current().collections.values())
      for (const field of collection.fields.values()) {
        const { name, kind, enumValues, primaryKey, generated } = field
        if (!collection.system || !isOwn(collection, field) || generated !== undefined || primaryKey) continue
        if (
          !['text', 'json'].includes(kind) ||
          enumValues !== undefined ||
          `${collection.name}.${name}` === 'svc_File.storage'
        )
          continue
        expect(text).toContain(`shown-${collection.name}-${name}-`)
      }
    for (const other of [engines, stranger, pages[engines]!]) expect(text).not.toContain(other)
    expect(manifest.notes).toHaveLength(1)
  })

  it('cannot come in by a new system collection: whether a tenant is given it has to be decided', () => {
    const scoped = [...api.runtime.catalog.current().collections.values()].filter(
      ({ system, fields }) => system && fields.has('tenant_Id'),
    )
    const withheld = scoped.map(({ name }) => name).filter((name) => !exportedSystemCollections.has(name))
    expect(withheld.sort()).toEqual([
      ...['svc_ApiKey', 'svc_AuditLog', 'svc_EmailLog', 'svc_Invite', 'svc_Secret', 'svc_Sessions', 'svc_Webhook'],
      ...['svc_WebhookDelivery', 'svc_WorkflowExecution'],
    ])
  })
})
