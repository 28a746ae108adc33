import { useCallback, useMemo, useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { Button } from '../../ui/button.tsx'
import { Empty, Loading, Note, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import type { Row } from '../data/query.ts'
import { Plot } from './plot.tsx'
import type { Report } from './question.ts'
import { chartOf, columnsOf, fieldAt, type KindOf, mostSeries } from './report.ts'
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
  const kindOf = useKinds(report)
  const { groupBy, aggregate, timezone } = report
  const chart = useMemo(
    () => chartOf(report, rows, kindOf),
    [JSON.stringify([groupBy, aggregate, timezone]), rows, kindOf],
  )
  if (form === 'table') return <ResultTable report={report} rows={rows} kindOf={kindOf} />
  if (form === 'figure') return <Figures report={report} rows={rows} kindOf={kindOf} />
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
        <ResultTable report={report} rows={rows} kindOf={kindOf} />
      </details>
    </>
  )
}

function useKinds({ collection: name }: Report): KindOf {
  const catalog = useCatalog()
  return useCallback(
    (path) => {
      const collection = catalog.get(name)
      return collection && fieldAt(path, collection, catalog)?.kind
    },
    [catalog, name],
  )
}

type PartProps = Omit<ShownProps, 'height'> & { readonly kindOf: KindOf }

/** One figure for each measure: of everything, or of the first group. */
function Figures({ report, rows, kindOf }: PartProps) {
  const columns = columnsOf(report, kindOf)
  const row = rows[0]!
  const group = columns.filter(({ isMeasure }) => !isMeasure).map(({ text }) => text(row))
  return (
    <dl className={styles.figures}>
      {columns
        .filter(({ isMeasure }) => isMeasure)
        .map(({ title, text }) => (
          <div key={title}>
            <dt>{[title, ...group].join(' · ')}</dt>
            <dd>{text(row)}</dd>
          </div>
        ))}
    </dl>
  )
}

const step = 200

function ResultTable({ report, rows, kindOf }: PartProps) {
  const [most, setMost] = useState(step)
  const columns = columnsOf(report, kindOf)
  const numbered = rows.slice(0, most).map((row, place) => ({ row, place }))
  return (
    <>
      <Table
        label="Result"
        rows={numbered}
        keyOf={({ place }) => String(place)}
        columns={columns.map(({ title, isMeasure, text }) => ({
          title,
          isNumber: isMeasure,
          cell: ({ row }: (typeof numbered)[number]) => text(row),
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
