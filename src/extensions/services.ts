import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { IdSource } from '../adapters/ids.ts'
import { withFreshCatalog } from '../catalog/store.ts'
import type { Configuration } from '../config/config.ts'
import type { Tx, UnloggedWrites } from '../db/sql.ts'
import type { Actor } from '../events/types.ts'
import {
  type Accountability,
  actorOfHook,
  type Change,
  changeItems,
  type ItemWrites,
  listItems,
  type Requester,
  readItem,
  requesterFor,
  scopeOfHook,
  updatesIn,
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
  type LiveRooms,
  type LiveStats,
  type MessageHandler,
  type PushTarget,
  push,
  type Room,
  type RoomValidator,
  type Sockets,
} from '../features/messaging/rooms/rooms.ts'
import type { Workflows } from '../features/work/workflows/workflows.ts'
import { systemAccess } from '../query/access.ts'

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
type Id = string | number

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
  readOne(id: Id, query?: ItemRow): Promise<ItemRow>
  /** The id of the new item. */
  createOne(data: ItemRow): Promise<Id>
  createMany(data: readonly ItemRow[]): Promise<Id[]>
  updateOne(id: Id, data: ItemRow): Promise<Id>
  updateMany(changes: readonly ({ id: Id } & ItemRow)[]): Promise<Id[]>
  deleteOne(id: Id): Promise<Id>
  deleteMany(ids: readonly Id[]): Promise<Id[]>
}

export type ItemsServiceClass = new (collection: string, options?: ItemsServiceOptions) => ItemsService

/** The class for one extension; `actor` stands in the log for what it does without a user. */
export function itemsServiceFor(deps: ExtensionWrites, actor: () => Actor): ItemsServiceClass {
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
    return JSON.parse(typeof list === 'string' ? list : await text(list))
  }

  async readOne(id: Id, query: ItemRow = {}) {
    const { body } = await this.#fresh((reader) => readItem(this.#deps, reader, this.#collection, String(id), query))
    return JSON.parse(body).data
  }

  async createOne(data: ItemRow) {
    return (await this.#change({ action: 'create', payloads: [data] }))[0]!
  }

  async createMany(data: readonly ItemRow[]) {
    return this.#change({ action: 'create', payloads: data, asList: true })
  }

  async updateOne(id: Id, data: ItemRow) {
    return (await this.#change({ action: 'update', changes: [{ id: String(id), payload: data }] }))[0]!
  }

  async updateMany(changes: readonly ({ id: Id } & ItemRow)[]) {
    return this.#change({ action: 'update', changes: updatesIn(changes) })
  }

  async deleteOne(id: Id) {
    const [gone] = await this.deleteMany([id])
    return gone!
  }

  async deleteMany(ids: readonly Id[]) {
    return this.#change({ action: 'delete', ids })
  }

  async #change(change: Change): Promise<Id[]> {
    const { ids } = await this.#fresh((requester) => changeItems(this.#deps, requester, this.#collection, change))
    return ids.map((id) => JSON.parse(id))
  }

  /** Within a transaction a retry must run all of the transaction again. */
  #fresh<Result>(work: (requester: Requester) => Promise<Result>): Promise<Result> {
    const requester = this.#requester()
    return requester.scope === undefined ? withFreshCatalog(this.#deps.catalog, () => work(requester)) : work(requester)
  }

  /** In a transaction the log names the one whose change it is. */
  #requester(): Requester {
    const scope = scopeOfHook(this.#deps)
    const own =
      this.#accountability === null
        ? { actor: this.#actor(), access: systemAccess }
        : requesterFor(this.#accountability)
    return { ...own, actor: scope === undefined ? own.actor : (actorOfHook(this.#deps) ?? scope.actor), scope }
  }
}

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

export function storageServiceFor(deps: ExtensionWrites, platform: () => Requester): StorageService {
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
export function socketServiceFor(deps: ExtensionWrites, owner: string, scope: () => Tx | undefined): SocketService {
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
