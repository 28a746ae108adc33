import type { Collection, Field } from '../../app/definition.ts'
import type { Filter } from './filter.ts'

export type Row = Readonly<Record<string, unknown>>

/** The shown part of a collection; all of it is in the address. */
export type ListSearch = {
  readonly filter?: Filter
  /** `-price`: descending. */
  readonly sort?: string
  readonly search?: string
  /** Names of columns by commas; those of the definition unless given. */
  readonly columns?: string
  /** A time, or a cursor of the history. */
  readonly asOf?: string
}

/** Reads the address; what makes no sense in it is left out. */
export function readListSearch(search: Record<string, unknown>): ListSearch {
  const text = (name: string) => {
    const value = search[name]
    return typeof value === 'string' && value !== '' ? { [name]: value } : {}
  }
  const { filter } = search
  const isFilter = typeof filter === 'object' && filter !== null && !Array.isArray(filter)
  return {
    ...(isFilter && { filter: filter as Filter }),
    ...text('sort'),
    ...text('search'),
    ...text('columns'),
    ...text('asOf'),
  }
}

/** The columns to show: those that were chosen, or all that may be seen. */
export function columnsOf({ fields }: Collection, { columns }: ListSearch): readonly Field[] {
  const shown = fields.filter(({ isHidden }) => !isHidden)
  // A key that only machines read stands behind what people call a row by.
  const isPlainKey = (field: Field) => field.isKey && field.kind === 'uuid'
  if (columns === undefined) return [...shown.filter((field) => !isPlainKey(field)), ...shown.filter(isPlainKey)]
  const chosen = columns.split(',').flatMap((name) => shown.filter((field) => field.name === name))
  return chosen.length === 0 ? shown : chosen
}

/** The names to read for them: with the title of each related row. */
export function fieldsToRead(
  collection: Collection,
  columns: readonly Field[],
  catalog: ReadonlyMap<string, Collection>,
): readonly string[] {
  const names = new Set([collection.key])
  for (const { name, relation } of columns) {
    names.add(name)
    const target = relation === undefined ? undefined : catalog.get(relation.target)
    if (relation !== undefined && target !== undefined && relation.reads(target.titleField))
      names.add(`${relation.name}.${target.titleField}`)
  }
  return [...names]
}

/** The names to read for a record: all of its own, and the titles of what it refers to and is linked with. */
export function fieldsOfRecord({ relations }: Collection, catalog: ReadonlyMap<string, Collection>): readonly string[] {
  const titles = relations.flatMap(({ kind, name, target, reads }) => {
    const related = catalog.get(target)
    return related === undefined || kind === 'many' || kind === 'links to any' || !reads(related.titleField)
      ? []
      : [`${name}.${related.titleField}`]
  })
  return ['*', ...titles]
}

/** The parameters of `GET /items/{collection}`, as a person would write them. */
export function parametersOf({ filter, sort, search, asOf }: ListSearch): Record<string, unknown> {
  return { filter, sort, search, asOf }
}
