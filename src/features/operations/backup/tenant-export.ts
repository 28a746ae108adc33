/** One tenant's data in a directory, for the tenant: its rows, its members and the content of its files, as of one moment. */
import { randomUUID } from 'node:crypto'
import packageJson from '../../../../package.json' with { type: 'json' }
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { compileCatalog } from '../../../catalog/compile.ts'
import { readDefinitions } from '../../../catalog/store.ts'
import { copyOut } from '../../../db/copy.ts'
import type { PgClient } from '../../../db/pools.ts'
import { quoteText, type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { systemAccess } from '../../../query/access.ts'
import { compileCopy } from '../../../query/compile.ts'
import { parseListQuery } from '../../../query/parse.ts'
import { envOf, resolveList } from '../../../query/resolve.ts'
import type { Params } from '../../../query/sql.ts'
import { keyOf } from '../../files/storage/storage.ts'
import { readContent } from './contents.ts'
import { type BackupHost, type BackupMoment, inOneMoment, withContentHeld } from './moment.ts'
import { home, partsIn, tenantColumn, tenantOf } from './part.ts'
import { type FolderDraft, openFolder, type Written } from './place.ts'

/** The content of `manifest.json`: every other file of the directory, with its expected properties. */
type TenantExport = {
  readonly format: 1
  readonly tenant: { readonly id: string; readonly name: string }
  /** The moment, ISO 8601 in UTC. */
  readonly createdAt: string
  readonly program: string
  readonly collections: readonly ExportedRows[]
  /** The list of contents, one JSON object a line, which has the digest of each. */
  readonly contents: Written & { readonly file: string; readonly count: number; readonly bytesOfContents: number }
  /** Problems of the exported data, in words. */
  readonly notes: readonly string[]
}

type ExportedRows = Written & {
  readonly collection: string
  readonly file: string
  readonly rows: number
  /** Fields that are in no answer either. */
  readonly withoutFields: readonly string[]
}

/** How far it is: the collection whose rows are read, then the number of contents. */
type ExportProgress = (step: 'rows' | 'contents', done: string) => void

/**
 * THE list of what a tenant is given of the system's collections, by their tenant column. Not in it: credentials, sessions,
 * secrets and webhooks, the log (`daybook log export --tenant`), and the records of what was sent and executed.
 */
export const exportedSystemCollections: ReadonlySet<string> = new Set([
  ...['svc_Settings', 'svc_UserRole', 'svc_Template', 'svc_Notification', 'svc_File'],
  ...['svc_Tasks', 'svc_Workflow', 'svc_Page', 'svc_View'],
])

/** Users and roles are shared with other tenants: this much of those that are members, and of the roles that these have. */
const sharedFields = {
  svc_User: ['id', 'firstName', 'lastName', 'email'],
  svc_Role: ['id', 'name', 'description'],
}

/**
 * Writes everything of a tenant (by its id or name) that the tenant may know into a new directory, while everything runs. The
 * directory has its name when all of it is on the disk, and only its owner may read it.
 *
 * @throws {AppError} 400 where there are no tenants, 404 for an unknown one, 409 where the directory is there already
 */
export async function exportTenant(
  host: BackupHost,
  tenant: string,
  out: string,
  progress: ExportProgress = () => undefined,
): Promise<TenantExport> {
  if (!host.config.tenancy.enabled) throw new AppError(400, 'There are no tenants: MULTI_TENANT is off')
  const draft = await openFolder(out)
  try {
    const manifest = await withContentHeld(host, randomUUID(), () =>
      inOneMoment(host, (moment) => writeTenant(host, moment, draft, { tenant, progress })),
    )
    await draft.write('manifest.json', [Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`)])
    await draft.keep()
    return manifest
  } catch (error) {
    await draft
      .discard()
      .catch((left: unknown) => host.log.warn({ err: left }, 'an unfinished export could not be removed'))
    throw error
  }
}

type TenantRequest = { readonly tenant: string; readonly progress: ExportProgress }

async function writeTenant(
  host: BackupHost,
  moment: BackupMoment,
  draft: FolderDraft,
  { tenant, progress }: TenantRequest,
): Promise<TenantExport> {
  const { client, db } = moment
  // The compiled statements name tables as requests do.
  await client.query('set local search_path to public')
  const id = await tenantOf(db, tenant)
  const facts = await factsOf(db, id)
  if (facts === undefined) throw new AppError(404, `There is no tenant ${tenant}`)
  const { name, now } = facts
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: true })
  const collections: ExportedRows[] = []
  for (const part of partsOf(catalog, id)) {
    progress('rows', part.collection.name)
    collections.push(await writeRows(host, client, draft, { catalog, part, now }))
  }
  // From here on tables may change.
  await moment.endOfRows()
  const notes: string[] = []
  const contents = await writeContents(host, moment.files, draft, { id, notes, progress })
  const createdAt = now.toISOString()
  return { format: 1, tenant: { id, name }, createdAt, program: packageJson.version, collections, contents, notes }
}

const factsOf = (db: Reader, id: string): Promise<{ name: string; now: Date } | undefined> =>
  db.maybeOne(rawQuery(`select name, now() as now from "${home}" where id = $1`, [id]))

/** The rows of one collection, as a list is asked for them. */
type RowsOfTenant = { readonly collection: Collection; readonly filter: object; readonly fields: readonly string[] }

function partsOf({ collections }: Catalog, id: string): readonly RowsOfTenant[] {
  const all = [...collections.values()]
  const owned = all.filter(
    ({ name, system, fields }) => fields.has(tenantColumn) && (!system || exportedSystemCollections.has(name)),
  )
  const names = new Set(owned.map(({ name }) => name))
  const whole = (collection: Collection, filter: object): RowsOfTenant => ({ collection, filter, fields: ['*'] })
  const members = { tenant_Id: id }
  const shared = Object.entries(sharedFields).map(([name, fields]) => ({
    collection: collections.get(name)!,
    filter: { userRoles: members },
    fields,
  }))
  return [
    whole(collections.get(home)!, { id }),
    ...shared,
    ...owned.map((collection) => whole(collection, { [tenantColumn]: id })),
    ...all.flatMap((collection) =>
      partsIn(collection, names).map(({ column, of }) =>
        whole(collection, { [relationTo(collection, column, of)]: { [tenantColumn]: id } }),
      ),
    ),
  ]
}

/** The relation to the rows that own it. */
const relationTo = ({ relations }: Collection, column: string, target: string): string =>
  [...relations.values()].find((one) => one.foreignKey === column && one.target === target)!.name

type WritingRows = { readonly catalog: Catalog; readonly part: RowsOfTenant; readonly now: Date }

/** In the form of answers, the deleted ones too; the access of the platform leaves out hidden fields. */
async function writeRows(
  { config }: BackupHost,
  client: PgClient,
  draft: FolderDraft,
  { catalog, part: { collection, filter, fields }, now }: WritingRows,
): Promise<ExportedRows> {
  const query = parseListQuery({ filter, fields, limit: -1, paranoid: false, count: false })
  const env = { ...envOf(config, now), maxLimit: undefined }
  const plan = resolveList(catalog, systemAccess, collection.name, query, env)
  const file = `collections/${collection.name}.ndjson`
  const text = compileCopy(plan, constants)
  // No line break stands in a JSON text but between its tokens, and no other control character at all. `translate` would do both,
  // and takes as long as all the rest: it looks at each character.
  const copy = `copy (select replace(replace(data, E'\\n', ' '), E'\\r', ' ') from (${text}) r) to stdout with (format csv, quote E'\\x01', delimiter E'\\x02')`
  let rows = 0
  const lines = async function* () {
    for await (const piece of copyOut(client, copy) as AsyncIterable<Buffer>) {
      for (let at = piece.indexOf(lineBreak); at >= 0; at = piece.indexOf(lineBreak, at + 1)) rows += 1
      yield piece
    }
  }
  const written = await draft.write(file, lines())
  const isWhole = fields.includes('*')
  const withoutFields = [...collection.fields.values()].flatMap(({ name, hidden }) =>
    hidden || !(isWhole || fields.includes(name)) ? [name] : [],
  )
  return { collection: collection.name, file, rows, ...written, withoutFields }
}

const lineBreak = 10

/** COPY takes no parameters. */
const constants: Params = {
  bind: (value, pgType) => `${value === null ? 'null' : quoteText(String(value))}::${pgType}`,
}

type ExportableFile = {
  readonly id: string
  readonly name: string
  readonly hash: string | null
  readonly storage: string
  readonly folder: string | null
  readonly filename: string
  readonly type: string
}

const filesSql = `declare files no scroll cursor for select id::text, "originalFilename" as name, hash, storage, storage_folder as folder, filename, type
  from "public"."svc_File" where "${tenantColumn}" = $1 order by id`

type WritingContents = { readonly id: string; readonly notes: string[]; readonly progress: ExportProgress }

/** Of every row of svc_File, by its id: what rows say of names and folders is nothing that a path is made of. */
async function writeContents(
  host: BackupHost,
  client: PgClient,
  draft: FolderDraft,
  { id, notes, progress }: WritingContents,
): Promise<TenantExport['contents']> {
  let count = 0
  let bytesOfContents = 0
  const list = async function* () {
    await client.query(filesSql, [id])
    for (;;) {
      const { rows } = await client.query<ExportableFile>('fetch 1000 from files')
      if (rows.length === 0) return
      for (const stored of rows) {
        const written = await writeContent(host, draft, stored)
        if (typeof written === 'string') {
          notes.push(written)
          continue
        }
        count += 1
        bytesOfContents += written.bytes
        progress('contents', String(count))
        if (stored.hash !== null && stored.hash !== written.sha256)
          notes.push(`the content of file ${stored.id} is not the one that its row names`)
        yield Buffer.from(`${JSON.stringify({ id: stored.id, ...written })}\n`)
      }
    }
  }
  const file = 'contents.ndjson'
  const written = await draft.write(file, list())
  return { file, ...written, count, bytesOfContents }
}

/** Text where there is none. */
async function writeContent(
  host: BackupHost,
  draft: FolderDraft,
  { id, name, storage, folder, filename, type }: ExportableFile,
): Promise<(Written & { readonly file: string }) | string> {
  const content = await readContent(host, { places: [{ storage, key: keyOf(folder, filename), type }] })
  if (content === undefined) return `the content of file ${id} is missing`
  const file = `contents/${id}${extensionOf(name)}`
  return { file, ...(await draft.write(file, content)) }
}

const extensionOf = (name: string): string => /\.[A-Za-z0-9]{1,16}$/.exec(name)?.[0].toLowerCase() ?? ''
