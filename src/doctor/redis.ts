import { openLogger } from '../adapters/logger.ts'
import { openRedis, type Redis } from '../adapters/redis.ts'
import { pingUpstash } from '../adapters/upstash.ts'
import type { Config } from '../config/config.ts'
import { type Finding, ok, problem, reasonOf, warning } from './finding.ts'

/** A Redis and what it is for; `keeps` where an evicted key would be missed. */
type Use = { readonly variable: string; readonly url: string; readonly what: string; readonly keeps: boolean }

/** Every Redis that a switched-on part uses. */
export async function checkRedis(config: Config): Promise<Finding[]> {
  const byUrl = Map.groupBy(usesOf(config), ({ url }) => url)
  return (await Promise.all([...byUrl].map(([url, uses]) => checkServer(url, uses)))).flat()
}

function usesOf({ rateLimit, systemCache, dataCache, realtime, tasks }: Config): Use[] {
  const use = (variable: string, what: string, url: string | undefined, isOn: boolean, keeps: boolean): Use[] =>
    isOn && url !== undefined ? [{ variable, what, url, keeps }] : []
  return [
    ...use(
      'RATE_LIMIT_REDIS_URL',
      'rate limits',
      rateLimit.redisUrl,
      !rateLimit.disabled || !rateLimit.authDisabled,
      true,
    ),
    ...use('SYSTEM_CACHE_REDIS_URL', 'the system cache', systemCache.redisUrl, systemCache.adapter === 'redis', false),
    ...use(
      'DATA_CACHE_REDIS_URL',
      'the data cache',
      dataCache.redisUrl,
      dataCache.enabled && dataCache.adapter === 'redis',
      false,
    ),
    ...use('SOCKET_REDIS_URL', 'realtime', realtime.redisUrl, realtime.enabled && realtime.redisEnabled, false),
    ...use('TASK_REDIS_URL', 'the lock of tasks', tasks.redisUrl, tasks.enabled && tasks.redisEnabled, true),
  ]
}

async function checkServer(url: string, uses: readonly Use[]): Promise<Finding[]> {
  const { host } = new URL(url)
  const says = `${host} for ${uses.map(({ what }) => what).join(', ')}`
  const redis = openRedis(url, openLogger({ level: 'silent', name: 'doctor', stderr: true }))
  try {
    await redis.call('ping')
    const eviction = judgeEviction(says, await evictionOf(redis), uses)
    return [eviction ?? ok('redis', `${says} answers`)]
  } catch (error) {
    const names = uses.map(({ variable }) => variable).join(', ')
    const why = (error as Error).name === 'ReplyError' ? reasonOf(error) : 'no answer'
    return [problem('redis', `${says}: ${why}`, `start Redis there, or correct ${names}`)]
  } finally {
    redis.close()
  }
}

type Eviction = { readonly policy: string; readonly limited: boolean }

/** Undefined where it may not be asked, as at many hosters. */
async function evictionOf(redis: Redis): Promise<Eviction | undefined> {
  try {
    const [, policy] = (await redis.call('config', 'get', 'maxmemory-policy')) as [string, string]
    const [, limit] = (await redis.call('config', 'get', 'maxmemory')) as [string, string]
    return { policy, limited: limit !== '0' }
  } catch (error) {
    if ((error as Error).name === 'ReplyError') return undefined
    throw error
  }
}

/** A full Redis either throws keys away or refuses new ones: what is counted must stay, what is cached may go. */
export function judgeEviction(
  says: string,
  eviction: Eviction | undefined,
  uses: readonly Pick<Use, 'keeps'>[],
): Finding | undefined {
  if (eviction === undefined || !eviction.limited) return undefined
  const keeps = uses.some((use) => use.keeps)
  const caches = uses.some((use) => !use.keeps)
  if (keeps && eviction.policy !== 'noeviction')
    return warning(
      'redis',
      `${says}: maxmemory-policy ${eviction.policy} throws counters and locks away when it is full`,
      caches
        ? 'use two Redis: noeviction for counters and locks, allkeys-lru for caches'
        : 'config set maxmemory-policy noeviction',
    )
  if (caches && !keeps && eviction.policy === 'noeviction')
    return warning(
      'redis',
      `${says}: maxmemory-policy noeviction refuses new entries when it is full`,
      'config set maxmemory-policy allkeys-lru',
    )
  return undefined
}

/** Upstash, where a cache uses it. */
export async function checkUpstash({ upstash, systemCache, dataCache }: Config): Promise<Finding[]> {
  const uses = [
    ...(systemCache.adapter === 'upstash' ? ['the system cache'] : []),
    ...(dataCache.enabled && dataCache.adapter === 'upstash' ? ['the data cache'] : []),
  ]
  const { url, token } = upstash
  if (uses.length === 0 || url === undefined || token === undefined) return []
  const says = `${new URL(url).host} for ${uses.join(', ')}`
  const refusal = await pingUpstash({ url, token })
  if (refusal === undefined) return [ok('upstash', `${says} answers`)]
  return [problem('upstash', `${says}: ${refusal}`, 'correct UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN')]
}
