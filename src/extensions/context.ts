import { Readable } from 'node:stream'
import type { Logger } from 'pino'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../access/store.ts'
import type { IdSource } from '../adapters/ids.ts'
import { Type } from '../adapters/typebox.ts'
import { withFreshCatalog } from '../catalog/store.ts'
import type { Configuration } from '../config/config.ts'
import type { Tx, UnloggedWrites } from '../db/sql.ts'
import { type Action, errors } from '../errors.ts'
import { type Actor, type Cause, systemActor } from '../events/types.ts'
import {
  type Accountability,
  actorOfHook,
  type Change,
  changeItems,
  type HookDb,
  type ItemWrites,
  insideScope,
  inTransaction,
  listItems,
  type OpenTransaction,
  type Requester,
  readItem,
  readingDb,
  requesterFor,
  scopeOfHook,
  updatesIn,
  wholeText,
  writingDb,
} from '../features/data/items/items.ts'
import {
  type AssetRow,
  type AssetWrites,
  contentsOf,
  fileNotFound,
  readableAsset,
  storedAsset,
} from '../features/files/assets/assets.ts'
import { type FileWrites, type Incoming, replaceFile, saveFile } from '../features/files/files/files.ts'
import {
  type Attachment,
  checkAttachments,
  type MailContext,
  type MailRequest,
  type MailType,
  mailTypes,
  queueMail,
  readAttachments,
  senderAddress,
} from '../features/messaging/mail/mail.ts'
import { newNotificationOf, sendNotifications } from '../features/messaging/notifications/notifications.ts'
import {
  type LiveRooms,
  type LiveStats,
  type MessageHandler,
  type PushTarget,
  push,
  type Room,
  type RoomValidator,
  type Sockets,
} from '../features/messaging/rooms/rooms.ts'
import { hasTemplate } from '../features/messaging/templates/templates.ts'
import type { Workflows } from '../features/work/workflows/workflows.ts'
import { Id, readAs, Text } from '../http/shapes.ts'
import { requirePlainRow } from '../language/plain-json.ts'
import { type Grant, systemAccess } from '../query/access.ts'
import { guardOfEndpoint, repeatableOfEndpoint } from './endpoint-requests.ts'

/** The platform's context for an extension; see docs/extensions.md. */
export type ExtensionContext = {
  readonly db: ExtensionDb
  readonly ItemsService: ItemsServiceClass
  readonly permissionService: PermissionService
  readonly mailService: MailService
  readonly notificationService: NotificationService
  readonly socketService: SocketService
  readonly storageService: StorageService
  /** Only where tasks are run: in the handlers of tasks and schedules. */
  readonly tasksService?: TasksService
  /** Lines carry the extension's name. */
  readonly log: Logger
}

type ExtensionDb = HookDb & {
  /** SQL that may write, in one transaction; the log records what changes. In a before-hook it is that of the change. */
  transaction<Result>(work: (db: HookDb) => Promise<Result>): Promise<Result>
}

type PermissionService = {
  /** Whether the role has a permission for it; which rows and fields it covers is decided where they are read. */
  hasPermission(accountability: Accountability | null, collection: string, action: Action): boolean
  /** The permission, with its fields and conditions; undefined where there is none, and for callers who may do everything. */
  permissionOf(accountability: Accountability | null, collection: string, action: Action): Grant | undefined
  /** Follows changes of roles and permissions that were made by SQL. */
  reload(): Promise<void>
}

