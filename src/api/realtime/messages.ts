import type { Socket } from 'socket.io'
import type { Static } from 'typebox'
import type { Caller } from '../../access/principal.ts'
import { scopeRefusal } from '../../access/scopes.ts'
import type { CurrentAccess } from '../../access/store.ts'
import type { Logs } from '../../adapters/logger.ts'
import { Type } from '../../adapters/typebox.ts'
import type { Configuration } from '../../config/config.ts'
import { clientError } from '../../db/errors.ts'
import { AppError } from '../../errors.ts'
import { statedRefusal } from '../../features/data/hooks/hooks.ts'
import { accountabilityOf } from '../../features/data/items/items.ts'
import { roomBounds, type SocketUser } from '../../features/messaging/rooms/rooms.ts'
import { unkeepable } from '../../http/json-values.ts'
import { readAs } from '../../http/shapes.ts'
import { asExtension } from '../../language/extension-code.ts'
import type { RealtimeReads } from '../capabilities.ts'

/*
 * Messages of clients on the realtime channel, and their answers (docs/realtime.md, docs/rooms.md). A message that is
 * not an object counts as an empty one; a member that does not fit is refused with 400 and its `refusal`.
 */

const anything = Type.Optional(Type.Unknown())

const collection = Type.Refine(Type.String({ refusal: 'collection is required' }), (name) => name.length <= 63)

/** A control character in a name is a mistake or an attempt at something. */
const isName = (value: string): boolean =>
  value.trim() !== '' && value.length <= roomBounds.name && value.isWellFormed() && !/\p{Cc}/u.test(value)

const room = Type.Refine(Type.String({ refusal: 'Invalid room name' }), isName)

/** After `room:` these names are what the server itself sends (rooms.ts): clients may not send them as events. */
const serverEvents: ReadonlySet<string> = new Set(['user:joined', 'user:left', 'creator:changed', 'kicked', 'resync'])

const roomEvent = Type.Refine(
  Type.String({ refusal: 'Invalid event name' }),
  (name) => isName(name) && !serverEvents.has(name),
)

const userId = Type.String({ minLength: 1, refusal: 'userId is required' })

const taskId = Type.Refine(
  Type.Union([Type.String(), Type.Number()], { refusal: 'taskId is required' }),
  (id: string | number) => /^\d{1,10}$/.test(String(id)),
)

/** Every message of a client, by the name of its event. Of those with `anything` the reader of that member says more. */
const messages = {
  subscribe: Type.Object({ collection, since: anything, snapshot: anything, filter: anything, fields: anything }),
  unsubscribe: Type.Object({ collection }),
  /** The other members are a report's body. */
  'report:subscribe': Type.Object({ collection: Type.String({ refusal: 'collection is required' }) }),
  'report:unsubscribe': Type.Object({ id: anything }),
  'task:join': Type.Object({ taskId }),
  'task:leave': Type.Object({ taskId }),
  'workflow:execution:join': Type.Object({
    executionId: Type.String({
      format: 'uuid',
      refusal: { required: 'executionId is required', otherwise: 'executionId must be a UUID' },
    }),
  }),
  custom: Type.Object({ event: anything, payload: anything }, { lenient: true }),
  'room:join': Type.Object({ room, metadata: anything }),
  'room:leave': Type.Object({ room }),
  'room:message': Type.Object({ room, event: roomEvent, payload: anything, history: anything }),
  'room:members': Type.Object({ room }),
  'room:kick': Type.Object({
    room,
    userId: Type.Refine(userId, (id) => id.length <= 100),
  }),
  'room:list': Type.Object({
    prefix: Type.Optional(Type.Union([room, Type.Literal(''), Type.Null()], { refusal: 'Invalid room name' })),
  }),
}

/** The messages that change something; a client's token needs `write` for them, and `read` for all others. */
const writing: ReadonlySet<string> = new Set(['custom', 'room:message', 'room:kick'])

type MessageOf<Name extends keyof typeof messages> = Static<(typeof messages)[Name]>

/** Throws AppError 400, in the words of the first member that does not fit. */
export const readMessage = <Name extends keyof typeof messages>(name: Name, request: unknown): MessageOf<Name> =>
  readAs(messages[name], request)

/** A member as JSON text; 413 for more than `longest` characters, 400 for binary data. */
export function jsonOf(what: string, value: unknown, longest: number): string {
  const text = JSON.stringify(value, function (this: Record<string, unknown>, key, member) {
    if (ArrayBuffer.isView(this[key]) || this[key] instanceof ArrayBuffer)
      throw new AppError(400, `${what} must be JSON, without binary data`)
    return member
  })
  if (text.length > longest) throw new AppError(413, `${what} must be at most ${longest} characters of JSON`)
  return text
}

/** Answers `{status:"success", …}` or `{status:"error", code, message}`; of a fault of ours it says no more than that. */
export async function answer({ log }: Logs, ack: unknown, work: () => Promise<object>): Promise<void> {
  const reply = typeof ack === 'function' ? ack : () => {}
  try {
    reply({ status: 'success', ...(await work()) })
  } catch (error) {
    const known = clientError(error)
    if (known === undefined) log.error({ err: error }, 'a socket request failed')
    else if (known.status >= 500) log.warn({ err: error }, known.message)
    reply(errorAnswer(known))
  }
}

