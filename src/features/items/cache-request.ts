import { hash } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import packageJson from '../../../package.json' with { type: 'json' }
import type { Collection } from '../../catalog/catalog.ts'
import type { Config } from '../../config.ts'
import { errors } from '../../errors.ts'
import { oncePer } from '../../once-per.ts'
import { envOf } from '../../query/env.ts'
import type { Runtime } from '../../runtime.ts'

/** What a request wants of the data cache (docs/caching.md). */
export type CacheWish = {
  /** False: asked for, true: refused; undefined: as the collection or the configuration say. */
  readonly wanted: boolean | undefined
  readonly reload: boolean
  /** How old the answer may be. */
  readonly seconds: number | undefined
}

/** `?cache=`: `true`, `false`, `reload`, or a number of seconds. 400 for anything else. */
export function readCacheWish(value: unknown): CacheWish {
  const wish = { wanted: true, reload: false, seconds: undefined }
  if (value === undefined || value === '') return { ...wish, wanted: undefined }
  if (value === 'true') return wish
  if (value === 'false') return { ...wish, wanted: false }
  if (value === 'reload') return { ...wish, reload: true }
  if (typeof value === 'string' && /^[1-9]\d{0,8}$/.test(value)) return { ...wish, seconds: Number(value) }
  throw errors.badQuery('cache: expected true, false, reload or a number of seconds')
}

/** For how many seconds the answer may be kept; undefined where it must not be. */
export function cacheSeconds(
  { dataCache }: Config,
  { wanted, seconds }: CacheWish,
  collections: readonly (Collection | undefined)[],
): number | undefined {
  const byDefault = dataCache.strategy === 'all'
  for (const collection of collections) {
    const declared = collection?.cache.wanted
    // An opt-out of the schema is for good: the request can't know its reasons.
    if (collection === undefined || declared === false || !(wanted ?? declared ?? byDefault)) return undefined
  }
  const limits = collections.flatMap((collection) => collection?.cache.ttlSeconds ?? [])
  return Math.min(dataCache.ttlSeconds, seconds ?? Number.POSITIVE_INFINITY, ...limits)
}

/**
 * The key of a request: path, query and body as they came, who asks, and what names and queries mean. Undefined where the
 * caller can't be told, and for a request that may depend on the time: a text that could spell `$NOW`.
 */
export function cacheKey(rt: Runtime, request: FastifyRequest): string | undefined {
  const text = `${withoutWish(request.raw.url ?? '')}\0${request.body === undefined ? '' : JSON.stringify(request.body)}`
  const namesVariables = mayNameVariables.test(text)
  if (namesVariables && mayNameTime(text)) return undefined
  const identity = request.caller.access.identity?.(namesVariables)
  if (identity === undefined) return undefined
  return `${meaningOf(rt.config)} ${rt.catalog.current().version}\0${identity}\0${text}`
}

/** A variable begins with `$`, which may be written as `%24` or, in JSON, as an escape. */
const mayNameVariables = /\$|%24|\\|%5c/i

function mayNameTime(text: string): boolean {
  try {
    return /\$NOW|\\u/i.test(decodeURIComponent(text.replaceAll('+', ' ')))
  } catch {
    return true
  }
}

function withoutWish(url: string): string {
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
