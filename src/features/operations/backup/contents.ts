/** The content of files in a backup: by its hash, none twice, with the places that rows of svc_File name for it. */
import { createHash } from 'node:crypto'
import type { PgClient } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import { keyOf, type Storage, type StorageServices } from '../../files/storage/storage.ts'
import type { Pieces } from './format.ts'

type Place = { readonly storage: string; readonly key: string; readonly type: string }

/** Content and where it is. Rows from before contents had hashes are each a content of their own. */
export type BackedUpContent = { readonly hash: string | null; readonly size: number; readonly places: readonly Place[] }

const placesSql = `declare contents no scroll cursor for
  select hash, coalesce(hash, id::text) as one, storage, storage_folder as folder, filename, type, size::float8 as size
  from "public"."svc_File" order by coalesce(hash, id::text), storage, storage_folder, filename`

type Row = {
  readonly hash: string | null
  readonly one: string
  readonly storage: string
  readonly folder: string | null
  readonly filename: string
  readonly type: string
  readonly size: number
}

/** All of them as the transaction of the client sees them. */
export async function* contentsIn(client: PgClient): AsyncGenerator<BackedUpContent> {
  await client.query(placesSql)
  let group: Row[] = []
  for (;;) {
    const { rows } = await client.query<Row>('fetch 1000 from contents')
    for (const row of rows) {
      if (group.length > 0 && group[0]!.one !== row.one) {
        yield contentOf(group)
        group = []
      }
      group.push(row)
    }
    if (rows.length > 0) continue
    if (group.length > 0) yield contentOf(group)
    return
  }
}

function contentOf(rows: readonly Row[]): BackedUpContent {
  const places = new Map<string, Place>()
  for (const { storage, folder, filename, type } of rows) {
    const key = keyOf(folder, filename)
    places.set(`${storage} ${key}`, { storage, key, type })
  }
  return { hash: rows[0]!.hash, size: rows[0]!.size, places: [...places.values()] }
}

/** The content from the first of its places that has it; undefined where none has. */
export async function readContent(
  { storages }: StorageServices,
  { places }: Pick<BackedUpContent, 'places'>,
): Promise<Pieces | undefined> {
  for (const { storage, key } of places) {
    const found = await storages.holding(storage).read(key).catch(nothingThere)
    if (found !== undefined) return found
  }
  return undefined
}

/** A row that somebody has written by SQL may name what is no key: nothing can have been stored there. */
function nothingThere(error: unknown): undefined {
  if (!(error instanceof AppError) || error.code !== 'INVALID_PATH') throw error
}

/**
 * Puts content where rows name it. Equal content that exists already stays.
 *
 * @throws {AppError} 409 where something else is in its place
 */
export async function writeContent(
  { storages }: StorageServices,
  stored: BackedUpContent,
  content: Pieces,
): Promise<void> {
  const missing: Place[] = []
  for (const place of stored.places)
    if (!(await isThere(storages.holding(place.storage), place, stored))) missing.push(place)
  const [first, ...others] = missing
  // Not read: the reader of the backup passes over it.
  if (first === undefined) return
  await storages.holding(first.storage).write(first.key, content, { type: first.type })
  for (const other of others) {
    const service = storages.holding(other.storage)
    if (other.storage === first.storage) await service.copy(first.key, other.key)
    else await service.write(other.key, (await storages.holding(first.storage).read(first.key))!, { type: other.type })
  }
}

async function isThere(service: Storage, { key }: Place, { hash, size }: BackedUpContent): Promise<boolean> {
  const found = await service.stat(key)
  if (found === undefined) return false
  if (found.size === size && (hash === null || (await hashAt(service, key)) === hash)) return true
  throw new AppError(409, `There is other content at ${service.name} ${key}: the files go to an empty place`, {
    code: 'CONTENT_EXISTS',
  })
}

async function hashAt(service: Storage, key: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const piece of (await service.read(key)) ?? []) hash.update(piece)
  return hash.digest('hex')
}

/** Text compresses well. */
export const isText = ({ places }: BackedUpContent): boolean =>
  /^text\/|[/+](json|xml|javascript|csv)$|svg/.test(places[0]?.type ?? '')
