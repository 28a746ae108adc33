import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Made } from '../../cache/data-cache.ts'
import type { Answer } from '../../cache/result-cache.ts'
import type { Collection } from '../../catalog/catalog.ts'
import { oncePer } from '../../once-per.ts'
import type { Access, Grant } from '../../query/access.ts'
import type { Plan } from '../../query/resolve.ts'
import { ident, type Statement } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'
import { cacheKey, cacheSeconds, readCacheWish } from './cache-request.ts'
import type { Trace } from './reads.ts'

/** What a read came to, whoever made it. Only what is read whole has a tag. */
export type Served = {
  readonly body: string | Buffer | Readable
  readonly tag?: string
  readonly version?: string | undefined
}

type ReadAnswer = { readonly body: string | Readable; readonly version?: string | undefined }

export type CacheableRead = {
  /** What it reads from; what it reaches over relations is found out. */
  readonly collections: readonly string[]
  /** False where it may mean something else every time, for reasons that the plan does not show. */
  readonly isPlain: boolean
  read(trace: Trace | undefined): Promise<ReadAnswer>
  tagOf(body: string, version: string | undefined): string
  /** Whether a kept answer is still of the row as it is, where the log does not tell. */
  isStill?(answer: Answer): Promise<boolean>
}

/**
 * A read by way of the data cache, where configuration, schema and request want it (docs/caching.md). Says in `X-Cache`
 * what happened: HIT, MISS (read, and kept) or BYPASS. 400 for a `cache` parameter that makes no sense.
 */
export async function readCached(
  rt: Runtime,
  request: FastifyRequest,
  reply: FastifyReply,
  read: CacheableRead,
): Promise<Served> {
  const wish = readCacheWish((request.query as Record<string, unknown>).cache)
  if (!rt.config.dataCache.enabled) return readUncached(read)
  const known = read.collections.map((name) => rt.catalog.current().collections.get(name))
  const seconds = read.isPlain ? cacheSeconds(rt.config, wish, known) : undefined
  const key = seconds === undefined ? undefined : cacheKey(rt, request)
  if (seconds === undefined || key === undefined) {
    reply.header('x-cache', 'BYPASS')
    return readUncached(read)
  }
  const lookup = {
    key,
    ttlMs: seconds * 1000,
    maxAgeMs: (wish.seconds ?? seconds) * 1000,
    reload: wish.reload,
    ...(read.isStill && { isStill: read.isStill }),
  }
  const found = await rt.dataCache.read(lookup, () => make(rt, request, read, key))
  reply.header('x-cache', found.state)
  return found.answer ?? found.other
}

async function make(rt: Runtime, request: FastifyRequest, read: CacheableRead, key: string): Promise<Made<Served>> {
  const { access } = request.caller
  const plans: Plan[] = []
  const statements: Statement[] = []
  const trace: Trace = { begin: (plan) => void plans.push(plan), ran: (statement) => void statements.push(statement) }
  const { body, version } = await read.read(trace)
  const isKeepable =
    typeof body === 'string' &&
    plans.length > 0 &&
    plans.every((plan) => isLasting(rt, access, plan, statements)) &&
    // What names mean, or who the caller is, may have changed meanwhile.
    key === cacheKey(rt, request)
  if (!isKeepable) return { other: serve(read, { body, version }) }
  const tables = [...new Set(plans.flatMap((plan) => [...plan.collections]))]
  return { answer: { body, tag: read.tagOf(body, version), version }, tables }
}

const readUncached = async (read: CacheableRead): Promise<Served> => serve(read, await read.read(undefined))

function serve(read: CacheableRead, { body, version }: ReadAnswer): Served {
  return typeof body === 'string' ? { body, tag: read.tagOf(body, version) } : { body }
}

/** Whether the answer stays the same until the log tells of a change in one of its collections. */
function isLasting(rt: Runtime, access: Access, plan: Plan, statements: readonly Statement[]): boolean {
  if (plan.past !== undefined) return false
  const { collections } = rt.catalog.current()
  return [...plan.collections].every((name) => {
    const collection = collections.get(name)
    return collection?.logged === true && !dependsOnTime(access, name) && !readsUnlogged(collection, statements)
  })
}

/** A rule with `$NOW` lets other rows through as time goes by. */
function dependsOnTime(access: Access, collection: string): boolean {
  const grant = access.admin ? undefined : access.grant(collection, 'read')
  return grant !== undefined && namesTime(grant)
}

const namesTime = oncePer((grant: Grant) => JSON.stringify(grant).includes('$NOW'))

function readsUnlogged(collection: Collection, statements: readonly Statement[]): boolean {
  return silentOf(collection).some((column) => statements.some(({ text }) => text.includes(column)))
}

/** Fields whose changes are no events, and fields that are computed from other tables. */
const silentOf = oncePer(({ fields }: Collection) =>
  [...fields.values()].filter((field) => field.unlogged || field.shownBy !== undefined).map(({ name }) => ident(name)),
)
