import type { Grouping, Query, SortKey } from './queries.ts'
import {
  compare,
  Denied,
  type FilterText,
  holds,
  mayEnter,
  type Place,
  relatedRows,
  requireField,
  visibleRows,
} from './semantics.ts'
import type { Link, Row, Table } from './world.ts'

export type Expected = 'denied' | { readonly data: readonly object[]; readonly totalCount: number }

/** What a list must answer; throws {@link Denied} for what the caller may not read. */
export function listOf(table: Table, query: Query, place: Place): Expected {
  const shape = shapeOf(table, query.fields, [], place)
  const rows = passing(table, query.filter, place)
  const ordered = sorted(rows, query.sort, table, place)
  return { data: page(ordered, query).map((row) => shown(row, shape, place)), totalCount: rows.length }
}

export function groupsOf(table: Table, grouping: Grouping, place: Place): Expected {
  for (const name of grouping.groupBy) requireField(table, [], name, place)
  for (const { field } of Object.values(grouping.aggregate))
    if (field !== '*') checkPath(field.split('.'), table, [], place)
  const groups = new Map<string, Row[]>()
  if (grouping.groupBy.length === 0) groups.set('', [])
  for (const row of passing(table, grouping.filter, place)) {
    const key = grouping.groupBy.length === 0 ? '' : JSON.stringify(grouping.groupBy.map((name) => row[name]))
    groups.set(key, [...(groups.get(key) ?? []), row])
  }
  const data = [...groups.values()].map((rows) => ({
    ...Object.fromEntries(grouping.groupBy.map((name) => [name, rows[0]![name]])),
    ...Object.fromEntries(
      Object.entries(grouping.aggregate).map(([name, one]) => [name, aggregated(one, rows, table, place)]),
    ),
  }))
  return { data, totalCount: data.length }
}

function passing(table: Table, filter: FilterText | undefined, place: Place): Row[] {
  // Names are checked once more without a row: an empty collection must refuse them too.
  if (filter !== undefined) holds(filter, undefined, table, [], place)
  return visibleRows(table, place).filter(
    (row) => filter === undefined || holds(filter, row, table, [], place) === true,
  )
}

function page(rows: readonly Row[], { limit, page: number }: Query): readonly Row[] {
  if (limit === -1) return rows
  const size = limit ?? (number === undefined ? rows.length : 10)
  const from = number === undefined ? 0 : (number - 1) * size
  return rows.slice(from, from + size)
}

function sorted(rows: readonly Row[], keys: readonly SortKey[], table: Table, place: Place): readonly Row[] {
  const last: SortKey = { path: 'id', descending: keys.at(-1)?.descending ?? false }
  for (const { path } of keys) checkPath(path.split('.'), table, [], place)
  return [...rows].sort((one, other) => {
    for (const { path, descending } of [...keys, last]) {
      const order = nullsLast(
        sortValue(one, path.split('.'), descending, table, place),
        sortValue(other, path.split('.'), descending, table, place),
      )
      if (order !== 0) return descending ? -order : order
    }
    return 0
  })
}

const nullsLast = (one: unknown, other: unknown): number =>
  one === null ? (other === null ? 0 : 1) : other === null ? -1 : compare(one, other)

function checkPath([first, ...rest]: readonly string[], table: Table, path: readonly string[], place: Place): void {
  const link = table.links.get(first!)
  if (link === undefined) requireField(table, path, first!, place)
  else if (!mayEnter(link, path, place)) throw new Denied(first)
  else checkPath(rest, place.world.get(link.target)!, [...path, first!], place)
}

/** The least of the related values ascending, the greatest descending. */
function sortValue(
  row: Row,
  [first, ...rest]: readonly string[],
  descending: boolean,
  table: Table,
  place: Place,
): unknown {
  const link = table.links.get(first!)
  if (link === undefined) return row[first!] ?? null
  const target = place.world.get(link.target)!
  const values = relatedRows(link, row, place).map((other) => sortValue(other, rest, descending, target, place))
  const present = values.filter((value) => value !== null).sort(compare)
  return (descending ? present.at(-1) : present[0]) ?? null
}

type Shape = {
  readonly names: readonly string[]
  readonly nested: readonly { readonly link: Link; readonly shape: Shape }[]
}

function shapeOf(table: Table, fields: readonly string[], path: readonly string[], place: Place): Shape {
  const names = fields.filter((name) => !name.includes('.'))
  for (const name of names) requireField(table, path, name, place)
  const heads = [...new Set(fields.filter((name) => name.includes('.')).map((name) => name.split('.', 1)[0]!))]
  const nested = heads.map((head) => {
    const link = table.links.get(head)!
    if (!mayEnter(link, path, place)) throw new Denied(head)
    const inner = fields.filter((name) => name.startsWith(`${head}.`)).map((name) => name.slice(head.length + 1))
    return { link, shape: shapeOf(place.world.get(link.target)!, ['id', ...inner], [...path, head], place) }
  })
  return { names, nested }
}

function shown(row: Row, { names, nested }: Shape, place: Place): object {
  const own = names.map((name) => [name, row[name] ?? null])
  const below = nested.map(({ link, shape }) => {
    const rows = relatedRows(link, row, place).map((other) => shown(other, shape, place))
    return [link.name, link.many ? rows : (rows[0] ?? null)]
  })
  return Object.fromEntries([...own, ...below])
}

function aggregated(
  one: { readonly function: string; readonly field: string },
  rows: readonly Row[],
  table: Table,
  place: Place,
): unknown {
  if (one.field === '*') return rows.length
  const [name, related] = one.field.split('.').reverse() as [string, string?]
  const link = related === undefined ? undefined : table.links.get(related)!
  const of = link === undefined ? table : place.world.get(link.target)!
  const counted = link === undefined ? rows : rows.flatMap((row) => relatedRows(link, row, place))
  const values = counted.map((row) => row[name] ?? null).filter((value) => value !== null)
  const ascending = [...values].sort(compare)
  const isDecimal = of.fields.get(name) === 'decimal'
  const form = (value: unknown) => (value === undefined ? null : isDecimal ? decimalForm(String(value)) : value)
  switch (one.function) {
    case 'count':
      return values.length
    case 'distinct':
      return new Set(values).size
    case 'sum':
      return values.length === 0 ? null : sumForm(values, isDecimal)
    case 'min':
      return form(ascending[0])
    default:
      return form(ascending.at(-1))
  }
}

/** All digits: as a number where one holds them, else as text. */
function sumForm(values: readonly unknown[], isDecimal: boolean): number | string {
  const hundredths = values.reduce<bigint>((sum, value) => {
    const [, sign, whole, cents = '00'] = /^(-?)(\d+)(?:\.(\d\d))?$/.exec(String(value))!
    return sum + BigInt(`${sign}${whole}${cents}`)
  }, 0n)
  if (!isDecimal) return wholeForm(hundredths / 100n)
  const digits = String(hundredths < 0n ? -hundredths : hundredths).padStart(3, '0')
  return decimalForm(`${hundredths < 0n ? '-' : ''}${digits.slice(0, -2)}.${digits.slice(-2)}`)
}

function wholeForm(value: bigint): number | string {
  return Number.isSafeInteger(Number(value)) ? Number(value) : String(value)
}

function decimalForm(text: string): number | string {
  const significant = text.replace(/[-.]/g, '').replace(/^0+/, '')
  return significant.length > 15 ? text : Number(text)
}
