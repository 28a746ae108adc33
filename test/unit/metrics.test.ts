import { describe, expect, it } from 'vitest'
import { openMetrics } from '../../src/adapters/metrics.ts'
import { askAtScrape } from '../../src/features/operations/metrics/metrics.ts'
import { samplesOf } from '../support/exposition.ts'

describe('the figures of a runtime', () => {
  it('are its own', async () => {
    const [one, other] = [openMetrics(), openMetrics()]
    one.gauge({ name: 'depth', help: 'x' }, () => [{ value: 7 }])
    other.gauge({ name: 'depth', help: 'x' }, () => [{ value: 8 }])
    expect(samplesOf((await one.scrape()).text).get('depth')).toBe(7)
    expect(samplesOf((await other.scrape()).text).get('depth')).toBe(8)
  })

  it('forget what is not read any more, and invent no zero', async () => {
    const metrics = openMetrics()
    let queues = ['mail', 'tasks']
    metrics.gauge({ name: 'depth', help: 'x', labelNames: ['queue'] }, () =>
      queues.map((queue) => ({ labels: { queue }, value: 1 })),
    )
    metrics.gauge({ name: 'unknown', help: 'x' }, () => [])
    const names = async () =>
      [...samplesOf((await metrics.scrape()).text).keys()].filter((name) => /^(depth|unknown)/.test(name))
    expect(await names()).toEqual(['depth{queue="mail"}', 'depth{queue="tasks"}'])
    queues = ['tasks']
    expect(await names()).toEqual(['depth{queue="tasks"}'])
  })

  it('keep the lines of a label apart, whatever it holds', async () => {
    const metrics = openMetrics()
    const time = metrics.histogram({ name: 'took', help: 'x', labelNames: ['route'] }, [1])
    time({ route: 'a"b\nc 1' }, 0.5)
    const { text } = await metrics.scrape()
    expect(text).toContain('took_count{route="a\\"b\\nc 1"} 1\n')
  })
})

describe('statements of a scrape', () => {
  it('is undefined when it fails or comes too late, and is not asked for twice at a time', async () => {
    const errors: unknown[] = []
    const failing = askAtScrape(
      () => Promise.reject(new Error('away')),
      1000,
      (error) => errors.push(error),
    )
    expect(await failing()).toBeUndefined()
    expect(errors).toEqual([new Error('away')])
    let reads = 0
    const hanging = askAtScrape(
      () => {
        reads += 1
        return new Promise(() => undefined)
      },
      5,
      () => undefined,
    )
    expect(await Promise.all([hanging(), hanging()])).toEqual([undefined, undefined])
    expect(reads).toBe(1)
  })
})
