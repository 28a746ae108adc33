import type { Counter, Gauge, Metric, Registry } from 'prom-client'
import { onFirstUse } from '../language/once.ts'

const prometheus = onFirstUse<typeof import('prom-client')>('prom-client')

type Labels = Readonly<Record<string, string | number>>
/** One value of a gauge, with the labels that tell it from the others. */
export type Sample = { readonly labels?: Labels; readonly value: number }
type Definition = { readonly name: string; readonly help: string; readonly labelNames?: readonly string[] }

/** The figures of one runtime; nothing is shared with another in the same process. */
export type Metrics = {
  /** Counts durations, in seconds, by `bounds`, which ascend; the result takes one of them and costs less than a microsecond. */
  histogram(definition: Definition, bounds: readonly number[]): (labels: Labels, seconds: number) => void
  /** Asks `read` at every scrape; what it does not name any more is gone. It must not reject. */
  gauge(definition: Definition, read: () => readonly Sample[] | Promise<readonly Sample[]>): void
  /** As `gauge`, of numbers that only grow and are counted elsewhere. */
  counter(definition: Definition, read: () => readonly Sample[]): void
  /** Everything in the text format of Prometheus. The figures of Node itself are watched from the first scrape on. */
  scrape(): Promise<{ readonly contentType: string; readonly text: string }>
}

export function openMetrics(): Metrics {
  const unmade: ((registers: Registry[]) => void)[] = []
  let registry: Registry | undefined
  let isWatchingNode = false
  /** Makes what was defined since the last scrape, in the order of definition. Before the first, the package is not loaded. */
  const made = (): Registry => {
    registry ??= new (prometheus().Registry)()
    for (const make of unmade.splice(0)) make([registry])
    return registry
  }
  return {
    histogram: (definition, bounds) => {
      const { observe, metric } = openHistogram(definition, bounds)
      unmade.push(([register]) => register!.registerMetric(metric))
      return observe
    },
    gauge: ({ name, help, labelNames = [] }, read) => {
      const collect = async function (this: Gauge) {
        const readings = await read()
        this.reset()
        // Without labels a reset leaves a zero, which was not measured.
        if (readings.length === 0) this.remove({})
        for (const { labels = {}, value } of readings) this.set(labels, value)
      }
      unmade.push((registers) => new (prometheus().Gauge)({ name, help, labelNames, registers, collect }))
    },
    counter: ({ name, help, labelNames = [] }, read) => {
      const collect = function (this: Counter) {
        this.reset()
        for (const { labels = {}, value } of read()) this.inc(labels, value)
      }
      unmade.push((registers) => new (prometheus().Counter)({ name, help, labelNames, registers, collect }))
    },
    scrape: async () => {
      const register = made()
      if (!isWatchingNode) prometheus().collectDefaultMetrics({ register })
      isWatchingNode = true
      return { contentType: register.contentType, text: await register.metrics() }
    },
  }
}

/** The durations with the same labels. */
type Durations = {
  readonly labels: Labels
  /** By bound: those that took at most so long, and longer than the bound before. The longest ones are in none. */
  readonly counts: number[]
  count: number
  sum: number
}

/**
 * A histogram that is counted here, because every process times something, and most are never asked: the package takes ninety
 * files. What is read of it are the lines that the package's own would have.
 */
function openHistogram({ name, help, labelNames = [] }: Definition, bounds: readonly number[]) {
  const all = new Map<string, Durations>()
  const durationsOf = (labels: Labels): Durations => {
    const key = labelNames.map((label) => labels[label]).join('\0')
    const known = all.get(key)
    if (known !== undefined) return known
    const fresh = { labels, counts: bounds.map(() => 0), count: 0, sum: 0 }
    all.set(key, fresh)
    return fresh
  }
  // Without labels there is one from the beginning.
  if (labelNames.length === 0) durationsOf({})
  const observe = (labels: Labels, seconds: number): void => {
    const durations = durationsOf(labels)
    const bucket = bounds.findIndex((bound) => seconds <= bound)
    if (bucket >= 0) durations.counts[bucket]! += 1
    durations.count += 1
    durations.sum += seconds
  }
  const linesOf = ({ labels, counts, count, sum }: Durations) => {
    let soFar = 0
    const buckets = counts.map((more, index) => {
      soFar += more
      return { metricName: `${name}_bucket`, labels: { le: bounds[index]!, ...labels }, value: soFar }
    })
    return [
      ...buckets,
      { metricName: `${name}_bucket`, labels: { le: '+Inf', ...labels }, value: count },
      { metricName: `${name}_sum`, labels, value: sum },
      { metricName: `${name}_count`, labels, value: count },
    ]
  }
  const get = async () => ({
    name,
    help,
    type: 'histogram',
    aggregator: 'sum',
    values: [...all.values()].flatMap(linesOf),
  })
  return { observe, metric: { name, get } as unknown as Metric }
}
