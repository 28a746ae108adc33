import type { Logs } from '../../../adapters/logger.ts'
import { workFor } from '../../../admission/asker.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import type { Progress, ProgressNotices } from '../../../events/progress.ts'
import { insertNotification, updateNotification } from './queries.ts'

/** Quicker work reports only by its answer; and the interval of progress messages. */
const usual = { quietMs: 3000, everyMs: 2000 }

const silent: Progress = { at: () => undefined, ended: async () => undefined }

/**
 * Tells users how far things are that take long: by one notification each, which changes until the end. It is not worth a
 * failure of what it tells of.
 */
export function openProgress(deps: Writes & Logs, { quietMs, everyMs } = usual): ProgressNotices['progress'] {
  return (actor, about) => {
    const { userId, tenantId = null } = actor
    if (userId === undefined) return silent
    // Progress notifications are no part of the answer that a repeated request gets.
    const teller = { ...actor, repeatable: undefined, guard: undefined, request: undefined }
    const began = performance.now()
    let told = began
    let id: string | undefined
    let last = Promise.resolve()
    const write = async (message: string, data: object) => {
      id = await commit(deps, teller, async (tx) => {
        // Deleted by its user, it stays so.
        if (id !== undefined) await updateNotification(tx, id, { message, data })
        return { result: id ?? (await insertNotification(tx, { userId, tenantId, ...about, message, data })) }
      })
    }
    const tell = (message: string, data: object) => {
      told = performance.now()
      last = last
        .then(() => workFor({ caller: 'progress', gone: undefined, places: 0 }, () => write(message, data)))
        .catch((error: unknown) => deps.log.warn({ err: error, ...about }, 'progress could not be sent to a user'))
    }
    return {
      at: (message, data) => {
        const now = performance.now()
        if (now - began > quietMs && now - told > everyMs) tell(message, { ...data, isDone: false })
      },
      ended: async (message, data) => {
        if (id === undefined && performance.now() - began <= quietMs) return
        tell(message, { ...data, isDone: true })
        await last
      },
    }
  }
}
