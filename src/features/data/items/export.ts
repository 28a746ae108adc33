import type { Readable } from 'node:stream'
import { type CsvCell, writeCsv } from '../../../adapters/csv.ts'
import type { Kind } from '../../../catalog/catalog.ts'
import { errors } from '../../../errors.ts'
import { compileStream } from '../../../query/compile.ts'
import { resolveEnv } from '../../../query/env.ts'
import { member } from '../../../query/guards.ts'
import { parseListQuery, readString } from '../../../query/parse.ts'
import type { PlanContent, Selection } from '../../../query/plan.ts'
import { resolveList } from '../../../query/resolve.ts'
import type { ItemReads, Requester } from './context.ts'
import { csvCell } from './file-rows.ts'
import { hookedQuery } from './hooking.ts'
import { ofPlan, type RowBatches, type StreamOptions, streamRows } from './reads.ts'

type ExportedFile = {
  readonly content: Readable
  readonly type: string
  /** Letters, digits, `_`, `-` and `.`, because names of collections are no more. */
  readonly name: string
}

/**
 * The rows of a list as a file, read like the list itself: the same parameters, grants, row rules, tenant and limits,
 * through the same cursor. `format` is `csv` (without one) or `json`; 400 for another.
 */
export async function exportItems(
  deps: ItemReads,
  reader: Requester,
  collection: string,
  raw: Record<string, unknown>,
  options: StreamOptions = {},
): Promise<ExportedFile> {
  const format = formatOf(raw)
  const query = await hookedQuery(deps, reader, collection, raw)
  const plan = resolveList(deps.catalog.current(), reader.access, collection, parseListQuery(query), resolveEnv(deps))
  const render = (rows: RowBatches) => format.render(rows, plan)
  const content = await streamRows(deps, compileStream(plan), render, ofPlan(plan, options))
  const day = deps.clock().toISOString().slice(0, 10)
  return { content, type: format.type, name: `${collection}-${day}.${format.extension}` }
}

type Format = {
  readonly extension: string
  readonly type: string
  readonly render: (rows: RowBatches, plan: PlanContent) => AsyncIterable<string>
}

const formats: ReadonlyMap<string, Format> = new Map([
  ['csv', { extension: 'csv', type: 'text/csv; charset=utf-8', render: csvText }],
  ['json', { extension: 'json', type: 'application/json; charset=utf-8', render: jsonText }],
])

function formatOf({ format }: Record<string, unknown>): Format {
  const found = formats.get(readString('format', format) ?? 'csv')
  if (found === undefined) throw errors.badQuery('format: csv or json')
  return found
}

/** An array, so that it can be imported as it is. */
async function* jsonText(rows: RowBatches): AsyncGenerator<string> {
  yield '['
  let separator = '\n'
  for await (const batch of rows) {
    yield separator + batch.join(',\n')
    separator = ',\n'
  }
  yield '\n]\n'
}

async function* csvText(rows: RowBatches, plan: PlanContent): AsyncGenerator<string> {
  const columns = columnsOf(plan)
  yield writeCsv([columns.map(({ name }) => name)])
  for await (const batch of rows) yield writeCsv(batch.map((text) => recordOf(JSON.parse(text), columns)))
}

/** A member of an answer's rows; without kind where it is related rows or computed. */
type Column = { readonly name: string; readonly kind: Kind | undefined }

function recordOf(row: Record<string, unknown>, columns: readonly Column[]): CsvCell[] {
  return columns.map(({ name, kind }) => csvCell(member(row, name), kind))
}

/** The members of every row, in their order. */
function columnsOf({ selection, grouping }: PlanContent): readonly Column[] {
  if (grouping === undefined) return selected(selection)
  const { keys, aggregates, detail } = grouping
  return [
    ...keys.flatMap(({ keys: names, path }) => names.map((name) => ({ name, kind: path.column.kind }))),
    ...aggregates.map(({ alias, path }) => ({ name: alias, kind: path?.column.kind })),
    ...(detail === undefined ? [] : selected(detail)),
  ]
}

function selected({ columns, nested }: Selection): readonly Column[] {
  const relations = nested.map(({ step }) => ({ name: step.relation.name, kind: undefined }))
  return [...columns.map(({ name, kind }) => ({ name, kind })), ...relations]
}
