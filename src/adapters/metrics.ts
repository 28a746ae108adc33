import type { Counter, Gauge, Registry } from 'prom-client'
import { onFirstUse } from '../language/once.ts'

const prometheus = onFirstUse<typeof import('prom-client')>('prom-client')

type Labels = Readonly<Record<string, string | number>>
/** One value of a gauge, with the labels that tell it from the others. */
export type Sample = { readonly labels?: Labels; readonly value: number }
type Definition = { readonly name: string; readonly help: string; readonly labelNames?: readonly string[] }

/** The figures of one runtime; nothing is shared with another in the same process. */
export type Metrics = {
  /** Counts durations, in seconds, by `bounds`; the result takes one of them and costs about a microsecond. */
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
  /** Makes what was defined since the last time, in the order of definition: at the first scrape, or when something is timed. */
  const made = (): Registry => {
    registry ??= new (prometheus().Registry)()
    for (const make of unmade.splice(0)) make([registry])
    return registry
  }
  return {
    histogram: ({ name, help, labelNames = [] }, bounds) => {
      let observe: ((labels: Labels, seconds: number) => void) | undefined
      unmade.push((registers) => {
        const histogram = new (prometheus().Histogram)({ name, help, labelNames, buckets: [...bounds], registers })
        observe = (labels, seconds) => histogram.observe(labels, seconds)
      })
      return (labels, seconds) => {
        if (observe === undefined) made()
        observe!(labels, seconds)
      }
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
