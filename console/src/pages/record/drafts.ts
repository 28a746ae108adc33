import type { Catalog, Collection, Field, Relation } from '../../app/catalog.ts'
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

type ChosenLinks = {
  readonly name: string
  readonly key: string
  readonly target: string
  readonly through: string | undefined
  readonly chosen: readonly Choice['id'][]
}

/** The relations for which something was chosen, with the key of their target. */
export function chosenLinks(relations: readonly Relation[], links: Links, catalog: Catalog): readonly ChosenLinks[] {
  return relations.flatMap(({ name, target, through }) => {
    const [chosen, { key } = { key: '' }] = [links[name], catalog.get(target)]
    return chosen === undefined || key === ''
      ? []
      : [{ name, key, target, through, chosen: chosen.map((choice) => choice.id) }]
  })
}

/** The server takes no longer list for a relation. */
const longestList = 1000

/** Links that are written one by one, as rows of the collection between. */
export type LinkRows = {
  readonly junction: Collection
  readonly own: Readonly<Record<string, Choice['id']>>
  readonly column: string
  readonly added: readonly Choice['id'][]
  readonly removed: readonly Choice['id'][]
}

type LinksToWrite = { readonly lists: Row; readonly rows: readonly LinkRows[] }

/** The record whose links are written. */
type Owner = { readonly name: string; readonly id: string; readonly row: Row }

/**
 * The links of a record as they shall be; `of` is undefined for a new one. A change of links leaves the version of a row as it is, so
 * they are read just before: what somebody else has linked meanwhile stays.
 */
export async function linksToWrite(
  changed: readonly ChosenLinks[],
  of: Owner | undefined,
  catalog: Catalog,
): Promise<LinksToWrite> {
  if (of === undefined || changed.length === 0)
    return { lists: Object.fromEntries(changed.map(({ name, chosen }) => [name, chosen])), rows: [] }
  const read = changed.map(({ name, key }) => `${name}.${key}`)
  const { row: now } = await readVersion(of.name, of.id, read)
  const lists: Record<string, readonly Choice['id'][]> = {}
  const rows: LinkRows[] = []
  for (const one of changed) {
    const stored = idsIn(now[one.name], one.key)
    const list = mergedLinks(idsIn(of.row[one.name], one.key), one.chosen, stored)
    const ends = list.length > longestList ? endsOf(one, of, catalog) : undefined
    if (ends === undefined) lists[one.name] = list
    else rows.push({ ...ends, ...differenceOf(stored, list) })
  }
  return { lists, rows }
}

function differenceOf(before: readonly Choice['id'][], after: readonly Choice['id'][]) {
  const [old, next] = [new Set(before), new Set(after)]
  return { added: after.filter((id) => !old.has(id)), removed: before.filter((id) => !next.has(id)) }
}

/** The columns of the collection between that lead to each end, where there is no doubt which. */
function endsOf({ target, through = '' }: ChosenLinks, of: Owner, catalog: Catalog) {
  const junction = catalog.get(through)
  const leadingTo = (name: string) => junction?.fields.filter(({ relation }) => relation?.target === name) ?? []
  const [owns, others] = [leadingTo(of.name), leadingTo(target)]
  if (junction === undefined || target === of.name || owns.length !== 1 || others.length !== 1) return undefined
  return { junction, own: { [owns[0]!.name]: of.id }, column: others[0]!.name }
}

const idsIn = (linked: unknown, key: string): readonly Choice['id'][] =>
  Array.isArray(linked) ? linked.map((one: Row) => one[key] as Choice['id']) : []
