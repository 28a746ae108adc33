import { createHash, randomUUID } from 'node:crypto'
import { goneSignal } from '../../../admission/asker.ts'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, sql } from '../../../db/sql.ts'
import { hastenRemoval, holdContent, releaseContent } from '../../../db/unlogged/files.ts'
import { dropLock, takeLock } from '../../../db/unlogged/work.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { keyOf } from '../storage/storage.ts'
import { type ContentLocation, contentOf, copyContent, discardContent, type FileWrites } from './content.ts'
import { nameOfReplacement } from './names.ts'

/** Which files are moved, and where to. Moved again, a file is none of them. */
type FileMove = {
  /** On a row `f`. */
  readonly where: string
  readonly values: readonly string[]
  readonly target: (row: MovableRow) => Omit<ContentLocation, 'filename'>
}

type MovableRow = ContentLocation & {
  readonly id: string
  readonly size: number
  readonly type: string
  readonly hash: string | null
  readonly tenantId: string | null
  readonly userId: string | null
}

export type Moved = {
  readonly scanned: number
  readonly moved: number
  /** Changed or deleted meanwhile. */
  readonly skipped: number
  readonly failed: number
  /** The first failures: ids of files and what was wrong. */
  readonly errors: readonly { readonly id: string; readonly message: string }[]
}

/** Files of the flat layout to the folders of their tenant and user. */
export const toFolders: FileMove = {
  where: 'f.storage_folder is null',
  values: [],
  target: ({ tenantId, userId, storage }) => ({
    storage,
    folder: folderOf({ tenantId: tenantId ?? undefined, userId: userId ?? undefined }),
  }),
}

/** Files of all other services to one. 400 for a service that is not configured. */
export function toService({ storages }: Pick<FileWrites, 'storages'>, name: string): FileMove {
  const { name: storage } = storages.named(name)
  return { where: 'f.storage <> $1', values: [storage], target: ({ folder }) => ({ storage, folder }) }
}

export async function countMovable({ db }: Reads, { where, values }: FileMove): Promise<number> {
  const { n } = await db.one<{ n: number }>(
    rawQuery(`select count(*)::int as n from "svc_File" f where ${where}`, values),
  )
  return n
}

const atOnce = 4
const perPage = 100
const lockSeconds = 60
const renewMs = 15_000
const mostErrors = 100

/**
 * Moves files while they are served: the content is copied, the row follows in a commit, and what is at the old place goes
 * after a while. It can be killed at any moment and run again. `tell` hears how far it is.
 *
 * @throws {AppError} 409 while another one runs, and when another one has begun because this one could not say that it lives
 */
export async function moveFiles(
  deps: FileWrites,
  actor: Actor,
  move: FileMove,
  tell: (done: Moved) => void = () => undefined,
): Promise<Moved> {
  const lock = await holdLock(deps)
  const done = { scanned: 0, moved: 0, skipped: 0, failed: 0, errors: [] as { id: string; message: string }[] }
  let after = '00000000-0000-0000-0000-000000000000'
  try {
    for (;;) {
      goneSignal()?.throwIfAborted()
      const page = await movable(deps, move, after)
      if (page.length === 0) return done
      for (let i = 0; i < page.length; i += atOnce) {
        await lock.renew()
        await Promise.all(page.slice(i, i + atOnce).map((row) => moveOne(deps, actor, move, row, done)))
        tell(done)
      }
      after = page.at(-1)!.id
    }
  } finally {
    await lock.release()
  }
}

const lockName = 'files: a move'

/** Holds the lock until `release`, however long a file takes. `renew` throws 409 when another holds it. */
async function holdLock(deps: FileWrites) {
  const holder = randomUUID()
  const renew = async () => {
    if (!(await takeLock(deps, lockName, holder, lockSeconds))) throw errors.conflict('Files are being moved already')
  }
  await renew()
  const renewal = setInterval(() => {
    renew().catch((error: unknown) => deps.log.warn({ err: error }, 'the lock of a move of files could not be renewed'))
  }, renewMs)
  const release = async () => {
    clearInterval(renewal)
    await dropLock(deps, lockName, holder)
  }
  return { renew, release }
}

