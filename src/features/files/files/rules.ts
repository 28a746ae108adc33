import type { Logs } from '../../../adapters/logger.ts'
import { createdElsewhere, platformColumns } from '../../../catalog/system-collections.ts'
import type { Configuration } from '../../../config/config.ts'
import { rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import {
  type ContentKey,
  claimDueContent,
  forgetContent,
  hastenRemoval,
  holdContent,
  type RemovableContent,
  releaseContent,
  scheduleRemoval,
} from '../../../db/unlogged/files.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type Consumer, type EventImages, imagesOf } from '../../../events/consumer.ts'
import { systemActor } from '../../../events/types.ts'
import type { CollectionRules, Restoration } from '../../data/items/items.ts'
import { keyOf, type StorageServices } from '../storage/storage.ts'
import {
  type ContentLocation,
  type ContentWrites,
  contentGone,
  contentOf,
  discardContent,
  tookTooLong,
} from './content.ts'
import { tenantOf, usedBytesNow } from './queries.ts'

/** The columns of svc_File that describe the content. Only the content itself changes it. */
const contentColumns = platformColumns('svc_File')

/** The rules for rows of svc_File, however they are written. */
export const fileRules = (deps: ContentWrites): CollectionRules => ({
  createdElsewhere: createdElsewhere.get('svc_File')!,
  serversOwn: new Set(contentColumns),
  guard: quotaGuard(deps),
  protectedFields: { isPublic: ({ files }) => (files.protectIsPublic ? 'name' : 'wildcard') },
  restores: (_deps, version, present) => restoreContent(deps, version, present),
  // At once, and not after FILE_RETENTION_DAYS: no image of the row will say any more what it named.
  beforeErase: async (tx, id) => hastenRemoval(tx, await contentOfVersions(tx, id), 0),
})

const holdSeconds = 600

/**
 * Brings a file back to a version that names other content than the row does, or to a deleted row: the content must
 * still exist (FILE_RETENTION_DAYS), and is held until the row names it. 409 where it is gone.
 */
async function restoreContent(
  deps: ContentWrites,
  version: Readonly<Record<string, unknown>>,
  present: Readonly<Record<string, unknown>> | undefined,
): Promise<Restoration | undefined> {
  const named = ['storage', 'storage_folder', 'filename']
  if (present !== undefined && named.every((name) => (version[name] ?? null) === (present[name] ?? null)))
    return undefined
  for (const name of contentColumns) if (!(name in version)) throw errors.fieldDenied('read', name)
  const place: ContentLocation = {
    storage: String(version.storage),
    folder: (version.storage_folder as string | null) ?? null,
    filename: String(version.filename),
  }
  if (!(await holdContent(deps, contentOf(place), holdSeconds))) throw contentGone()
  const { storage, key } = contentOf(place)
  if ((await deps.storages.holding(storage).stat(key)) === undefined) {
    await discardContent(deps, place)
    throw contentGone()
  }
  return {
    values: Object.fromEntries(contentColumns.map((name) => [name, version[name] ?? null])),
    during: async (tx: Tx) => {
      if (!(await releaseContent(tx, contentOf(place)))) throw tookTooLong()
    },
  }
}

/* The limit of a tenant's files (STORAGE_QUOTA_TENANT). */

export const quotaExceeded = () => new AppError(413, 'The storage of this tenant is full', { code: 'STORAGE_QUOTA' })

/** 413 where a row that this transaction has written is too much for its tenant. */
export async function requireQuota({ config }: Configuration, tx: Tx, id: string): Promise<void> {
  const { quotaTenant } = config.storage
  const tenant = quotaTenant === undefined ? null : await tenantOf(tx, id)
  if (tenant !== null && (await usedBytesNow(tx, tenant)) > quotaTenant!) throw quotaExceeded()
}

/** Files that are given to another tenant count there from then on, so they must find room. */
const quotaGuard = (deps: Configuration): CollectionRules['guard'] => ({
  applies: (action, cells) =>
    action === 'update' &&
    deps.config.storage.quotaTenant !== undefined &&
    cells.some(({ field }) => field.name === 'tenant_Id'),
  async updates({ tx }, _context, changes) {
    const ids = changes.map(({ id }) => id)
    const rows = await tx.any<{ id: string; tenant: string | null }>(
      rawQuery(`select id, "tenant_Id" as tenant from "svc_File" where id = any($1::uuid[]) order by id for update`, [
        ids,
      ]),
    )
    const before = new Map(rows.map(({ id, tenant }) => [id, tenant]))
    return changes.map(({ id }) => ({
      cells: [],
      async after() {
        // One that is not there, or not the caller's to change, was not written.
        if (!before.has(id.toLowerCase())) return
        const moved = (await tenantOf(tx, id)) !== before.get(id.toLowerCase())
        if (moved) await requireQuota(deps, tx, id)
      },
    }))
  },
})

/** The capabilities to remove content. */
type RemovalWrites = UnloggedWrites & StorageServices & Logs

/** Readers that began with content finish; then it goes. Seconds. */
const graceSeconds = 60
const daySeconds = 86_400
const atOnce = 50

/**
 * Follows the log: content that a row named and does not name any more is removed after FILE_RETENTION_DAYS, whoever
 * deleted or replaced it.
 */
export function contentConsumer({ config }: Configuration): Consumer {
  const seconds = Math.max(graceSeconds, config.files.retentionDays * daySeconds)
  return {
    name: 'removal of content',
    wants: () => ({ collections: ['svc_File'], actions: ['update', 'delete'] }),
    onFailure: 'halt',
    paceMs: 2000,
    handle: async (tx, { events }) => {
      const images = await imagesOf(
        tx,
        events.map(({ position }) => position),
      )
      // The erasure itself has removed the content of events erased meanwhile.
      const gone = [...images.values()].flatMap((changes) => (changes === null ? [] : contentBefore(changes)))
      if (gone.length > 0) await scheduleRemoval(tx, gone, seconds)
      return undefined
    },
  }
}

/** The content that a change has left without a row: of a delete always, of an update where it names other content. */
function contentBefore({ before = {}, after }: EventImages): ContentKey[] {
  const isGone = after === undefined || ['storage', 'storage_folder', 'filename'].some((name) => name in before)
  const { storage, storage_folder: folder, filename } = { ...after, ...before } as Record<string, string | null>
  return isGone ? [{ storage: storage!, key: keyOf(folder ?? null, filename!) }] : []
}

/**
 * A job: removes what is due, with what was made of it. A service that is away keeps only its own content waiting, for
 * longer from time to time.
 */
export async function removeDueContent(deps: RemovalWrites, signal: AbortSignal): Promise<void> {
  for (;;) {
    const due = signal.aborted ? [] : await claimDueContent(deps, atOnce)
    await Promise.all(due.map((content) => removeContent(deps, content)))
    if (due.length < atOnce) return
  }
}

async function removeContent(deps: RemovalWrites, content: RemovableContent): Promise<void> {
  const { storage, key, variants, attempts } = content
  try {
    const service = deps.storages.holding(storage)
    for (const one of [...variants, key]) await service.delete(one)
    await forgetContent(deps, content)
  } catch (error) {
    deps.log.warn({ err: error, storage, key, attempts }, 'content could not be removed; it is tried again')
  }
}

/** The content of every version of a row that the log holds, but for what a row names now. */
const contentOfVersions = (tx: Tx, id: string): Promise<readonly ContentKey[]> =>
  tx.any<ContentKey>(rawQuery(versionsSql, [id]))

const versionsSql = `
  with versions as (
    select coalesce(image.row ->> 'storage', '') as storage, image.row ->> 'storage_folder' as folder,
           image.row ->> 'filename' as filename
    from "svc_AuditLog" l cross join lateral (
      values (case when l.action = 'update' then (l.changes -> 'after') || (l.changes -> 'before') else l.changes -> 'before' end),
             (l.changes -> 'after')) image (row)
    where l.type = 'data' and l.entity = 'svc_File' and l."entityId" = $1 and image.row ? 'filename')
  select distinct v.storage, case when coalesce(v.folder, '') = '' then v.filename else v.folder || '/' || v.filename end as key
  from versions v where not exists (select from "svc_File" f where f.storage = v.storage and f.filename = v.filename
    and coalesce(f.storage_folder, '') = coalesce(v.folder, ''))`

/** Has content removed that no row names and no upload holds, as `verifyFiles` finds it. */
export async function removeOrphans(deps: Writes, orphans: readonly ContentKey[]): Promise<void> {
  await commit(deps, systemActor, async (tx) => {
    await scheduleRemoval(tx, orphans, graceSeconds)
    return { result: null }
  })
}
