import { AppError } from '../../errors.ts'
import { isObject } from '../../query/guards.ts'
import { roomBounds } from './rooms.ts'

/** What clients send about rooms, checked. Errors have the words of realtime facts §1 where it has some. */

export function membersOfRequest(request: unknown): Readonly<Record<string, unknown>> {
  return isObject(request) ? request : {}
}

export function roomNameOf(value: unknown): string {
  if (!isName(value)) throw new AppError(400, 'Invalid room name')
  return value
}

/** What the names of listed rooms begin with; nothing where nothing is said. */
export function prefixOf(value: unknown): string {
  if (value === undefined || value === null || value === '') return ''
  return roomNameOf(value)
}

/** Names of the server's own events after `room:` are not for clients (quality R-09). */
const serverEvents = /^(user:|creator:|(kicked|resync|join|leave|message|members|kick|list)$)/

export function eventOf(value: unknown): string {
  if (!isName(value) || serverEvents.test(value)) throw new AppError(400, 'Invalid event name')
  return value
}

export function userIdOf(value: unknown): string {
  if (typeof value !== 'string' || value === '' || value.length > 100) throw new AppError(400, 'userId is required')
  return value.toLowerCase()
}

/** As JSON text; undefined where there is none. */
export function metadataOf(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined
  return jsonOf('metadata', value, roomBounds.metadata)
}

/** As JSON text. */
export function payloadOf(value: unknown): string {
  return jsonOf('payload', value ?? null, roomBounds.payload)
}

function jsonOf(what: string, value: unknown, longest: number): string {
  const text = JSON.stringify(value, function (this: Record<string, unknown>, key, member) {
    if (ArrayBuffer.isView(this[key]) || this[key] instanceof ArrayBuffer)
      throw new AppError(400, `${what} must be JSON, without binary data`)
    return member
  })
  if (text.length > longest) throw new AppError(413, `${what} must be at most ${longest} characters of JSON`)
  return text
}

/** A control character in a name is a mistake or an attempt at something. */
function isName(value: unknown): value is string {
  if (typeof value !== 'string' || value.trim() === '' || value.length > roomBounds.name) return false
  return value.isWellFormed() && !/\p{Cc}/u.test(value)
}
