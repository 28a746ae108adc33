import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import { rawQuery, type Tx, type UnloggedWrites } from '../../../db/sql.ts'
import {
  type ContentKey,
  claimDueContent,
  forgetContent,
  type RemovableContent,
  scheduleRemoval,
} from '../../../db/unlogged/files.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type Consumer, type EventImages, imagesOf } from '../../../events/consumer.ts'
import { systemActor } from '../../../events/types.ts'
import { keyOf, type StorageServices } from '../storage/storage.ts'

/** The capabilities to remove content. */
type Removal = UnloggedWrites & StorageServices & Logs

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
export async function removeDueContent(deps: Removal, signal: AbortSignal): Promise<void> {
  for (;;) {
    const due = signal.aborted ? [] : await claimDueContent(deps, atOnce)
    await Promise.all(due.map((content) => removeContent(deps, content)))
    if (due.length < atOnce) return
  }
}

async function removeContent(deps: Removal, content: RemovableContent): Promise<void> {
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
export const contentOfVersions = (tx: Tx, id: string): Promise<readonly ContentKey[]> =>
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

/** Has content removed that no row names and nobody holds, as `verifyFiles` finds it. */
export async function removeOrphans(deps: Writes, orphans: readonly ContentKey[]): Promise<void> {
  await commit(deps, systemActor, async (tx) => {
    await scheduleRemoval(tx, orphans, graceSeconds)
    return { result: null }
  })
}
