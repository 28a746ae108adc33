import type { Catalog, Relation } from '../../../catalog/catalog.ts'
import type { Reader } from '../../../db/sql.ts'
import { place, referencesOf, uniquePlace, uniquesOf } from './moves.ts'
import { isDeletion, type PastRows, type PlannedRow, type Reason } from './planned-rows.ts'
import { type ReferringColumn, rowsHolding, rowsReferring, valuesMissing } from './queries.ts'

/**
 * Adds what speaks against rows because of others: rows that refer to what goes, what is gone that a row refers to, and unique
 * values that rows in the trash keep.
 */
export async function withConflicts(
  db: Reader,
  catalog: Catalog,
  rows: readonly PlannedRow[],
  past: PastRows,
): Promise<readonly PlannedRow[]> {
  const more = new Map<PlannedRow, Reason[]>()
  const add = (row: PlannedRow, reason: Reason) => more.set(row, [...(more.get(row) ?? []), reason])
  await findReferring(db, catalog, rows, add)
  const dangling = await findMissing(db, catalog, rows, past, add)
  await findTaken(db, rows, add)
  return rows.map((row) =>
    more.has(row) || dangling.has(row)
      ? { ...row, reasons: [...row.reasons, ...(more.get(row) ?? [])], dangling: dangling.get(row) }
      : row,
  )
}

type Add = (row: PlannedRow, reason: Reason) => void

async function findReferring(db: Reader, catalog: Catalog, rows: readonly PlannedRow[], add: Add): Promise<void> {
  const going = goingOf(rows)
  if (going.size === 0) return
  const planned = new Map(rows.map((row) => [`${row.collection.name} ${row.id}`, row]))
  const found = new Map<PlannedRow, Map<string, number>>()
  const collections = new Set([...going.values()].map(({ collection }) => collection.name))
  for (const { reference, relation } of referencesTo(catalog, collections)) {
    const prefix = place(relation.target, relation.targetKey, '')
    const values = [...going.keys()].filter((key) => key.startsWith(prefix)).map((key) => key.slice(prefix.length))
    for (const { id, value } of await rowsReferring(db, reference, values)) {
      const other = planned.get(`${reference.collection.name} ${id}`)
      if (other?.fields.has(reference.column.name)) continue
      // A row that is only marked still refers; whether that keeps the other one is the relation's to say.
      if (other !== undefined && isDeletion(other) && !(reference.collection.paranoid && isKept(reference, relation)))
        continue
      const row = going.get(prefix + value)!
      const counts = found.get(row) ?? new Map<string, number>()
      counts.set(reference.collection.name, (counts.get(reference.collection.name) ?? 0) + 1)
      found.set(row, counts)
    }
  }
  for (const [row, counts] of found)
    add(row, { reason: 'referenced', by: [...counts].map(([collection, count]) => ({ collection, rows: count })) })
}

/** Rows that go, by their places: those that are deleted, and of those that are marked the ones that a cascade takes. */
function goingOf(rows: readonly PlannedRow[]): ReadonlyMap<string, PlannedRow> {
  const going = new Map<string, PlannedRow>()
  for (const row of rows) if (row.action === 'delete') for (const offered of row.move.offers) going.set(offered, row)
  const isTaken = ({ collection, move }: PlannedRow) =>
    referencesOf(collection).some(({ constraint, onDelete, foreignKey }) => {
      const released = move.releases.get(foreignKey)
      return constraint && onDelete === 'CASCADE' && released !== undefined && going.has(released.place)
    })
  let left = rows.filter(({ move }) => (move.marks ?? []).length > 0)
  for (let size = -1; size < going.size; ) {
    size = going.size
    const [taken, others] = [left.filter(isTaken), left.filter((row) => !isTaken(row))]
    for (const row of taken) for (const mark of row.move.marks!) going.set(mark, row)
    left = others
  }
  return going
}

/** Whether a row that is referred to by this cannot go. */
const isKept = ({ column }: ReferringColumn, { constraint, onDelete }: Relation): boolean =>
  constraint && (onDelete === 'RESTRICT' || onDelete === 'NO ACTION' || (onDelete === 'SET NULL' && !column.nullable))

