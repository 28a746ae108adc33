import { hash } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import packageJson from '../../../../package.json' with { type: 'json' }
import type { Made, ResultCache } from '../../../cache/data-cache.ts'
import type { CachedAnswer, TimeWindow } from '../../../cache/result-cache.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { WalPosition } from '../../../db/replicas/write-positions.ts'
import { errors } from '../../../errors.ts'
import { writeJson } from '../../../language/exact-json.ts'
import { oncePer } from '../../../language/once.ts'
import { envOf, type Plan } from '../../../query/resolve.ts'
import type { Statement } from '../../../query/sql.ts'
import type { DependencyRecorder } from './reads.ts'
import type { Versions } from './statements.ts'

/** An answer to a read, from memory or not. Only what is read whole has a tag. */
export type ServedAnswer = {
  readonly body: string | Buffer | Readable
  readonly tag?: string
  readonly version?: string | undefined
}

type ReadAnswer = { readonly body: string | Readable; readonly version?: string | undefined }

type CacheableRead = {
  /** Those it reads from; others that it reaches over relations are found out. */
  readonly collections: readonly string[]
  /** False where it may mean something else every time, for reasons that the plan does not show. */
  readonly isPlain: boolean
  read(recorder: DependencyRecorder | undefined): Promise<ReadAnswer>
  tagOf(body: string, version: string | undefined): string
  /** Whether a kept answer is still of the row as it is, where the log does not tell. */
  isStill?(answer: CachedAnswer): Promise<boolean>
}

type CachedReads = Configuration & CurrentCatalog & ResultCache & Clock

/**
 * A read by way of the data cache, where configuration, schema and request want it (docs/caching.md). Says in `X-Cache`
 * what happened: HIT, MISS (read, and kept) or BYPASS. 400 for a `cache` parameter that makes no sense.
 */
export async function readCached(
  deps: CachedReads,
  request: FastifyRequest,
  reply: FastifyReply,
  read: CacheableRead,
): Promise<ServedAnswer> {
  const asked = readCacheRequest((request.query as Record<string, unknown>).cache)
  if (!deps.config.dataCache.enabled) return readUncached(read)
  const known = read.collections.map((name) => deps.catalog.current().collections.get(name))
  const wish = read.isPlain ? wishOf(deps, request, { asked, known, isItem: read.isStill !== undefined }) : undefined
  const key = wish === undefined ? undefined : cacheKey(deps, request)
  if (wish === undefined || key === undefined) {
    reply.header('x-cache', 'BYPASS')
    return readUncached(read)
  }
  const { seconds, isAutomatic } = wish
  const lookup = {
    key,
    ttlMs: seconds * 1000,
    maxAgeMs: (asked.seconds ?? seconds) * 1000,
    reload: asked.reload,
    now: deps.clock().getTime(),
    isAutomatic,
    ...(read.isStill && { isStill: read.isStill }),
  }
  const found = await deps.dataCache.read(lookup, async (isNoted) =>
    isNoted ? make(deps, request, read, lookup) : { other: await readUncached(read) },
  )
  reply.header('x-cache', found.state)
  return found.answer ?? found.other
}

async function make(
  deps: Configuration & CurrentCatalog,
  request: FastifyRequest,
  read: CacheableRead,
  { key, isAutomatic }: { readonly key: string; readonly isAutomatic: boolean },
): Promise<Made<ServedAnswer>> {
  const plans: Plan[] = []
  const statements: Statement[] = []
  const windows: TimeWindow[] = []
  const replayed: WalPosition[] = []
  const recorder: DependencyRecorder = {
    begin: (plan) => void plans.push(plan),
    ran: (statement) => void statements.push(statement),
    lasts: ({ time }, until) => void windows.push({ from: time!.at.getTime(), until }),
    untimed: (error) => request.log.debug({ err: error }, 'the database did not tell how long an answer is right'),
    // Answers that a caller asks to cache come from the primary; automatic caching must not take reads from the
    // replicas.
    ...(isAutomatic && { servedBy: (position) => void replayed.push(position) }),
  }
  const { body, version } = await read.read(recorder)
  const isKeepable =
    typeof body === 'string' &&
    plans.length > 0 &&
    plans.every((plan) => isLogged(deps, plan)) &&
    statements.every(({ dependsOn }) => dependsOn?.unlogged.size === 0) &&
    windows.length === plans.filter(({ time }) => time !== undefined).length &&
    // The meaning of names, or the caller's rights, may have changed meanwhile.
    key === cacheKey(deps, request)
  if (!isKeepable) return { other: serve(read, { body, version }) }
  const tables = [...new Set(plans.flatMap((plan) => [...plan.collections]))]
  const answer = { body, tag: read.tagOf(body, version), version }
  return {
    ...{ answer, tables },
    ...(windows.length > 0 && { window: commonWindow(windows) }),
    ...(replayed.length > 0 && { replayed }),
  }
}

const readUncached = async (read: CacheableRead): Promise<ServedAnswer> => serve(read, await read.read(undefined))

function serve(read: CacheableRead, { body, version }: ReadAnswer): ServedAnswer {
  return typeof body === 'string' ? { body, tag: read.tagOf(body, version) } : { body }
}

/** Whether the log tells of every change of the collections that a plan reads as they are. */
function isLogged(deps: CurrentCatalog, { past, collections }: Plan): boolean {
  const known = deps.catalog.current().collections
  return past === undefined && [...collections].every((name) => known.get(name)?.logged === true)
}

