import type { Collection, Field } from '../../app/definition.ts'

export const actions = ['read', 'create', 'update', 'delete'] as const
export type Action = (typeof actions)[number]

/* Which fields a rule opens, as entries: `*`, `title`, `-price`, `author.name`, `members.*`. */

/** The action of the entries; `any` for a named rule, which permissions of every action may use. */
export type Use = Action | 'any'

type Entries = readonly string[]

/** Entries as they are stored in any form: `*`, `title, author.name`, `["*", "-price"]`. Empty for none. */
export const entriesIn = (stored: unknown): Entries =>
  [stored ?? '']
    .flat()
    .flatMap((entry) => String(entry).split(','))
    .map((entry) => entry.trim())
    .filter((entry) => entry !== '')

/** Where no entry opens anything, reading shows every own column but the excluded ones, and writing none. */
export const isSilent = (entries: Entries): boolean => entries.every((entry) => entry.startsWith('-'))

/** The entries as they act: what is stored may leave the `*` of readers out. */
export function actingEntries(stored: unknown, use: Use): Entries {
  const entries = entriesIn(stored)
  return use === 'read' && isSilent(entries) ? ['*', ...entries] : entries
}

/** The fields that `*` leaves out for writers, so that nobody gains rights by a field that was not meant. */
const privileged = new Set(['userCreated_Id', 'userUpdated_Id', 'tenant_Id', 'role_Id', 'emailVerified'])

const isWrite = (use: Use): boolean => use === 'create' || use === 'update'

/** Whether `*` opens the field; what it does not open takes an entry of its own. */
export const isInAll = ({ name, isHidden, isGenerated }: Field, use: Use): boolean =>
  !isHidden && !(isWrite(use) && (isGenerated || privileged.has(name)))

const opensAll = (entries: Entries): boolean => entries.includes('*') || entries.includes('*.*')

/** Whether the entries open an own field. */
export function isOpen(entries: Entries, field: Field, use: Use): boolean {
  if (entries.includes(`-${field.name}`)) return false
  return entries.includes(field.name) || (opensAll(entries) && isInAll(field, use))
}

/** The entries with a field opened or closed; all others are as they were. */
export function withField(entries: Entries, field: Field, isOpened: boolean, use: Use): Entries {
  const { name } = field
  const byAll = opensAll(entries) && isInAll(field, use)
  if (!isOpened) return [...entries.filter((entry) => entry !== name), ...(byAll ? [`-${name}`] : [])]
  const others = entries.filter((entry) => entry !== `-${name}`)
  return byAll || others.includes(name) ? others : [...others, name]
}

/** The entries with or without `*`; what else they say stays, so that taking it back loses nothing. */
export const withAll = (entries: Entries, isOpened: boolean): Entries => {
  const others = entries.filter((entry) => entry !== '*')
  return isOpened ? ['*', ...others] : others
}

/** Entries that no checkbox of an own field stands for: exclusions, what leads through relations, names of nothing. */
export function furtherEntries(entries: Entries, { fields }: Collection): Entries {
  const own = new Set(fields.map(({ name }) => name))
  return entries.filter((entry) => entry !== '*' && !own.has(entry))
}

/** Whether an entry names something there is, as far as its first name goes. */
export function isKnownEntry(entry: string, { fields, relations }: Collection): boolean {
  const [first = ''] = entry.replace(/^-/, '').split('.')
  return first === '*' || [...fields, ...relations].some(({ name }) => name === first)
}

/** The choices through the relations of a collection; longer ways are typed. */
export const throughRelations = ({ relations }: Collection, catalog: ReadonlyMap<string, Collection>): Entries =>
  relations.flatMap(({ name, target }) => [
    `${name}.*`,
    ...(catalog.get(target)?.fields ?? []).filter(({ isHidden }) => !isHidden).map((field) => `${name}.${field.name}`),
  ])
