import { text } from 'node:stream/consumers'
import { withFreshCatalog } from '../catalog/store.ts'
import type { Actor } from '../events/types.ts'
import type { Requester } from '../features/data/items/items.ts'
import {
  type Accountability,
  actorOfHook,
  type Change,
  changeItems,
  listItems,
  readItem,
  requesterFor,
  scopeOfHook,
  updatesIn,
} from '../features/data/items/items.ts'
import { systemAccess } from '../query/access.ts'
import type { ExtensionWrites } from './capabilities.ts'

type Row = Record<string, unknown>
type Id = string | number

type ItemsServiceOptions = {
  /** As whom; without one as the platform itself, which may everything. */
  readonly accountability?: Accountability | null | undefined
}

/**
 * Items for extensions: what `/items` does, with the same checks, hooks and log. In a before-hook it reads and writes in
 * the transaction of the change, elsewhere every call is its own. Errors are those of the API.
 */
export type ItemsService = {
  /** A list and how many there are; `query` as in `/items/{collection}`, with plain values. */
  readByQuery(query?: Row): Promise<{ data: Row[]; totalCount?: number }>
  readOne(id: Id, query?: Row): Promise<Row>
  /** The id of the new item. */
  createOne(data: Row): Promise<Id>
  createMany(data: readonly Row[]): Promise<Id[]>
  updateOne(id: Id, data: Row): Promise<Id>
  updateMany(changes: readonly ({ id: Id } & Row)[]): Promise<Id[]>
  deleteOne(id: Id): Promise<Id>
  deleteMany(ids: readonly Id[]): Promise<Id[]>
}

export type ItemsServiceClass = new (collection: string, options?: ItemsServiceOptions) => ItemsService

/** The class for one extension; `actor` says whom the log names for what it does in nobody's name. */
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

  async readByQuery(query: Row = {}) {
    const list = await this.#fresh((reader) => listItems(this.#deps, reader, this.#collection, query))
    return JSON.parse(typeof list === 'string' ? list : await text(list))
  }

  async readOne(id: Id, query: Row = {}) {
    const { body } = await this.#fresh((reader) => readItem(this.#deps, reader, this.#collection, String(id), query))
    return JSON.parse(body).data
  }

  async createOne(data: Row) {
    return (await this.#change({ action: 'create', payloads: [data] }))[0]!
  }

  async createMany(data: readonly Row[]) {
    return this.#change({ action: 'create', payloads: data, asList: true })
  }

  async updateOne(id: Id, data: Row) {
    return (await this.#change({ action: 'update', changes: [{ id: String(id), payload: data }] }))[0]!
  }

  async updateMany(changes: readonly ({ id: Id } & Row)[]) {
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