const nameOfCopy = ({ id, filename }: MovableRow): string =>
  nameOfReplacement(id, filename.replace(/^[0-9a-f-]{36}-([0-9a-f]{8}-)?/, ''))

async function moveOne(
  deps: FileWrites,
  actor: Actor,
  { target }: FileMove,
  row: MovableRow,
  done: { scanned: number; moved: number; skipped: number; failed: number; errors: { id: string; message: string }[] },
): Promise<void> {
  done.scanned += 1
  try {
    // A name of its own: nothing that another run has begun or done is in the way, or at stake.
    const isMoved = await moveContentOf(deps, actor, row, { ...target(row), filename: nameOfCopy(row) })
    done[isMoved ? 'moved' : 'skipped'] += 1
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    done.failed += 1
    deps.log.warn({ err: error, file: row.id }, 'a file could not be moved')
    if (done.errors.length < mostErrors) done.errors.push({ id: row.id, message: error.message })
  }
}

/** Of content and copy together; renewed by no one, since a copy that takes longer has lost its line. Seconds. */
const holdSeconds = 3600
/** Readers that began at the old place finish. Seconds. */
const graceSeconds = 60

async function moveContentOf(deps: FileWrites, actor: Actor, row: MovableRow, to: ContentLocation): Promise<boolean> {
  const [from, target] = [contentOf(row), contentOf(to)]
  if (!(await holdContent(deps, target, holdSeconds))) throw errors.unavailable('The copy took too long')
  let isMoved = false
  try {
    await copyContent(deps, from, target, row.type)
    await requireSame(deps, row, to)
    isMoved = await commit(deps, actor, async (tx) => {
      const changed = await tx.any(sql`
        update "svc_File"
        set storage = ${to.storage}, storage_folder = ${to.folder}, filename = ${to.filename}, "updatedAt" = now()
        where id = ${row.id}::uuid and storage = ${row.storage} and storage_folder is not distinct from ${row.folder}
          and filename = ${row.filename} returning 1`)
      if (changed.length === 0) return { result: false }
      if (!(await releaseContent(tx, target))) throw errors.unavailable('The copy took too long')
      await hastenRemoval(tx, [from], graceSeconds)
      return { result: true }
    })
    return isMoved
  } finally {
    if (!isMoved) await discardContent(deps, to)
  }
}

/** A copy in another service is read again before the row names it. */
async function requireSame({ storages }: FileWrites, row: MovableRow, to: ContentLocation): Promise<void> {
  const storage = storages.holding(to.storage)
  const key = keyOf(to.folder, to.filename)
  const stored = await storage.stat(key)
  if (stored?.size !== row.size) throw errors.conflict('the content is not of the size that its row says')
  if (to.storage === row.storage || row.hash === null) return
  const digest = createHash('sha256')
  for await (const piece of (await storage.read(key)) ?? []) digest.update(piece)
  if (digest.digest('hex') !== row.hash) throw errors.conflict('the content is not what its row says')
}

async function movable({ db }: Reads, { where, values }: FileMove, after: string): Promise<readonly MovableRow[]> {
  const rows = await db.any<Omit<MovableRow, 'size'> & { size: string }>(
    rawQuery(
      `select f.id, f.storage, f.storage_folder as folder, f.filename, f.size::text as size, f.type, f.hash,
         f."tenant_Id" as "tenantId", f."userCreated_Id" as "userId"
       from "svc_File" f where ${where} and f.id > $${values.length + 1}::uuid order by f.id limit ${perPage}`,
      [...values, after],
    ),
  )
  return rows.map((row) => ({ ...row, size: Number(row.size) }))
}

/** The owner of a file; both members may be missing. */
export type FileOwner = { readonly tenantId: string | undefined; readonly userId: string | undefined }

/** The folder of new content with STORAGE_FOLDER_STRUCTURE; ids only, so it is a path of names. */
export function folderOf({ tenantId, userId }: FileOwner): string {
  const user = userId === undefined ? 'system' : `users/${userId}`
  return tenantId === undefined ? user : `tenants/${tenantId}/${user}`
}
