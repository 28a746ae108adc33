import type { Readable } from 'node:stream'
import type { Logs } from '../../../adapters/logger.ts'
import { Type } from '../../../adapters/typebox.ts'
import { workFor } from '../../../admission/asker.ts'
import { errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import type { Progress, ProgressNotices } from '../../../events/progress.ts'
import type { Actor } from '../../../events/types.ts'
import { Anything, closed, Filled, Id, readAs } from '../../../http/shapes.ts'
import { collectParameters, readStrings } from '../../../query/parse.ts'
import { changeItems, listItems, type Requester } from '../../data/items/items.ts'
import {
  deleteSomeOlderThan,
  insertNotification,
  isTenant,
  type NotificationReads,
  type NotificationWrites,
  notifications,
  ownNotifications,
  unknownUsers,
  updateNotification,
} from './queries.ts'

export { insertNotification, notifications, withOwnNotifications } from './queries.ts'

/** The reader's own notifications, as `/items` lists them, the newest first unless asked otherwise. */
export function listNotifications(
  deps: NotificationReads,
  reader: Requester,
  query: Readonly<Record<string, unknown>>,
): Promise<string | Readable> {
  const own = { ...reader, access: ownNotifications(reader.access) }
  return listItems(deps, own, notifications, newestFirst(query))
}

/**
 * One notification for each of the users, all or none, in one transaction; their ids in the order of the users.
 * Connected users get `svc_Notification:create`.
 *
 * @throws {AppError} 400 for users or a tenant that there are not
 */
export async function sendNotifications(
  deps: NotificationWrites,
  sender: Requester,
  { userIds, tenantId, ...content }: NewNotification,
): Promise<readonly string[]> {
  const db = sender.scope?.tx ?? deps.db
  const unknown = await unknownUsers(db, userIds)
  if (unknown.length > 0) throw errors.badBody('userIds: unknown users', { unknown })
  const tenant_Id = tenantId === undefined ? (sender.access.tenantId ?? null) : tenantId
  if (tenant_Id !== null && !(await isTenant(db, tenant_Id))) throw errors.badBody('tenant_Id: unknown tenant')
  const rows = userIds.map((userId) => ({ ...content, userId, tenant_Id }))
  const { ids } = await changeItems(deps, sender, notifications, { action: 'create', payloads: rows })
  return ids.map((id) => JSON.parse(id) as string)
}

/** Deletes everybody's notifications that are older than `days`, some at a time so that no lock is held for long. */
export async function cleanUpNotifications(deps: Writes, actor: Actor, days: number): Promise<number> {
  for (let deleted = 0; ; ) {
    const some = await deleteSomeOlderThan(deps, actor, days, deletedAtOnce)
    deleted += some
    if (some < deletedAtOnce) return deleted
  }
}

const deletedAtOnce = 2000

/** Of groups there is no newest one. */
function newestFirst(query: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const isChosen = Object.keys(query).some((key) => /^(sort|groupBy|aggregate|sortByRelevance)(\[|$)/.test(key))
  return isChosen ? { ...query } : { ...query, sort: '-createdAt' }
}

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

/** One notification for many users. */
type NewNotification = {
  readonly type: string
  readonly title: string
  readonly message: string
  /** JSON for the client of the user. */
  readonly data: unknown
  /** Canonical and without repeats. */
  readonly userIds: readonly string[]
  /** Undefined: the sender's. */
  readonly tenantId: string | null | undefined
}

const usersAtMost = 1000
const idsAtMost = 1000
const longestMessage = 10_000
const largestData = 16_384
const longestDays = 36_500

const requiredText = (name: string, maxLength: number, example: string) =>
  Filled(example, {
    maxLength,
    format: 'unicode',
    refusal: {
      maxLength: `${name} must be at most ${maxLength} characters long`,
      pattern: `${name} is required`,
      format: `${name} must be valid Unicode text`,
      otherwise: `${name} is required`,
    },
  })

export const NewNotificationShape = Type.Object(
  {
    type: requiredText('type', 255, 'info'),
    title: requiredText('title', 255, 'Your export is ready'),
    message: requiredText('message', longestMessage, 'You can download it for seven days.'),
    data: Type.Optional(
      Anything({ exportId: 7 }, { description: `For the client of the user; ${largestData} characters of JSON.` }),
    ),
    userIds: Type.Array(Id(), {
      minItems: 1,
      maxItems: usersAtMost,
      refusal: {
        maxItems: `userIds must be at most ${usersAtMost}`,
        format: 'userIds must be ids of users',
        otherwise: 'userIds is required and must be a non-empty array',
      },
    }),
    tenant_Id: Type.Optional(
      Type.Union([Id(), Type.Null()], {
        description: "The sender's tenant unless given; null for none.",
        refusal: 'tenant_Id must be the id of a tenant',
      }),
    ),
  },
  { refusal: 'Request body must be an object' },
)

/** 400 for anything that is no notification, and for more than a thousand users. */
export function newNotificationOf(body: unknown): NewNotification {
  const { data = null, userIds, tenant_Id, ...texts } = readAs(NewNotificationShape, body)
  if (JSON.stringify(data).length > largestData)
    throw errors.badBody(`data must be at most ${largestData} characters of JSON`)
  return {
    type: texts.type,
    title: texts.title,
    message: texts.message,
    data,
    userIds: [...new Set(userIds.map((id) => id.toLowerCase()))],
    tenantId: tenant_Id?.toLowerCase() ?? tenant_Id,
  }
}

const badIds = 'notificationIds must be an array of ids'

const Ids = Type.Array(Id(), {
  maxItems: idsAtMost,
  refusal: { maxItems: `notificationIds must be at most ${idsAtMost}`, otherwise: badIds },
})

/** The notifications that a request is about: all of the caller's unless it names some. */
export const NamedShape = Type.Object({ notificationIds: Type.Optional(Ids) }, closed)

/** The same from a query string, as JSON, as comma list or as repeated key: clients differ. */
export function idsOfQuery(query: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  const given = collectParameters(query, new Set(['notificationIds']), false)
  if (!given.has('notificationIds')) return undefined
  // Empty text is no way to ask for the deletion of everything.
  const notificationIds = readStrings('notificationIds', given.get('notificationIds')) ?? ''
  return readAs(NamedShape, { notificationIds }).notificationIds
}

export const CleanupShape = Type.Object(
  {
    days: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: longestDays,
        default: 30,
        examples: [90],
        refusal: `days must be a whole number from 1 to ${longestDays}`,
      }),
    ),
  },
  closed,
)