function errorAnswer(error: unknown): { status: 'error'; code: string; message: string } {
  const { code, message } = error instanceof AppError ? error : new AppError(500, 'Internal server error')
  return { status: 'error', code, message }
}

/** `acknowledge` is the client's callback where it waits for an answer. */
export type MessageHandler = (socket: Socket, request: unknown, acknowledge: unknown) => Promise<void>

/**
 * Hands each message of a client to the handler of its name. Other names, such as those that only the server sends, are refused,
 * and so are values that cannot be kept. A client that waits for an answer gets one. A listener for each name would be a fifth
 * of the memory of an idle connection.
 */
export function handleMessages(socket: Socket, handlers: ReadonlyMap<string, MessageHandler>): void {
  socket.use(([name, ...rest]) => {
    // Messages that came in one piece are read in turn: one of those before this one may have ended the connection.
    if (!socket.connected) return
    if (typeof name !== 'string') return void socket.disconnect(true)
    const { access } = callerOf(socket)
    // To join a room is to be seen there.
    const isWrite = writing.has(name) || (access.isPreview === true && name === 'room:join')
    const handle = handlers.get(name)
    const refusal =
      handle === undefined
        ? unknownEvent()
        : (scopeRefusal(access, isWrite ? 'write' : 'read') ?? unkeepable(rest, 'The message'))
    // A message may come without a payload.
    const acknowledge: unknown = rest.at(-1)
    const request: unknown = typeof rest[0] === 'function' ? undefined : rest[0]
    if (refusal === undefined) return void handle!(socket, request, acknowledge)
    if (typeof acknowledge === 'function') acknowledge(errorAnswer(refusal))
  })
}

const unknownEvent = () => new AppError(400, 'Unknown event', { code: 'UNKNOWN_EVENT' })

/**
 * `custom {event, payload}`: to the handler that an extension has registered for the event. It answers by `ack`, or by
 * its return value if it takes no `ack`. An error that it throws is answered and logged; the process and the socket
 * continue.
 */
export async function dispatchMessage(
  deps: RealtimeReads,
  socket: Socket,
  request: unknown,
  ack: unknown,
): Promise<void> {
  const { event, payload } = readMessage('custom', request)
  const reply = once(ack)
  const handler = typeof event === 'string' ? deps.sockets.handlers.get(event) : undefined
  if (handler === undefined) {
    const message = `No handler registered for event: ${typeof event === 'string' ? event.slice(0, 128) : typeof event}`
    return reply(errorAnswer(new AppError(404, message, { code: 'UNKNOWN_EVENT' })))
  }
  try {
    const value = await asExtension(handler.owner, () => handler.fn(socketUser(deps, socket), payload, reply))
    if (value !== undefined || handler.fn.length < 3) reply({ status: 'success', data: value ?? null })
  } catch (error) {
    const refusal = statedRefusal(error)
    if (refusal === undefined) deps.log.error({ err: error, extension: handler.owner, event }, 'a handler failed')
    reply(errorAnswer(refusal ?? error))
  }
}

function once(ack: unknown): (answer: unknown) => void {
  let isAnswered = typeof ack !== 'function'
  return (answer) => {
    if (isAnswered) return // Throws where the answer cannot be sent: then an error can.
    ;(ack as (answer: unknown) => void)(answer)
    isAnswered = true
  }
}

/** The caller behind a socket, as looked up last. */
export const callerOf = (socket: Socket): Caller => (socket.data as { caller: Caller }).caller

export const userOf = (socket: Socket): string => callerOf(socket).userId ?? ''

/** The tenant that a socket is at; rooms and pushes of tenants are apart where there are tenants at all. */
export function tenantOf({ config }: Configuration, caller: Caller): string | undefined {
  return config.tenancy.enabled ? caller.tenantId : undefined
}

/** The view that extensions get of a socket: not the socket, which could join the rooms of the platform. */
export function socketUser(deps: Configuration & CurrentAccess, socket: Socket): SocketUser {
  const caller = callerOf(socket)
  const { headers, address: ip } = socket.handshake
  const userAgent = headers['user-agent']
  const { userId, tenantId, role, access, user } = caller
  const actor = { userId, tenantId, roleId: role.id, ip, userAgent, requestId: undefined }
  return Object.freeze({
    id: socket.id,
    userId: userOf(socket),
    tenantId: tenantOf(deps, caller),
    accountability: accountabilityOf(deps, { actor, access, user })!,
    emit: (event: string, payload: unknown) => void socket.emit(event, payload),
  })
}

/** The socket.io rooms of custom rooms and of the server's own pushes. No client names them. */
export const socketRoom = (key: string) => `room:${key}`
export const userRoom = (userId: string) => `user:${userId}`
export const tenantRoom = (tenantId: string | undefined) => `tenant:${tenantId ?? '-'}`
