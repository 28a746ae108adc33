import { queryOptions } from '@tanstack/react-query'
import { client, queryClient } from '../../app/client.ts'
import type { Constraint, Definition, Entry, Index, Schema } from './definitions.ts'

export const definitionsQuery = queryOptions({
  queryKey: ['schema'],
  queryFn: async () =>
    (await client.request<{ data: readonly Definition[] }>('/schemas', { query: { limit: -1 } })).data,
})

/** A change of definitions as a request, which is shown before it is sent. */
export type Change = {
  readonly title: string
  /** The button's text. */
  readonly action: string
  /** The notice after the change. */
  readonly done: string
  readonly method: 'POST' | 'PATCH' | 'DELETE'
  readonly path: string
  readonly body?: unknown
  readonly query?: Readonly<Record<string, unknown>>
  /** Whether it says that values may be altered, where it alters some. */
  readonly mayAlter?: true
  /** Imports are files already. */
  readonly canBeMigration?: false
}

type Loss = {
  readonly collection: string
  readonly field?: string
  readonly relation?: string
  readonly index?: string
  readonly constraint?: string
  readonly rows?: number
  readonly values?: number
}

type Alteration =
  | { readonly collection: string; readonly field: string; readonly values: number }
  | { readonly collection: string; readonly restored: number }

export type Finding = {
  readonly rule: string
  readonly object: string
  readonly lock: string
  readonly why: string
  readonly safeWay: string
}

/** An effect that whoever sends the change may not have meant. */
type Warning = { readonly collection: string; readonly field: string; readonly message: string }

type Warned = { readonly warnings?: readonly Warning[] }

/** The effects that a change would have. */
export type Preview = Warned & {
  readonly changes: readonly { readonly collection: string; readonly change: string }[]
  readonly dropped: readonly Loss[]
  /** Values that another type makes others, and deleted rows that come back. */
  readonly altered: readonly Alteration[]
  readonly sql: readonly string[]
  readonly findings: readonly Finding[]
}

type DryRun = Omit<Preview, 'changes'> & {
  /** Imports say it in their own way. */
  readonly changes: Preview['changes'] | Readonly<Record<'created' | 'updated' | 'deleted', readonly string[]>>
}

const send = <Body>({ method, path, body, query }: Change, more: Readonly<Record<string, unknown>> = {}) =>
  client.request<Body>(path, { method, body, query: { ...query, ...more } })

const dryRunKey = 'dry run'

/** Asked anew each time: others write meanwhile. */
export const previewQuery = (change: Change) =>
  queryOptions({ queryKey: [dryRunKey, change], queryFn: () => previewChange(change), staleTime: 0, gcTime: 0 })

async function previewChange(change: Change): Promise<Preview> {
  const { changes, ...preview } = await send<DryRun>(change, { dryRun: true })
  return { ...preview, changes: 'created' in changes ? listed(changes) : changes }
}

function listed(changes: Readonly<Record<'created' | 'updated' | 'deleted', readonly string[]>>): Preview['changes'] {
  const words = { create: changes.created, update: changes.updated, delete: changes.deleted }
  return Object.entries(words).flatMap(([change, names]) => names.map((collection) => ({ collection, change })))
}

/**
 * Makes the change that was seen, and gives what the server warns of, a line each.
 *
 * @throws {Error} where it would do something else by now, because somebody has changed the collections
 */
export async function runChange(change: Change, seen: Preview): Promise<readonly string[]> {
  const now = await previewChange(change)
  if (actsOf(now) !== actsOf(seen)) throw new Error('Somebody has changed the collections meanwhile: look at it again')
  const done = await send<Warned>(change, change.mayAlter === true && seen.altered.length > 0 ? { alter: true } : {})
  // Rows that were read have other fields now; what the change would do is no question any more.
  await queryClient.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== dryRunKey })
  return warningsOf(done)
}

const actsOf = ({ sql, changes, dropped, altered }: Preview): string =>
  JSON.stringify([
    sql,
    changes,
    dropped.map(({ rows: _rows, values: _values, ...what }) => what),
    altered.map((what) => [what.collection, 'field' in what ? what.field : null]),
  ])

/** The change as the text of a migration. */
export async function migrationOf(change: Change, name: string): Promise<{ file: string; text: string }> {
  const query = { dryRun: true, migration: name }
  const { migration, script } = await send<{ migration: string; script: string }>(change, query)
  return { file: migration, text: script }
}

/** Lets the browser save a text. */
export function download(file: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = file
  link.click()
  URL.revokeObjectURL(url)
}

const many = (count: number, one: string): string => `${count.toLocaleString()} ${one}${count === 1 ? '' : 's'}`

function lossInWords({ collection, field, relation, index, constraint, rows, values }: Loss): string {
  if (field !== undefined) return `Field ${collection}.${field} with ${many(values ?? 0, 'value')}`
  if (relation !== undefined) return `Relation ${collection}.${relation}`
  if (index !== undefined) return `Index ${index} of ${collection}`
  if (constraint !== undefined) return `Constraint ${constraint} of ${collection}`
  return `Collection ${collection} with ${many(rows ?? 0, 'row')}`
}

