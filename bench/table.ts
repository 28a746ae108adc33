import type { Side } from './cases.ts'
import type { Figure } from './figures.ts'
import type { Figures, Line } from './rounds.ts'

/**
 * The lines as a Markdown table: requests (or written rows) per second, ratios to the ceiling, latencies, errors; empty
 * without any.
 */
export function tableOf(lines: readonly Line[]): string {
  if (lines.length === 0) return ''
  const head = [
    'workload',
    'as',
    'ceiling/s',
    'Daybook/s',
    'ratio',
    'cached/s',
    'ratio',
    'p50/p99 ms (ceiling)',
    'p50/p99 ms',
    'CPU µs (ceiling)',
    'CPU µs',
    'CPU µs (cached)',
    'CPU ratio',
    'errors',
  ]
  const rule = head.map((_, i) => (i < 2 ? '---' : '---:'))
  return [head, rule, ...lines.map(cellsOf)].map((cells) => `| ${cells.join(' | ')} |`).join('\n')
}

/** Figures that are not rates, as a Markdown table; empty without any. */
export function figuresTable(figures: readonly Figure[]): string {
  if (figures.length === 0) return ''
  const head = ['figure', 'unit', 'ceiling', 'Daybook', 'ratio', 'cached']
  const rows = figures.map((figure) => [
    `${figure.id} ${figure.title}`,
    figure.unit,
    rounded(figure.ceiling),
    rounded(figure.daybook),
    fixed(quotient(figure.daybook, figure.ceiling)),
    rounded(figure.cached),
  ])
  return [head, head.map((_, i) => (i < 2 ? '---' : '---:')), ...rows]
    .map((cells) => `| ${cells.join(' | ')} |`)
    .join('\n')
}

const rounded = (value: number | undefined): string =>
  value === undefined
    ? ''
    : value >= 100
      ? Math.round(value).toLocaleString('en')
      : String(Number(value.toPrecision(3)))

/** Daybook ÷ ceiling. */
export function ratioOf({ figures }: Line, side: Side): number | undefined {
  return quotient(figures[side]?.perSecond, figures.ceiling?.perSecond)
}

const quotient = (own: number | undefined, ceiling: number | undefined): number | undefined =>
  own === undefined || !ceiling ? undefined : own / ceiling

function cellsOf(line: Line): string[] {
  const { ceiling, daybook, cached } = line.figures
  const rate = (figures: Figures | undefined) =>
    figures === undefined ? '' : Math.round(figures.perSecond * line.rowsEach).toLocaleString('en')
  return [
    `${line.id} ${line.title}`,
    line.role,
    rate(ceiling),
    rate(daybook),
    fixed(ratioOf(line, 'daybook')),
    rate(cached),
    fixed(ratioOf(line, 'cached')),
    latencies(ceiling),
    latencies(daybook),
    cpu(ceiling),
    cpu(daybook),
    cpu(cached),
    fixed(cpuRatio(ceiling, daybook)),
    String([ceiling, daybook, cached].reduce((sum, figures) => sum + (figures?.errors ?? 0), 0)),
  ]
}

const fixed = (value: number | undefined): string => (value === undefined ? '' : value.toFixed(2))

const latencies = (figures: Figures | undefined): string =>
  figures === undefined ? '' : `${figures.p50.toFixed(1)} / ${figures.p99.toFixed(1)}`

/** Of the server, and of PostgreSQL where it is ours. */
const cpu = (figures: Figures | undefined): string =>
  [figures?.serverCpu, figures?.databaseCpu]
    .filter((µs) => µs !== undefined)
    .map((µs) => Math.round(µs))
    .join(' + ')

function cpuRatio(ceiling: Figures | undefined, daybook: Figures | undefined): number | undefined {
  const sum = ({ serverCpu = Number.NaN, databaseCpu = 0 }: Figures) => serverCpu + databaseCpu
  const ratio = ceiling === undefined || daybook === undefined ? Number.NaN : sum(ceiling) / sum(daybook)
  return Number.isNaN(ratio) ? undefined : ratio
}