function referencesTo(
  { collections }: Catalog,
  targets: ReadonlySet<string>,
): { readonly reference: ReferringColumn; readonly relation: Relation }[] {
  return [...collections.values()].flatMap((collection) =>
    referencesOf(collection).flatMap((relation) => {
      const column = collection.fields.get(relation.foreignKey)
      if (!targets.has(relation.target) || column === undefined) return []
      return [{ reference: { collection, column, where: relation.discriminator }, relation }]
    }),
  )
}

/** Answers the columns that come back to rows that were gone already, by row. */
async function findMissing(
  db: Reader,
  catalog: Catalog,
  rows: readonly PlannedRow[],
  past: PastRows,
  add: Add,
): Promise<ReadonlyMap<PlannedRow, ReadonlySet<string>>> {
  const offered = new Set(rows.flatMap(({ action, move }) => (action === 'delete' ? [] : move.offers)))
  const gone = new Set(rows.flatMap(({ action, move }) => (action === 'delete' ? move.offers : move.leaves)))
  const wanted = rows.flatMap((row) =>
    [...row.move.needs].flatMap(([column, need]) => (offered.has(need.place) ? [] : [{ row, column, need }])),
  )
  const dangling = new Set<string>()
  const byTarget = Map.groupBy(wanted, ({ need }) => need.place.slice(0, need.place.indexOf(' ') + 1))
  for (const [prefix, list] of byTarget) {
    const [target, targetKey] = prefix.trim().split('.') as [string, string]
    const collection = catalog.collections.get(target)!
    const values = list.map(({ need }) => need.place.slice(prefix.length))
    const missing = await valuesMissing(db, collection, collection.fields.get(targetKey)!, values)
    for (const value of missing) gone.add(prefix + value)
    const free = list.flatMap(({ need: { place, was } }) =>
      was === undefined || !gone.has(place) ? [] : [{ value: place.slice(prefix.length), place: was }],
    )
    // Links to any collection lead nowhere where a cascade of the database took what they led to, and come back so.
    if (free.length > 0 && targetKey === collection.primaryKey.name)
      for (const { value, place } of await past.dangling(db, collection, free))
        dangling.add(`${place} ${prefix}${value}`)
  }
  const missing = wanted.filter(({ need }) => gone.has(need.place))
  const [asBefore, since] = [true, false].map((was) =>
    missing.filter(({ need }) => dangling.has(`${need.was} ${need.place}`) === was),
  )
  const lacking = Map.groupBy(since!, ({ row }) => row)
  for (const [row, list] of lacking)
    add(row, {
      reason: 'reference gone',
      fields: list.map(({ column }) => column),
      required: list.some(({ need }) => !need.canWait),
    })
  const left = Map.groupBy(asBefore!, ({ row }) => row)
  return new Map([...left].map(([row, list]) => [row, new Set(list.map(({ column }) => column))]))
}

/** Rows that are marked keep their unique values. */
async function findTaken(db: Reader, rows: readonly PlannedRow[], add: Add): Promise<void> {
  const freed = new Set(rows.flatMap(({ move }) => move.frees))
  for (const [collection, list] of Map.groupBy(rows, (row) => row.collection)) {
    if (!collection.paranoid) continue
    const marks = list.filter(isDeletion).map(({ id }) => id)
    for (const names of uniquesOf(collection)) {
      const prefix = uniquePlace(collection, names, '')
      const wanted = list.flatMap((row) =>
        row.move.takes.flatMap(({ place }) =>
          place.startsWith(prefix) && !freed.has(place) ? [{ row, place, key: place.slice(prefix.length) }] : [],
        ),
      )
      const fields = names.map((name) => collection.fields.get(name)!)
      const keys = wanted.map(({ key }) => JSON.parse(key) as string[])
      const held = new Map((await rowsHolding(db, collection, fields, keys, marks)).map(({ key, id }) => [key, id]))
      for (const { row, key } of wanted)
        if (held.has(key) && held.get(key) !== row.id) add(row, { reason: 'taken', fields: names, required: true })
    }
  }
}