const Described = Type.Optional(Type.Object({ id: Type.Optional(Id()) }))
/** With its id it is a row; without one it is what templates see of it. */
type Described = Readonly<Record<string, unknown>> & { readonly id?: string }
type About = Readonly<Record<string, unknown>> & { readonly user?: Described; readonly tenant?: Described }
const MailShape = Type.Object(
  {
    /** One plain address. */
    to: Text('ada@example.com', { refusal: 'Invalid email address' }),
    /** Liquid instead of the template's subject. */
    subject: Type.Optional(Text('Your export is ready')),
    /** The type of mail (features/messaging/mail/types.ts), or of a template; `templateName` is another word for it. */
    type: Type.Optional(Text('export-ready')),
    templateName: Type.Optional(Text('export-ready')),
    /** The address of a configured sender, instead of the one that the tenant's mails come from. */
    from: Type.Optional(Text('orders@example.com')),
    /** The data that the type needs, and the user that the mail concerns. */
    context: Type.Optional(Type.Unsafe<About>(Type.Object({ user: Described, tenant: Described }))),
    /** Stored files that go with it: their ids, or `{ file, filename }`. */
    attachments: Type.Optional(Type.Unsafe<readonly (string | Attachment)[]>({})),
  },
  { refusal: 'a mail must be an object' },
)
type MailOptions = Static<typeof MailShape>

type MailService = {
  /**
   * Queues a mail and gives the id of its svc_EmailLog row; the mail worker sends it. Part of the transaction in a
   * before-hook: a change that is refused sends nothing. Throws for an unknown type, 400 for a malformed address.
   */
  sendMail(mail: MailOptions): Promise<string>
}

type NotificationService = {
  /** `{type, title, message, data?, userIds, tenant_Id?}`; the ids of what was created, in the order of the users. */
  send(notification: object): Promise<readonly string[]>
}

type ContextOptions = {
  readonly tasksService?: TasksService | undefined
  /** Asked before every write. */
  readonly guard?: Actor['guard']
  /** The cause of all its changes. */
  readonly cause?: Cause | undefined
}

export function contextFor(
  deps: ExtensionWrites,
  extension: string,
  { tasksService, guard, cause }: ContextOptions = {},
): ExtensionContext {
  // Its changes without a user are a request of their own to the log; in a hook they share one with the hook's other
  // changes.
  const actor = (): Actor => {
    // An extension writes nothing, as whomever, for a caller who may write nothing, as in a preview.
    const hook = actorOfHook(deps)
    const own = {
      ...systemActor,
      userAgent: `daybook ${extension}`,
      guard: guard ?? hook?.guard ?? guardOfEndpoint(),
    }
    if (hook === undefined) return { ...own, logRequestId: deps.newId(), cause, repeatable: repeatableOfEndpoint() }
    return { ...own, requestId: hook.requestId, logRequestId: hook.logRequestId, agent: hook.agent, cause: hook.cause }
  }
  const requester = () => {
    const scope = scopeOfHook(deps)
    return { actor: scope === undefined ? actor() : (actorOfHook(deps) ?? scope.actor), access: systemAccess, scope }
  }
  const db = () => {
    const scope = scopeOfHook(deps)
    return scope === undefined ? readingDb(deps) : writingDb(scope)
  }
  return Object.freeze({
    db: {
      query: (text, values) => db().query(text, values),
      transaction: (work) => transact(deps, requester(), work),
    },
    ItemsService: itemsServiceFor(deps, actor),
    permissionService: permissionService(deps),
    mailService: {
      sendMail: (mail) =>
        inTransaction(deps, requester(), async ({ tx, scope }) => {
          const { emailLogId, event } = await queueMail(tx, await requestOf(deps, tx, mail))
          scope.events.push({ ...event, actor: actorOfHook(deps) ?? scope.actor })
          return emailLogId
        }),
    },
    notificationService: {
      send: async (notification) => {
        const sender = requester()
        const send = () => sendNotifications(deps, sender, newNotificationOf(notification))
        return sender.scope === undefined ? withFreshCatalog(deps.catalog, send) : send()
      },
    },
    socketService: socketServiceFor(deps, extension, () => scopeOfHook(deps)?.tx),
    storageService: storageServiceFor(deps, requester),
    ...(tasksService !== undefined && { tasksService }),
    log: deps.log.child({ extension }),
  } satisfies ExtensionContext)
}

/**
 * Gives what the work gives. Of a transaction that a repeated request has made before the work is not done again, and its result comes
 * from JSON; a result that is none cannot come back, and ends the repetition.
 */
