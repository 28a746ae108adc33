import { useMemo, useState } from 'react'
import { Button } from '../../ui/button.tsx'
import { Empty, Loading, Note, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import type { Row } from '../data/query.ts'
import { Plot } from './plot.tsx'
import type { Report } from './question.ts'
import { chartOf, columnsOf, measureText, mostSeries, valueText } from './report.ts'
import styles from './reports.module.css'
import type { Outcome } from './use-report.ts'

type ResultProps = { readonly report: Report; readonly outcome: Outcome; readonly height?: number }

/** The answer of a report in its form. Every drawing has its table. */
export function Result({ report, outcome, height = 320 }: ResultProps) {
  const { rows, error, retry } = outcome
  const hasError = error !== undefined && error !== null
  if (rows === undefined) return hasError ? <Problem error={error} onRetry={retry} /> : <Loading lines={5} />
  return (
    <div className={styles.result}>
      {hasError && (
        <Note kind="warning">
          This is not followed: {error instanceof Error ? error.message : String(error)}{' '}
          <Button size="s" onClick={retry}>
            Try again
          </Button>
        </Note>
      )}
      {rows.length === 0 ? (
        <Empty title="No groups">No row matches the filter, or no group the condition on groups.</Empty>
      ) : (
        <Shown report={report} rows={rows} height={height} />
      )}
    </div>
  )
}

type ShownProps = { readonly report: Report; readonly rows: readonly Row[]; readonly height: number }

function Shown({ report, rows, height }: ShownProps) {
  const { form } = report
  const chart = useMemo(() => chartOf(report, rows), [JSON.stringify([report.groupBy, report.aggregate]), rows])
  if (form === 'table') return <ResultTable report={report} rows={rows} />
  if (form === 'figure') return <Figures report={report} rows={rows} />
  return (
    <>
      {chart.series.length === 0 ? (
        <Note kind="warning">Nothing of this is a number, so nothing can be drawn.</Note>
      ) : (
        <figure className={styles.figure}>
          <Plot chart={chart} form={form} height={height} />
        </figure>
      )}
      {chart.more > 0 && (
        <Note>
          The first {mostSeries} of {mostSeries + chart.more} series are drawn. The table has all.
        </Note>
      )}
      <details className={styles.details}>
        <summary>As a table</summary>
        <ResultTable report={report} rows={rows} />
      </details>
    </>
  )
}

/** One figure for each measure: of everything, or of the first group. */
function Figures({ report, rows }: Omit<ShownProps, 'height'>) {
  const columns = columnsOf(report)
  const row = rows[0]!
  const group = columns.filter(({ isMeasure }) => !isMeasure).map(({ read }) => valueText(read(row)))
  return (
    <dl className={styles.figures}>
      {columns
        .filter(({ isMeasure }) => isMeasure)
        .map(({ title, read }) => (
          <div key={title}>
            <dt>{[title, ...group].join(' · ')}</dt>
            <dd>{measureText(read(row))}</dd>
          </div>
        ))}
    </dl>
  )
}

const step = 200

function ResultTable({ report, rows }: Omit<ShownProps, 'height'>) {
  const [most, setMost] = useState(step)
  const columns = columnsOf(report)
  const numbered = rows.slice(0, most).map((row, place) => ({ row, place }))
  return (
    <>
      <Table
        label="Result"
        rows={numbered}
        keyOf={({ place }) => String(place)}
        columns={columns.map(({ title, isMeasure, read }) => ({
          title,
          isNumber: isMeasure,
          cell: ({ row }: (typeof numbered)[number]) => (isMeasure ? measureText(read(row)) : valueText(read(row))),
        }))}
      />
      <p className={styles.hint}>
        {rows.length.toLocaleString()} {rows.length === 1 ? 'group' : 'groups'}
        {rows.length > most && (
          <Button size="s" kind="ghost" onClick={() => setMost(most + step)}>
            Show {Math.min(step, rows.length - most)} more
          </Button>
        )}
      </p>
    </>
  )
}
