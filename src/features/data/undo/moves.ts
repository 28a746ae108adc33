import type { Collection, Relation } from '../../../catalog/catalog.ts'
import type { Reader } from '../../../db/sql.ts'
import { oncePer } from '../../../language/once.ts'
import type { Move } from './order.ts'
import { isDeletion, type PastRows, type PlannedRow, positionsOf, type RowDraft, storedFields } from './planned-rows.ts'
import { rowsNow } from './queries.ts'

/** Looks at what rows refer to and which unique values they have, before and after, which decides their order. */
export async function withMoves(
  db: Reader,
  collection: Collection,
  drafts: readonly RowDraft[],
  past: PastRows,
): Promise<PlannedRow[]> {
  const references = referencesOf(collection)
  const uniques = uniquesOf(collection)
  const names = new Set([
    ...references.flatMap(({ foreignKey, discriminator }) => [
      foreignKey,
      ...(discriminator === undefined ? [] : [discriminator.column]),
    ]),
    ...uniques.flat(),
  ])
  const isConcerned = (draft: RowDraft) =>
    draft.action === 'create' || isDeletion(draft) || [...draft.fields.keys()].some((name) => names.has(name))
  const fields = storedFields(collection).filter(({ name }) => names.has(name))
  const some = fields.length === 0 ? [] : drafts.filter(isConcerned)
  const there = some.filter((draft) => draft.action === 'update' || isDeletion(draft))
  const now = await rowsNow(
    db,
    collection,
    fields,
    there.map(({ id }) => id),
  )
  const positions = some.filter((draft) => !isDeletion(draft)).flatMap(positionsOf)
  const before = await past.at(db, collection, { fields }, positions)
  return drafts.map((draft) => {
    const current = now.get(draft.id) ?? {}
    const then = Object.fromEntries(
      fields.map(({ name }) => {
        const position = draft.fields.get(name) ?? draft.image
        return [name, position === undefined ? current[name] : before.get(position)?.exact[name]]
      }),
    )
    return { ...draft, move: moveOf(draft, { references, uniques, current, then }) }
  })
}

type RowValues = Readonly<Record<string, string | null | undefined>>

function moveOf(
  draft: RowDraft,
  parts: {
    readonly references: readonly Relation[]
    readonly uniques: readonly (readonly string[])[]
    readonly current: RowValues
    readonly then: RowValues
  },
): Move {
  const { references, uniques, current, then } = parts
  const { collection, id, fields, image } = draft
  const action = isDeletion(draft) ? 'delete' : draft.action
  const comes = action === 'create'
  const goes = action === 'delete' && !collection.paranoid
  const key = place(collection.name, collection.primaryKey.name, id)
  const single = (values: RowValues, isWanted: (name: string) => boolean = () => true) =>
    uniques.flatMap(([name, ...more]) =>
      more.length > 0 || values[name!] == null || !isWanted(name!)
        ? []
        : [place(collection.name, name!, values[name!]!)],
    )
  const mayBeNull = (name: string) => collection.fields.get(name)!.nullable
  const referring = (values: RowValues, isWanted: (name: string) => boolean): Move['needs'] =>
    new Map(
      references.flatMap(({ foreignKey, discriminator, target, targetKey, constraint, onUpdate }) => {
        const value = values[foreignKey]
        const isOther = discriminator !== undefined && values[discriminator.column] !== discriminator.value
        if (value == null || isOther || !isWanted(foreignKey)) return []
        const holds = constraint && (onUpdate === 'RESTRICT' || onUpdate === 'NO ACTION')
        const was = constraint ? undefined : (fields.get(foreignKey) ?? image)
        const need = { place: place(target, targetKey, value), canWait: mayBeNull(foreignKey), holds, was }
        return [[foreignKey, need] as const]
      }),
    )
  const isSet = (name: string) => comes || fields.has(name)
  const unique = (values: RowValues, isWanted: (names: readonly string[]) => boolean) =>
    uniques.flatMap((names) => {
      const key = names.map((name) => values[name])
      const isNull = key.some((value) => value == null)
      if (isNull || !isWanted(names)) return []
      const nullable = names.find((name) => isSet(name) && mayBeNull(name))
      return [{ place: uniquePlace(collection, names, JSON.stringify(key)), nullable }]
    })
  const touches = (names: readonly string[]) => names.some((name) => fields.has(name))
  const changes = (name: string) => action === 'update' && fields.has(name)
  return {
    action: action === 'none' ? 'update' : action,
    offers: comes ? [key, ...single(then)] : goes ? [key, ...single(current)] : single(then, changes),
    leaves: single(current, changes),
    needs: action === 'delete' ? new Map() : referring(then, isSet),
    marks: action === 'delete' && !goes ? [key, ...single(current)] : [],
    releases: action === 'create' ? new Map() : referring(current, (name) => action === 'delete' || fields.has(name)),
    takes: action === 'delete' ? [] : unique(then, (names) => comes || touches(names)),
    frees: comes ? [] : unique(current, (names) => goes || touches(names)).map(({ place }) => place),
  }
}

export const place = (collection: string, column: string, value: string): string => `${collection}.${column} ${value}`

/** To-one relations that the database or the platform keeps. */
export const referencesOf = oncePer((collection: Collection): readonly Relation[] =>
  [...collection.relations.values()].filter(
    ({ kind, constraint, discriminator }) => kind === 'belongsTo' && (constraint || discriminator !== undefined),
  ),
)

/** Columns that are unique together, but for the key. */
export const uniquesOf = oncePer((collection: Collection): readonly (readonly string[])[] => {
  const { fields, indexes, definition } = collection
  const single = [...fields.values()]
    .filter(({ unique, primaryKey }) => unique && !primaryKey)
    .map(({ name }) => [name])
  const together = (definition.schema.constraints ?? []).flatMap((rule) =>
    rule.type === 'unique' ? [rule.fields] : [],
  )
  const indexed = indexes.filter(({ unique }) => unique).map((index) => index.fields)
  return [...single, ...together, ...indexed].filter((names) => names.every((name) => fields.has(name)))
})

export const uniquePlace = ({ name }: Collection, names: readonly string[], key: string): string =>
  `unique ${name} ${names} ${key}`