async function transact<Result>(
  deps: ExtensionWrites,
  requester: Requester,
  work: (db: HookDb) => Promise<Result>,
): Promise<Result> {
  let made: { readonly result: Result } | undefined
  const { json } = await inTransaction(deps, requester, async ({ scope }) => {
    const run = () => work(writingDb(scope))
    // A hook is in it already, and acts as its caller.
    const isBegun = scopeOfHook(deps) !== undefined
    if (!isBegun) begun.add(scope)
    made = { result: await (isBegun ? run() : insideScope(deps, scope, run)) }
    return { json: requester.actor.repeatable === undefined ? undefined : jsonOf(made) }
  })
  if (made !== undefined) return made.result
  if (json === undefined) throw new Error('a transaction of a repeated request was done, and its result was no JSON')
  return JSON.parse(json).result
}

function jsonOf(value: object): string | undefined {
  try {
    return JSON.stringify(value)
  } catch (error) {
    if (error instanceof TypeError) return undefined
    throw error
  }
}

function permissionService(deps: CurrentAccess): PermissionService {
  const accessOf = (accountability: Accountability | null) =>
    accountability === null ? systemAccess : requesterFor(accountability).access
  return {
    hasPermission: (accountability, collection, action) => {
      const access = accessOf(accountability)
      return access.admin || access.grant(collection, action) !== undefined
    },
    permissionOf: (accountability, collection, action) => accessOf(accountability).grant(collection, action),
    reload: () => deps.access.reload(),
  }
}

/** A mail of the platform, or by a template: of svc_Template, or built in. */
async function requestOf(deps: ExtensionWrites, tx: Tx, options: MailOptions): Promise<MailRequest<MailType>> {
  const { to, subject, type, templateName, from, context = {} } = readAs(MailShape, options)
  const name = type ?? templateName ?? ''
  const { user, tenant, ...more } = context
  const own = Object.hasOwn(mailTypes, name) && name !== 'custom'
  if (!own && !(await hasTemplate(tx, name, tenant?.id ?? null)))
    throw new Error(
      `there is no active template ${JSON.stringify(name)}, nor is it one of: ${Object.keys(mailTypes).join(', ')}`,
    )
  const sender = from === undefined ? undefined : senderAddress(deps, tenant?.id, from)
  if (from !== undefined && sender === undefined) throw errors.badBody('from is not the address of a configured sender')
  const attachments = readAttachments(options.attachments)
  await checkAttachments(tx, deps.config, attachments, tenant?.id)
  return {
    type: own ? (name as MailType) : 'custom',
    to,
    context: own ? (more as MailContext[MailType]) : { template: name, variables: more },
    ...(subject !== undefined && { subject }),
    ...(sender !== undefined && { from: sender }),
    ...(user?.id !== undefined && { user: { id: user.id } }),
    ...(tenant?.id !== undefined && { tenantId: tenant.id }),
    ...aboutOf(user, tenant),
    attachments,
  }
}

/** Those that are no rows. */
function aboutOf(user: Described | undefined, tenant: Described | undefined): Pick<MailRequest<MailType>, 'about'> {
  const about = {
    ...(user !== undefined && user.id === undefined && { user }),
    ...(tenant !== undefined && tenant.id === undefined && { tenant }),
  }
  return Object.keys(about).length === 0 ? {} : { about }
}

/** The capabilities that changes of this folder need. */
export type ExtensionWrites = ItemWrites &
  UnloggedWrites &
  Configuration &
  IdSource &
  Sockets &
  FileWrites &
  AssetWrites &
  Workflows

type ItemRow = Record<string, unknown>
type ItemId = string | number

type ItemsServiceOptions = {
  /** The user to act as; without one the platform itself, which may do everything. */
  readonly accountability?: Accountability | null | undefined
}

/**
 * Items for extensions: what `/items` does, with the same checks, hooks and log. In a before-hook it reads and writes in
 * the transaction of the change, elsewhere every call is its own. Errors are those of the API.
 */
