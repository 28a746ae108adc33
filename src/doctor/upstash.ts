import { pingUpstash } from '../adapters/upstash.ts'
import type { Config } from '../config/config.ts'
import { type Finding, ok, problem } from './finding.ts'

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
