import { createHash } from 'node:crypto'
import { pipeline } from 'node:stream/promises'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, sql } from '../../../db/sql.ts'
import { backupsFolder, keyOf, type Storage } from '../storage/storage.ts'
import type { FileReads } from './content.ts'

/** Something that rows and storage do not agree on. */
type FileDifference = {
  /**
   * `missing`: a row without its content; `size`, `hash`: content that is not the row's; `orphan`: content without a row;
   * `usage`: what a tenant's files come to is not what is counted.
   */
  readonly kind: 'missing' | 'size' | 'hash' | 'orphan' | 'usage'
  readonly storage: string
  /** A key, or of `usage` a tenant. */
  readonly key: string
}

type FilesVerified = {
  readonly rows: number
  readonly contents: number
  readonly differences: readonly FileDifference[]
}

/**
 * Compares the rows of svc_File with the storage services, in both directions, and the usage of tenants with the rows.
 * A difference counts only if a second look confirms it. With `hashes` all content is read.
 */
export async function verifyFiles(deps: FileReads, { hashes }: { readonly hashes: boolean }): Promise<FilesVerified> {
  const rows = await readRows(deps)
  const byStorage = Map.groupBy(rows, ({ storage }) => storage)
  const names = new Set([...byStorage.keys(), ...deps.storages.all.map(({ name }) => name)])
  const differences: FileDifference[] = [...(await usageDifferences(deps))]
  let contents = 0
  for (const name of names) {
    const found = await verifyStorage(deps, deps.storages.holding(name), byStorage.get(name) ?? [], hashes)
    contents += found.contents
    differences.push(...found.differences)
  }
  return { rows: rows.length, contents, differences }
}

type ContentRow = {
  readonly storage: string
  readonly key: string
  readonly size: number
  readonly hash: string | null
}

async function readRows({ db }: Reads): Promise<ContentRow[]> {
  const rows: ContentRow[] = []
  let after = '00000000-0000-0000-0000-000000000000'
  for (;;) {
    const page = await db.any<{
      id: string
      storage: string
      folder: string | null
      filename: string
      size: string
      hash: string | null
    }>(
      sql`select id, storage, storage_folder as folder, filename, size::text as size, hash from "svc_File"
        where id > ${after}::uuid order by id limit 5000`,
    )
    for (const { storage, folder, filename, size, hash } of page)
      rows.push({ storage, key: keyOf(folder, filename), size: Number(size), hash })
    if (page.length === 0) return rows
    after = page.at(-1)!.id
  }
}

async function verifyStorage(deps: FileReads, storage: Storage, rows: readonly ContentRow[], hashes: boolean) {
  const expected = new Map(rows.map((row) => [row.key, row]))
  const unknown: string[] = []
  const wrong: FileDifference[] = []
  let contents = 0
  for await (const { key, size } of storage.list('')) {
    if (key.startsWith(backupsFolder)) continue
    contents += 1
    const row = expected.get(key)
    expected.delete(key)
    if (row === undefined) unknown.push(key)
    else if (row.size !== size) wrong.push({ kind: 'size', storage: storage.name, key })
    else if (hashes && row.hash !== null && row.hash !== (await hashOf(storage, key)))
      wrong.push({ kind: 'hash', storage: storage.name, key })
  }
  const missing = await filtered([...expected.keys()], async (key) => {
    return (await isNamed(deps, storage.name, key)) && (await storage.stat(key)) === undefined
  })
  const orphans = await filtered(unknown, async (key) => {
    return !(await isKnown(deps, storage.name, key)) && (await storage.stat(key)) !== undefined
  })
  const as = (kind: FileDifference['kind']) => (key: string) => ({ kind, storage: storage.name, key })
  return { contents, differences: [...wrong, ...missing.map(as('missing')), ...orphans.map(as('orphan'))] }
}

async function filtered(keys: readonly string[], isSo: (key: string) => Promise<boolean>): Promise<string[]> {
  const found: string[] = []
  for (const key of keys) if (await isSo(key)) found.push(key)
  return found
}

async function hashOf(storage: Storage, key: string): Promise<string | undefined> {
  const content = await storage.read(key)
  if (content === undefined) return undefined
  const digest = createHash('sha256')
  await pipeline(content, digest)
  return digest.digest('hex')
}

const namedSql = `exists (select from "svc_File" where storage = $1 and filename = regexp_replace($2, '^.*/', '')
  and coalesce(storage_folder, '') = regexp_replace($2, '(^|/)[^/]*$', ''))`

const isNamed = ({ db }: Reads, storage: string, key: string): Promise<boolean> => ask(db, namedSql, storage, key)

/** Named by a row, made of what one names, or held or to be removed. */
const isKnown = ({ db }: Reads, storage: string, key: string): Promise<boolean> =>
  ask(
    db,
    `${namedSql} or exists (select from "svc_FileVariant" where storage = $1 and key = $2)
     or exists (select from "svc_FileRemoval" where storage = $1 and key = $2)`,
    storage,
    key,
  )

async function ask(db: Reads['db'], condition: string, ...values: readonly string[]): Promise<boolean> {
  const { is } = await db.one<{ is: boolean }>(rawQuery(`select ${condition} as is`, values))
  return is
}

async function usageDifferences({ db }: Reads): Promise<FileDifference[]> {
  const rows = await db.any<{ storage: string; key: string }>(sql`
    select coalesce(u.storage, f.storage) as storage, coalesce(u.tenant, f.tenant)::text as key
    from (select tenant, storage, sum(files) as files, sum(bytes) as bytes from "svc_FileUsage" group by 1, 2) u full join (
      select coalesce("tenant_Id", '00000000-0000-0000-0000-000000000000') as tenant, storage, count(*) as files, sum(size) as bytes
      from "svc_File" group by 1, 2) f on f.tenant = u.tenant and f.storage = u.storage
    where coalesce(u.files, 0) <> coalesce(f.files, 0) or coalesce(u.bytes, 0) <> coalesce(f.bytes, 0)`)
  return rows.map((row) => ({ kind: 'usage', ...row }))
}