export type ItemsService = {
  /** A list and how many there are; `query` as in `/items/{collection}`, with plain values. */
  readByQuery(query?: ItemRow): Promise<{ data: ItemRow[]; totalCount?: number }>
  readOne(id: ItemId, query?: ItemRow): Promise<ItemRow>
  /** The id of the new item. */
  createOne(data: ItemRow): Promise<ItemId>
  createMany(data: readonly ItemRow[]): Promise<ItemId[]>
  updateOne(id: ItemId, data: ItemRow): Promise<ItemId>
  updateMany(changes: readonly ({ id: ItemId } & ItemRow)[]): Promise<ItemId[]>
  deleteOne(id: ItemId): Promise<ItemId>
  deleteMany(ids: readonly ItemId[]): Promise<ItemId[]>
}

export type ItemsServiceClass = new (collection: string, options?: ItemsServiceOptions) => ItemsService

/** The class for one extension; `actor` stands in the log for what it does without a user. */
function itemsServiceFor(deps: ExtensionWrites, actor: () => Actor): ItemsServiceClass {
  return class extends Items {
    constructor(collection: string, { accountability = null }: ItemsServiceOptions = {}) {
      super(deps, actor, collection, accountability)
    }
  }
}

class Items implements ItemsService {
  readonly #deps: ExtensionWrites
  readonly #actor: () => Actor
  readonly #collection: string
  readonly #accountability: Accountability | null

  constructor(deps: ExtensionWrites, actor: () => Actor, collection: string, accountability: Accountability | null) {
    this.#deps = deps
    this.#actor = actor
    this.#collection = collection
    this.#accountability = accountability
    if (accountability !== null) requesterFor(accountability)
  }

  async readByQuery(query: ItemRow = {}) {
    const list = await this.#fresh((reader) => listItems(this.#deps, reader, this.#collection, query))
    return JSON.parse(await wholeText(list))
  }

  async readOne(id: ItemId, query: ItemRow = {}) {
    const { body } = await this.#fresh((reader) => readItem(this.#deps, reader, this.#collection, String(id), query))
    return JSON.parse(body).data
  }

