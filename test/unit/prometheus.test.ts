import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { workerNames } from '../../src/workers/names.ts'

/* What docs/ says of metrics, held against the program: its workers, their ports, and the names of what it measures. */

const root = join(import.meta.dirname, '../..')
const textOf = (file: string) => readFileSync(join(root, file), 'utf8')

const firstPort = 9465
const ports = workerNames.map((name, i) => [name, firstPort + i])

/** Every metric of the program's own. */
const metrics = [
  ...new Set(
    globSync('src/**/*.ts', { cwd: root }).flatMap((file) =>
      [...textOf(file).matchAll(/'((?:daybook|http)_[a-z_]+)'/g)].map(([, name]) => name!),
    ),
  ),
]

/** Row by row, the names in the first column: `_idle` follows on one before it. */
const rows = [...textOf('docs/observability.md').matchAll(/^\| (`.+?`) \|/gm), ...admissionOf('docs/overload.md')].map(
  ([, cell]) => [...cell!.matchAll(/`([a-z_]+)/g)].map(([, name]) => name!),
)

function admissionOf(file: string): RegExpMatchArray[] {
  return [...textOf(file).matchAll(/reports ((?:`[a-z_]+`(?:, | and |))+)/g)]
}

const isDocumented = (metric: string): boolean =>
  rows.some(
    ([first, ...rest]) =>
      first === metric ||
      rest.includes(metric) ||
      rest.some(
        (end) => end.startsWith('_') && metric.endsWith(end) && first!.startsWith(metric.slice(0, -end.length)),
      ),
  )

describe('the metrics', () => {
  it('are documented, each of them', () => {
    expect(metrics.length).toBeGreaterThan(40)
    expect(metrics.filter((metric) => !isDocumented(metric))).toEqual([])
  })

  it('are what the alerts ask for', () => {
    const { groups } = parse(textOf('docs/prometheus/alerts.yml'))
    const exprs: string[] = groups.flatMap(({ rules }: any) => rules.map(({ expr }: any) => expr))
    const asked = exprs.flatMap((expr) => expr.match(/\b(?:daybook|http)_[a-z_]+/g) ?? [])
    const unknown = asked.filter((name) => !metrics.includes(name) && !metrics.includes(name.replace(/_count$/, '')))
    expect(unknown).toEqual([])
  })
})

describe('the workers', () => {
  it('are scraped, each at its port', () => {
    const { scrape_configs } = parse(textOf('docs/prometheus/prometheus.yml'))
    const { static_configs } = scrape_configs.find((job: any) => job.job_name === 'daybook-workers')
    expect(static_configs.map(({ targets, labels }: any) => [labels.worker, Number(targets[0].split(':')[1])])).toEqual(
      ports,
    )
  })

  it('are in the table of ports', () => {
    const table = [...textOf('docs/observability.md').matchAll(/^\| ([a-z-]+) \| `METRICS_PORT`.* \| (\d+) \|$/gm)]
    expect(table.map(([, name, port]) => [name, Number(port)])).toEqual(ports)
  })
})