/** The stored data that is lost, a line each. */
export const lossesOf = ({ dropped, altered }: Preview): readonly string[] => [
  ...dropped.map(lossInWords),
  ...altered.map(alterationInWords),
]

function alterationInWords(what: Alteration): string {
  if ('restored' in what)
    return `That ${many(what.restored, 'row')} of ${what.collection} ${what.restored === 1 ? 'is' : 'are'} deleted: without a trash they come back`
  const { collection, field, values } = what
  return `What ${many(values, 'value')} of ${collection}.${field} cannot keep: the new type rounds them, cuts them off or writes them in another way`
}

/** What the server warns of, a line each. */
export const warningsOf = ({ warnings = [] }: Warned): readonly string[] =>
  warnings.map(({ collection, field, message }) => `${collection}.${field} ${message}`)

export const holdsData = ({ dropped, altered }: Preview): boolean =>
  altered.length > 0 || dropped.some(({ rows = 0, values = 0 }) => rows > 0 || values > 0)

const pathOf = (...names: readonly string[]): string => `/schemas/${names.map(encodeURIComponent).join('/')}`

export const creation = (collectionName: string, schema: Schema): Change => ({
  title: `Create ${collectionName}`,
  action: 'Create the collection',
  done: `Created ${collectionName}`,
  method: 'POST',
  path: '/schemas',
  body: { collectionName, schema },
})

export const deletion = (collection: string): Change => ({
  title: `Delete ${collection}`,
  action: 'Delete the collection',
  done: `Deleted ${collection}`,
  method: 'DELETE',
  path: pathOf(collection),
})

/** A part of a definition; null takes away, and with `isWhole` so does leaving out. */
export const patch = (
  collection: string,
  schema: Readonly<Record<string, unknown>>,
  title = `Change ${collection}`,
  isWhole = false,
): Change => ({
  title,
  action: 'Make the change',
  done: `Changed ${collection}`,
  method: 'PATCH',
  path: pathOf(collection),
  body: { schema },
  ...(isWhole && { query: { drop: true } }),
  mayAlter: true,
})

export const fieldChange = (collection: string, name: string, entry: Entry, isNew: boolean): Change =>
  patch(collection, { fields: { [name]: entry } }, `${isNew ? 'Add' : 'Change'} ${collection}.${name}`)

export const fieldRemoval = (collection: string, name: string): Change => ({
  title: `Drop ${collection}.${name}`,
  action: 'Drop the field',
  done: `Dropped ${collection}.${name}`,
  method: 'DELETE',
  path: pathOf(collection, 'fields', name),
})

export const relationAddition = (collection: string, body: Entry): Change => ({
  title: `Add the relation ${collection}.${String(body.name)}`,
  action: 'Add the relation',
  done: `Added ${collection}.${String(body.name)}`,
  method: 'POST',
  path: pathOf(collection, 'relationships'),
  body,
})

export const relationChange = (collection: string, name: string, body: Entry): Change => ({
  ...relationAddition(collection, { ...body, name }),
  title: `Change the relation ${collection}.${name}`,
  action: 'Make the change',
  done: `Changed ${collection}.${name}`,
  method: 'PATCH',
  path: pathOf(collection, 'relationships', name),
  body,
})

export const relationRemoval = (collection: string, name: string): Change => ({
  title: `Remove the relation ${collection}.${name}`,
  action: 'Remove the relation',
  done: `Removed ${collection}.${name}`,
  method: 'DELETE',
  path: pathOf(collection, 'relationships', name),
})

export const indexAddition = (collection: string, index: Index): Change => ({
  title: `Add an index to ${collection}`,
  action: 'Add the index',
  done: `Added an index to ${collection}`,
  method: 'POST',
  path: pathOf(collection, 'indexes'),
  body: index,
})

export const indexRemoval = (collection: string, name: string): Change => ({
  title: `Remove the index ${name}`,
  action: 'Remove the index',
  done: `Removed ${name}`,
  method: 'DELETE',
  path: pathOf(collection, 'indexes', name),
})

export const constraintAddition = (collection: string, constraint: Constraint): Change =>
  patch(collection, { constraints: [constraint] }, `Add a constraint to ${collection}`)

export const constraintRemoval = (collection: string, name: string): Change =>
  patch(collection, { constraints: { [name]: null } }, `Remove the constraint ${name}`)

/** A file of definitions, as exports are. */
export type SchemaFile = { readonly schemas: readonly Definition[] }

export const importation = (file: SchemaFile, isWhole: boolean): Change => ({
  title: 'Import definitions',
  action: 'Import',
  done: 'Imported',
  method: 'POST',
  path: '/schemas/import',
  body: file,
  ...(isWhole && { query: { drop: true } }),
  mayAlter: true,
  canBeMigration: false,
})
