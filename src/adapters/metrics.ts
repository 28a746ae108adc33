import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'

type Labels = Readonly<Record<string, string | number>>
/** One value of a gauge, with the labels that tell it from the others. */
export type Reading = { readonly labels?: Labels; readonly value: number }
type Definition = { readonly name: string; readonly help: string; readonly labelNames?: readonly string[] }

/** The figures of one runtime; nothing is shared with another in the same process. */
export type Metrics = {
  /** Counts durations, in seconds, by `bounds`; the result takes one of them and costs about a microsecond. */
  histogram(definition: Definition, bounds: readonly number[]): (labels: Labels, seconds: number) => void
  /** Asks `read` at every scrape; what it does not name any more is gone. It must not reject. */
  gauge(definition: Definition, read: () => readonly Reading[] | Promise<readonly Reading[]>): void
  /** As `gauge`, of numbers that only grow and are counted elsewhere. */
  counter(definition: Definition, read: () => readonly Reading[]): void
  /** Everything in the text format of Prometheus. The figures of Node itself are watched from the first scrape on. */
  scrape(): Promise<{ readonly contentType: string; readonly text: string }>
}

export function openMetrics(): Metrics {
  const registry = new Registry()
  const registers = [registry]
  let isWatchingNode = false
  return {
    histogram: ({ name, help, labelNames = [] }, bounds) => {
      const histogram = new Histogram({ name, help, labelNames, buckets: [...bounds], registers })
      return (labels, seconds) => histogram.observe(labels, seconds)
    },
    gauge: ({ name, help, labelNames = [] }, read) => {
      const collect = async function (this: Gauge) {
        const readings = await read()
        this.reset()
        // Without labels a reset leaves a zero, which nobody has measured.
        if (readings.length === 0) this.remove({})
        for (const { labels = {}, value } of readings) this.set(labels, value)
      }
      new Gauge({ name, help, labelNames, registers, collect })
    },
    counter: ({ name, help, labelNames = [] }, read) => {
      const collect = function (this: Counter) {
        this.reset()
        for (const { labels = {}, value } of read()) this.inc(labels, value)
      }
      new Counter({ name, help, labelNames, registers, collect })
    },
    scrape: async () => {
      if (!isWatchingNode) collectDefaultMetrics({ register: registry })
      isWatchingNode = true
      return { contentType: registry.contentType, text: await registry.metrics() }
    },
  }
}