/** The times at which all parts of an answer are right. */
const commonWindow = (windows: readonly TimeWindow[]): TimeWindow => ({
  from: Math.max(...windows.map(({ from }) => from)),
  until: Math.min(...windows.map(({ until }) => until)),
})

/** The `cache` parameter of a request (docs/caching.md). */
type CacheRequest = {
  /** False: asked for, true: refused; undefined: as the collection or the configuration say. */
  readonly wanted: boolean | undefined
  readonly reload: boolean
  /** How old the answer may be. */
  readonly seconds: number | undefined
}

/** `?cache=`: `true`, `false`, `reload`, or a number of seconds. 400 for anything else. */
function readCacheRequest(value: unknown): CacheRequest {
  const asked = { wanted: true, reload: false, seconds: undefined }
  if (value === undefined || value === '') return { ...asked, wanted: undefined }
  if (value === 'true') return asked
  if (value === 'false') return { ...asked, wanted: false }
  if (value === 'reload') return { ...asked, reload: true }
  if (typeof value === 'string' && /^[1-9]\d{0,8}$/.test(value)) return { ...asked, seconds: Number(value) }
  throw errors.badQuery('cache: expected true, false, reload or a number of seconds')
}

/** For how many seconds the answer may be kept, and whether the program alone decided that. */
type Wish = { readonly seconds: number; readonly isAutomatic: boolean }

type WishOptions = {
  readonly asked: CacheRequest
  readonly known: readonly (Collection | undefined)[]
  readonly isItem: boolean
}

/** Undefined where the answer must not be kept, or was not requested often enough for that. */
function wishOf(
  deps: Configuration & ResultCache,
  request: FastifyRequest,
  { asked, known, isItem }: WishOptions,
): Wish | undefined {
  const { automatic, strategy, ttlSeconds } = deps.config.dataCache
  // An opt-out of the schema is for good: the request can't know its reasons.
  const isRefused = known.some((collection) => collection === undefined || collection.cache.wanted === false)
  if (isRefused || asked.wanted === false) return undefined
  const limits = known.flatMap((collection) => collection?.cache.ttlSeconds ?? [])
  const seconds = Math.min(ttlSeconds, asked.seconds ?? Number.POSITIVE_INFINITY, ...limits)
  const isWanted = known.every((collection) => asked.wanted ?? collection?.cache.wanted ?? strategy === 'all')
  if (isWanted) return { seconds, isAutomatic: false }
  // One by its key is hardly cheaper from the cache.
  if (!automatic || isItem) return undefined
  const { userId, roleId } = request.caller.access
  return deps.dataCache.isRepeated(`${userId ?? roleId} ${textOf(request)}`)
    ? { seconds, isAutomatic: true }
    : undefined
}

/** The request itself, without the parameter that is about the cache. */
const textOf = (request: FastifyRequest): string =>
  `${withoutCacheParameter(request.raw.url ?? '')}\0${request.body === undefined ? '' : writeJson(request.body)}`

/**
 * The key of a request: path, query and body as they came, the caller, and what names and queries mean. Undefined where the
 * caller can't be told.
 */
function cacheKey(deps: Configuration & CurrentCatalog, request: FastifyRequest): string | undefined {
  const text = textOf(request)
  const identity = request.caller.access.identity?.(mayNameVariables.test(text))
  if (identity === undefined) return undefined
  return `${meaningOf(deps.config)} ${deps.catalog.current().version}\0${identity}\0${text}`
}

/** A variable begins with `$`, which may be written as `%24` or, in JSON, as an escape. */
const mayNameVariables = /\$|%24|\\|%5c/i

function withoutCacheParameter(url: string): string {
  const start = url.indexOf('?')
  if (start < 0 || !url.includes('cache', start)) return url
  const parameters = url.slice(start + 1).split('&')
  return `${url.slice(0, start)}?${parameters.filter((parameter) => !/^cache(=|$)/.test(parameter)).join('&')}`
}

/** Differs between processes that would answer the same query differently, such as those of two releases. */
const meaningOf = oncePer((config: Config) => {
  const { now: _now, multiTenant, ...env } = envOf(config, new Date(0))
  const { defaultLimit } = config.query
  const rules = {
    ...env,
    defaultLimit,
    tenants: { ...multiTenant, ignored: [...multiTenant.ignored] },
    release: packageJson.version,
  }
  return hash('sha256', JSON.stringify(rules), 'base64url')
})

/**
 * The entity tag of a single item is its version (see `Versions`) and a hash of the answer, because the same version answers
 * differently by fields, related rows and caller. `If-None-Match` compares whole tags, `If-Match` the versions.
 */
export function itemTag(version: string, body: string): string {
  return `"${version}-${digest(body)}"`
}

export function listTag(body: string): string {
  return `"${digest(body)}"`
}

/** Whether the client has this answer already. Weak and strong tags compare alike (RFC 9110 §13.1.2). */
export function isFresh(ifNoneMatch: string | undefined, tag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.trim() === '*' || tagsOf(ifNoneMatch).includes(tag)
}

/** The versions that `If-Match` names; undefined where any will do. A tag of something else matches nothing. */
export function versionsOf(ifMatch: string | undefined): Versions | undefined {
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined
  return tagsOf(ifMatch).flatMap((tag) => /^"(\d{1,10})-[\w-]+"$/.exec(tag)?.[1] ?? [])
}

const tagsOf = (header: string): string[] => header.match(/"[^"]*"/g) ?? []

const digest = (body: string): string => hash('sha1', body, 'base64url')