  async createOne(data: ItemRow) {
    requirePlainRow(data, 'data')
    return (await this.#change({ action: 'create', payloads: [data] }))[0]!
  }

  async createMany(data: readonly ItemRow[]) {
    for (const [index, row] of data.entries()) requirePlainRow(row, `data.${index}`)
    return this.#change({ action: 'create', payloads: data, asList: true })
  }

  async updateOne(id: ItemId, data: ItemRow) {
    requirePlainRow(data, 'data')
    return (await this.#change({ action: 'update', changes: [{ id: String(id), payload: data }] }))[0]!
  }

  async updateMany(changes: readonly ({ id: ItemId } & ItemRow)[]) {
    for (const [index, row] of changes.entries()) requirePlainRow(row, `changes.${index}`)
    return this.#change({ action: 'update', changes: updatesIn(this.#deps, this.#collection, changes) })
  }

  async deleteOne(id: ItemId) {
    const [gone] = await this.deleteMany([id])
    return gone!
  }

  async deleteMany(ids: readonly ItemId[]) {
    return this.#change({ action: 'delete', ids })
  }

  async #change(change: Change): Promise<ItemId[]> {
    const { ids } = await this.#fresh((requester) => changeItems(this.#deps, requester, this.#collection, change))
    return ids.map((id) => JSON.parse(id))
  }

  /** Within a transaction a retry must run all of the transaction again. */
  #fresh<Result>(work: (requester: Requester) => Promise<Result>): Promise<Result> {
    const requester = this.#requester()
    return requester.scope === undefined ? withFreshCatalog(this.#deps.catalog, () => work(requester)) : work(requester)
  }

  /** In the transaction of a change the log names the one whose change it is. */
  #requester(): Requester {
    const scope = scopeOfHook(this.#deps)
    const own =
      this.#accountability === null
        ? { actor: this.#actor(), access: systemAccess }
        : requesterFor(this.#accountability)
    if (scope === undefined || this.#isAsCaller(scope)) return { ...own, scope }
    return { ...own, actor: actorOfHook(this.#deps) ?? scope.actor, scope }
  }

  /** Whether it acts for somebody in a transaction that the extension has begun, and not for a hook within that. */
  #isAsCaller(scope: OpenTransaction): boolean {
    return this.#accountability !== null && begun.has(scope) && actorOfHook(this.#deps) === scope.actor
  }
}

/** The transactions that extensions have begun. */
const begun = new WeakSet<OpenTransaction>()

/** A waiting task, with the columns of svc_Tasks. */
export type WaitingTask = { readonly id: number; readonly type: string; readonly scheduled_time: string } & Readonly<
  Record<string, unknown>
>

/**
 * Tasks for schedules that want to run them themselves. It is the task worker's: slots, claims and
 * statistics are those of its process, whichever handler asks. Times to live are in seconds.
 */
export type TasksService = {
  /** Not started tasks of the coming four hours, the earliest first. Those of the future must not be run yet. */
  getNotStartedTasks(): Promise<readonly WaitingTask[]>
  /**
   * Makes the task Running and one's own until `completeTask` or `failTask`, and for as long as the process lives; null
   * when it does not wait any more.
   */
  claimTask(id: number): Promise<WaitingTask | null>
  /** Records the success of a claimed task; false when it was lost meanwhile. */
  completeTask(id: number, result?: unknown): Promise<boolean>
  failTask(id: number, message: string): Promise<boolean>
  /** Takes one of the TASK_CONCURRENCY places; false when all are taken. It comes back after `ttl` by itself. */
  tryAcquireLock(ttl?: number): Promise<boolean>
  releaseLock(): Promise<void>
  /** Whether all places are taken. */
  isTaskRunning(): Promise<boolean>
  getRunningCount(): Promise<number>
  /** The older form of `tryAcquireLock` and `releaseLock`. */
  setTaskRunning(running: boolean): Promise<void>
  /** A lock among all processes, for `ttl`; false while another process has it. */
  acquireJobLock(name: string, ttl?: number): Promise<boolean>
  releaseJobLock(name: string): Promise<boolean>
  /** Resolves when this process runs no task: true, or after `timeout` seconds false. */
  waitForTaskCompletion(timeout?: number): Promise<boolean>
  /** Reads the list again, takes stalled tasks back and looks for due ones. */
  forceRefresh(): Promise<void>
  getCacheStats(): Promise<TaskStats>
}

export type TaskStats = {
  readonly cachedTasksCount: number
  readonly runningCount: number
  readonly concurrency: number
  readonly isAtCapacity: boolean
  readonly stallTimeout: number
  readonly refreshInterval: number
  readonly refreshIntervalSeconds: number
  readonly maxRefreshIntervalSeconds: number
  readonly taskTimeWindow: string
  readonly initialized: boolean
  readonly lastRefreshed: string | null
  readonly distributedMode: boolean
  readonly hasInstanceLock: boolean
  readonly instanceId: string
}

export const tasksServiceMethods = [
  'getNotStartedTasks',
  'claimTask',
  'completeTask',
  'failTask',
  'tryAcquireLock',
  'releaseLock',
  'isTaskRunning',
  'getRunningCount',
  'setTaskRunning',
  'acquireJobLock',
  'releaseJobLock',
  'waitForTaskCompletion',
  'forceRefresh',
  'getCacheStats',
] as const satisfies readonly (keyof TasksService)[]

/** Content as an extension has it. */
type GivenContent = string | Uint8Array | AsyncIterable<Uint8Array>

/** A file as `POST /files` takes it: its content, its name, and what is said of it. */
type GivenFile = {
  readonly content: GivenContent
  readonly filename: string
  /** As declared; what the first bytes say counts more. */
  readonly type?: string
} & Readonly<Record<string, unknown>>

type StoredFile = {
  readonly id: string
  readonly filename: string
  readonly type: string
  readonly size: number
  /** Its sha256, in hex. */
  readonly hash: string | null
  /** Must be read to its end or destroyed. */
  readonly content: Readable
}

type As = { readonly accountability?: Accountability | null }

/**
 * Files for extensions: what `/files` and `/assets` do, with the same checks. Without `accountability` everything may be
 * done. Deleting a file, and changing what is said of it, is `ItemsService('svc_File')`'s.
 */
export type StorageService = {
  /** Stores a new file; its id. In a before-hook it is part of the change: refused, nothing of it stays. */
  createFile(file: GivenFile, as?: As): Promise<string>
  /** Gives a file other content, under its id. */
  replaceFile(id: string, file: GivenFile, as?: As): Promise<void>
  /** The content of a committed file, or its bytes from `start` to `end`, both included. 403 and 404 as `GET /assets/{id}`. */
  readFile(
    id: string,
    options?: As & { readonly range?: { readonly start: number; readonly end: number } },
  ): Promise<StoredFile>
}

function storageServiceFor(deps: ExtensionWrites, platform: () => Requester): StorageService {
  const requesterOf = ({ accountability }: As = {}): Requester => {
    const own = platform()
    if (accountability == null) return own
    const caller = requesterFor(accountability)
    // In a transaction the log names the one whose change it is.
    return { ...caller, actor: own.scope === undefined ? caller.actor : own.actor, scope: own.scope }
  }
  return {
    createFile: async (file, as) => {
      const { incoming, fields } = incomingOf(file)
      return saveFile(deps, requesterOf(as), incoming, fields)
    },
    replaceFile: async (id, file, as) => {
      const { incoming, fields } = incomingOf(file)
      return replaceFile(deps, requesterOf(as), id, incoming, fields)
    },
    readFile: async (id, { range, ...as } = {}) => {
      const file = await fileFor(deps, id, as)
      const found = await contentsOf(deps).original(file).read(range)
      if (found === undefined) throw fileNotFound()
      const { type, size, hash, name: filename } = file
      return {
        id: file.id,
        filename,
        type,
        size,
        hash,
        content: Buffer.isBuffer(found) ? Readable.from([found]) : found,
      }
    },
  }
}

async function fileFor(deps: ExtensionWrites, id: string, { accountability }: As): Promise<AssetRow> {
  const access = accountability == null ? undefined : requesterFor(accountability).access
  const file =
    access === undefined
      ? await storedAsset(deps, id)
      : await readableAsset(deps, { userId: access.userId, access }, id)
  if (file === undefined) throw fileNotFound()
  return file
}

function incomingOf({ content, filename, type, ...fields }: GivenFile): {
  incoming: Incoming
  fields: Map<string, unknown>
} {
  if (typeof filename !== 'string') throw new TypeError('a file needs a filename')
  return {
    incoming: { content: piecesOf(content), name: filename, declared: type },
    fields: new Map(Object.entries(fields)),
  }
}

async function* piecesOf(content: GivenContent): AsyncGenerator<Uint8Array> {
  if (typeof content === 'string') yield Buffer.from(content)
  else if (content instanceof Uint8Array) yield content
  else yield* content
}

/** The tenant of the room or sockets; without it the room of those without a tenant, and sockets of all tenants. */
type OfTenant = { readonly tenantId?: string | null }

type ListedMember = {
  readonly socketId: string
  readonly userId: string
  readonly isCreator: boolean
  readonly metadata: unknown
}

/**
 * The realtime channel for extensions (docs/rooms.md). Its messages reach the sockets of all web processes, in a
 * before-hook if and when the change is committed. Its questions have answers in web processes only.
 */
export type SocketService = {
  /** For `custom {event, payload}` of clients. Throws when the event has one already. */
  registerMessageHandler(event: string, handler: MessageHandler): void
  /** False when there was none. */
  unregisterMessageHandler(event: string): boolean
  /** Decides who may join rooms whose name begins with `prefix`; of several all must agree. */
  registerRoomValidator(prefix: string, validator: RoomValidator): void
  unregisterRoomValidator(prefix: string): boolean
  /** Members get `event` with `{room, payload, timestamp}`. */
  broadcastToRoom(room: string, event: string, payload: unknown, options?: OfTenant): Promise<void>
  /** Every connected client gets `event` with `{payload, timestamp}`. */
  broadcastToAll(event: string, payload: unknown, options?: OfTenant): Promise<void>
  /** All sockets of a user get `event` with `{payload, timestamp}`. */
  sendToUser(userId: string, event: string, payload: unknown, options?: OfTenant): Promise<void>
  getRoomMembers(room: string, options?: OfTenant): Promise<readonly ListedMember[]>
  getRoomMemberCount(room: string, options?: OfTenant): Promise<number>
  roomExists(room: string, options?: OfTenant): Promise<boolean>
  /** Of all tenants, at most a thousand. */
  getCustomRooms(): Promise<readonly { name: string; tenantId: string | null; memberCount: number }[]>
  getStats(): Promise<SocketStats>
}

/** Connections and rooms are those of this process; with Redis custom rooms are those of all. */
type SocketStats = LiveStats & {
  readonly status: 'running' | 'not in this process'
  readonly registeredHandlers: number
  readonly registeredValidators: number
}

/** `scope` gives the transaction that is going on, where there is one. */
function socketServiceFor(deps: ExtensionWrites, owner: string, scope: () => Tx | undefined): SocketService {
  const { sockets } = deps
  const now = () => deps.clock().toISOString()
  const send = (to: PushTarget, event: string, body: object) =>
    push(deps, scope(), { to, event, body: { ...body, timestamp: now() } })
  const live = (): LiveRooms => {
    const rooms = sockets.live()
    if (rooms === undefined) throw new Error('rooms are known in web processes with SOCKET_ENABLED only')
    return rooms
  }
  return Object.freeze({
    registerMessageHandler: (event, handler) => sockets.registerMessageHandler(owner, event, handler),
    unregisterMessageHandler: sockets.unregisterMessageHandler,
    registerRoomValidator: (prefix, validator) => sockets.registerRoomValidator(owner, prefix, validator),
    unregisterRoomValidator: sockets.unregisterRoomValidator,
    broadcastToRoom: (name, event, payload, { tenantId = null } = {}) =>
      send({ kind: 'room', name, tenantId }, event, { room: name, payload }),
    broadcastToAll: (event, payload, { tenantId } = {}) => send({ kind: 'all', tenantId }, event, { payload }),
    sendToUser: (userId, event, payload, { tenantId } = {}) =>
      send({ kind: 'user', userId, tenantId }, event, { payload }),
    getRoomMembers: async (room, options) =>
      (await live().members(roomOf(room, options))).map(({ socketId, userId, isCreator, metadata }) => ({
        ...{ socketId, userId, isCreator },
        metadata: metadata === undefined ? null : JSON.parse(metadata),
      })),
    getRoomMemberCount: async (room, options) => live().count(roomOf(room, options)),
    roomExists: async (room, options) => (await live().count(roomOf(room, options))) > 0,
    getCustomRooms: async () =>
      (await live().list()).map(({ name, tenantId = null, memberCount }) => ({ name, tenantId, memberCount })),
    getStats: async () => ({
      ...((await sockets.live()?.stats()) ?? none),
      status: sockets.live() === undefined ? 'not in this process' : 'running',
      registeredHandlers: sockets.handlers.size,
      registeredValidators: sockets.validators.size,
    }),
  } satisfies SocketService)
}

const none: LiveStats = { totalConnections: 0, uniqueUsers: 0, rooms: 0, customRooms: 0 }

const roomOf = (name: string, { tenantId }: OfTenant = {}): Room => ({ name, tenantId: tenantId ?? undefined })
