import type { Catalog, Field, Relation } from '../../app/catalog.ts'
import { type Choice, type Draft, draftValue } from '../data/draft.ts'
import { mergedLinks } from '../data/links.ts'
import type { Row } from '../data/query.ts'
import { attempt } from '../data/values.ts'
import { readVersion } from '../data/writes.ts'

/** What was typed into fields, by their names. */
export type Drafts = Readonly<Record<string, Draft>>
/** What was chosen for relations, by their names. */
export type Links = Readonly<Record<string, readonly Choice[]>>

/** What cannot be a value of its field, in words. */
export function errorsOf(fields: readonly Field[], drafts: Drafts): Readonly<Record<string, string>> {
  const errors = typedInto(fields, drafts).flatMap(([field, draft]) => {
    const read = attempt(() => draftValue(field, draft))
    return 'error' in read ? [[field.name, read.error.message]] : []
  })
  return Object.fromEntries(errors)
}

/** The values that were typed, in place of those of the row. Throws for one that is none of its field. */
export function valuesOf(fields: readonly Field[], drafts: Drafts, row: Row): Row {
  const typed = typedInto(fields, drafts)
  return Object.fromEntries(typed.map(([field, draft]) => [field.name, draftValue(field, draft, row[field.name])]))
}

function typedInto(fields: readonly Field[], drafts: Drafts): readonly (readonly [Field, Draft])[] {
  return fields.flatMap((field) => {
    const draft = drafts[field.name]
    return draft === undefined ? [] : [[field, draft] as const]
  })
}

type ChosenLinks = { readonly name: string; readonly key: string; readonly chosen: readonly Choice['id'][] }

/** The relations for which something was chosen, with the key of their target. */
export function chosenLinks(relations: readonly Relation[], links: Links, catalog: Catalog): readonly ChosenLinks[] {
  return relations.flatMap(({ name, target }) => {
    const [chosen, { key } = { key: '' }] = [links[name], catalog.get(target)]
    return chosen === undefined || key === '' ? [] : [{ name, key, chosen: chosen.map((choice) => choice.id) }]
  })
}

/**
 * The links of a record as they shall be; `of` is undefined for a new one. A change of links leaves the version of a row as it is, so
 * they are read just before: what somebody else has linked meanwhile stays.
 */
export async function linksToWrite(
  changed: readonly ChosenLinks[],
  of: { readonly name: string; readonly id: string; readonly row: Row } | undefined,
): Promise<Row> {
  if (of === undefined || changed.length === 0)
    return Object.fromEntries(changed.map(({ name, chosen }) => [name, chosen]))
  const read = changed.map(({ name, key }) => `${name}.${key}`)
  const { row: now } = await readVersion(of.name, of.id, read)
  return Object.fromEntries(
    changed.map(({ name, key, chosen }) => [
      name,
      mergedLinks(idsIn(of.row[name], key), chosen, idsIn(now[name], key)),
    ]),
  )
}

const idsIn = (linked: unknown, key: string): readonly Choice['id'][] =>
  Array.isArray(linked) ? linked.map((one: Row) => one[key] as Choice['id']) : []
