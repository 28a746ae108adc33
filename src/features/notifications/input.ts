import { AppError, errors } from '../../errors.ts'
import { isObject } from '../../query/guards.ts'
import { collectParameters, readStrings } from '../../query/wire.ts'
import { isUuid } from '../../uuid.ts'

/** One notification for many users. */
export type NewNotification = {
  readonly type: string
  readonly title: string
  readonly message: string
  /** Whatever the client of the user needs; JSON. */
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

/** 400 for anything that is no notification, and for more than a thousand users. */
export function newNotificationOf(body: unknown): NewNotification {
  const { type, title, message, data, userIds, tenant_Id } = objectOf(body)
  if (data !== undefined && JSON.stringify(data).length > largestData)
    throw errors.badBody(`data must be at most ${largestData} characters of JSON`)
  return {
    type: requiredText('type', type, 255),
    title: requiredText('title', title, 255),
    message: requiredText('message', message, longestMessage),
    data: data ?? null,
    userIds: usersOf(userIds),
    tenantId: tenantOf(tenant_Id),
  }
}

/** The ids that a request is about; undefined where it names none, which means all. 400 for anything else. */
export function idsOfBody(body: unknown): readonly string[] | undefined {
  if (body === undefined || body === null) return undefined
  const { notificationIds } = objectOf(body)
  if (notificationIds === undefined || notificationIds === null) return undefined
  if (!Array.isArray(notificationIds)) throw badIds()
  return checkedIds(notificationIds)
}

/** The same from a query string, as JSON, as comma list or as repeated key: clients differ (decisions). */
export function idsOfQuery(query: Readonly<Record<string, unknown>>): readonly string[] | undefined {
  const given = collectParameters(query, new Set(['notificationIds']), false)
  if (!given.has('notificationIds')) return undefined
  const ids = readStrings('notificationIds', given.get('notificationIds'))
  // Empty text is no way to ask for the deletion of everything.
  if (ids === undefined) throw badIds()
  return checkedIds(ids)
}

/** After how many days a notification is old; 30 where nothing is said. */
export function daysOf(body: unknown): number {
  const { days = 30 } = body === undefined || body === null ? {} : objectOf(body)
  if (typeof days !== 'number' || !Number.isInteger(days) || days < 1 || days > longestDays)
    throw errors.badBody(`days must be a whole number from 1 to ${longestDays}`)
  return days
}

function objectOf(body: unknown): Readonly<Record<string, unknown>> {
  if (!isObject(body)) throw errors.badBody('Request body must be an object')
  return body
}

function requiredText(name: string, value: unknown, longest: number): string {
  if (typeof value !== 'string' || value.trim() === '') throw errors.badBody(`${name} is required`)
  if (value.length > longest) throw errors.badBody(`${name} must be at most ${longest} characters long`)
  if (value.includes('\0') || !value.isWellFormed()) throw errors.badBody(`${name} must be valid Unicode text`)
  return value
}

function usersOf(value: unknown): readonly string[] {
  if (!Array.isArray(value) || value.length === 0)
    throw errors.badBody('userIds is required and must be a non-empty array')
  if (value.length > usersAtMost) throw errors.badBody(`userIds must be at most ${usersAtMost}`)
  if (!value.every(isUuid)) throw errors.badBody('userIds must be ids of users')
  return [...new Set(value.map((id) => id.toLowerCase()))]
}

function tenantOf(value: unknown): string | null | undefined {
  if (value === undefined || value === null) return value
  if (!isUuid(value)) throw errors.badBody('tenant_Id must be the id of a tenant')
  return value.toLowerCase()
}

function checkedIds(ids: readonly unknown[]): readonly string[] {
  if (ids.length > idsAtMost) throw errors.badBody(`notificationIds must be at most ${idsAtMost}`)
  if (!ids.every(isUuid)) throw badIds()
  return ids
}

const badIds = () => new AppError(400, 'notificationIds must be an array of ids')
