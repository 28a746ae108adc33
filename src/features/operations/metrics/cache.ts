import type { ResultCache } from '../../../cache/data-cache.ts'
import type { Meters } from './instruments.ts'

/** How often the data cache of this process had the answer, and what it holds. */
export function registerCacheGauges(rt: Meters & ResultCache): void {
  const { metrics } = rt.instruments
  const outcomes = ['hits', 'misses', 'uncacheable', 'stale', 'errors'] as const
  metrics.counter(
    {
      name: 'daybook_cache_lookups_total',
      help: 'Questions to the data cache, by what became of them.',
      labelNames: ['outcome'],
    },
    () => {
      const stats = rt.dataCache.stats()
      return outcomes.map((outcome) => ({ labels: { outcome }, value: stats[outcome] }))
    },
  )
  metrics.gauge({ name: 'daybook_cache_entries', help: 'Answers that the data cache holds in memory.' }, () => [
    { value: rt.dataCache.stats().entries },
  ])
  metrics.gauge({ name: 'daybook_cache_bytes', help: 'Size of these answers.' }, () => [
    { value: rt.dataCache.stats().bytes },
  ])
}
