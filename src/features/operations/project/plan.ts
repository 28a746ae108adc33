import { isDeepStrictEqual } from 'node:util'
import type { Catalog, CollectionDefinition } from '../../../catalog/catalog.ts'
import { isOwn, previewImport } from '../../data/schemas/schemas.ts'
import { type FilePart, type Kind, nameOf, type Part, type ProjectFiles } from './files.ts'

/** The decision what an apply does: files and an installation in, steps out. Pure. */

/** A part as it is installed. */
export type StoredPart = Part & {
  readonly id: string
  /** Every installation has it: it is not exported as it is, never dropped, and not listed. */
  readonly isBuiltIn?: boolean
  /** It is exported, and never dropped. */
  readonly stays?: boolean
  /** It is in the trash; a file brings it back. */
  readonly isDeleted?: boolean
}

export type Installation = { readonly catalog: Catalog; readonly parts: readonly StoredPart[] }

export type Step =
  | { readonly do: 'create'; readonly part: FilePart; readonly stored?: StoredPart }
  | {
      readonly do: 'change'
      readonly part: FilePart
      readonly stored: StoredPart
      readonly members: readonly string[]
    }
  | { readonly do: 'drop'; readonly stored: StoredPart }

export type SchemaStep = {
  readonly do: 'create' | 'change' | 'drop'
  readonly collection: string
  readonly file?: string | undefined
  /** In words: `field price added`. */
  readonly differences: readonly string[]
}

export type ProjectPlan = {
  readonly schemaSteps: readonly SchemaStep[]
  /** The definitions to bring in; none where they are as they shall be. */
  readonly schemas: readonly CollectionDefinition[]
  /** Collections to drop. */
  readonly removed: readonly string[]
  readonly steps: readonly Step[]
  /** What the files do not name and the installation keeps, in words. */
  readonly left: readonly string[]
  /** Definitions that do not fit, before anything is tried. */
  readonly errors: readonly { readonly collectionName: string | null; readonly error: string }[]
}

/** What brings the installation to the files. Without `drop` nothing goes: what goes with it is listed as left. */
export function plan(
  files: ProjectFiles,
  installation: Installation,
  { drop }: { readonly drop: boolean },
): ProjectPlan {
  const schemas = planSchemas(files, installation.catalog, drop)
  const wanted = new Map(files.parts.map((part) => [nameOf(part) + part.key, part]))
  const stored = new Map(installation.parts.map((part) => [nameOf(part) + part.key, part]))
  const steps = files.parts.flatMap((part) => stepOf(part, stored.get(nameOf(part) + part.key)))
  const isHeld = ({ kind }: Part) => files.holds.has(kind === 'permissions' ? 'roles' : (kind as Kind))
  const unnamed = installation.parts.filter(
    (part) =>
      isHeld(part) &&
      part.kind !== 'settings' &&
      !(part.isBuiltIn || part.stays || part.isDeleted) &&
      !wanted.has(nameOf(part) + part.key),
  )
  const drops = drop ? unnamed.map((part): Step => ({ do: 'drop', stored: part })) : []
  return {
    ...schemas,
    steps: [...steps, ...drops],
    left: drop ? [] : [...schemas.left, ...unnamed.map(nameOf)],
  }
}

function stepOf(part: FilePart, stored: StoredPart | undefined): readonly Step[] {
  if (stored === undefined) return [{ do: 'create', part }]
  if (stored.isDeleted) return [{ do: 'create', part, stored }]
  const members = Object.keys(part.value).filter(
    (name) => !isDeepStrictEqual(part.value[name] ?? null, stored.value[name] ?? null),
  )
  return members.length === 0 ? [] : [{ do: 'change', part, stored, members }]
}

function planSchemas(files: ProjectFiles, catalog: Catalog, drop: boolean): Omit<ProjectPlan, 'steps'> {
  if (!files.holds.has('collections')) return { schemaSteps: [], schemas: [], removed: [], left: [], errors: [] }
  const named = new Set(files.schemas.map(({ collectionName }) => collectionName))
  const unnamed = [...catalog.collections.values()].filter(({ name }) => !named.has(name))
  // Without a file a system collection keeps nothing that the installation has added to it.
  const bare = unnamed
    .filter(({ system, definition }) => system && hasAdditions(definition))
    .map(({ name }) => ({ collectionName: name, schema: { fields: {} } }))
  const all = [...files.schemas, ...bare]
  const removed = unnamed.filter(({ system }) => !system).map(({ name }) => name)
  const merged = previewImport(catalog, { schemas: all }, { drop }).changes
  const whole = drop ? merged : previewImport(catalog, { schemas: all }, { drop: true }).changes
  const fileOf = (collection: string) => files.places.get(collection)
  const created = merged.new.map(({ collectionName, details: { fields, relations } }): SchemaStep => {
    const differences = [...fields, ...relations].map((name) => `field ${name} added`)
    return { do: 'create', collection: collectionName, file: fileOf(collectionName), differences }
  })
  const modified = merged.modified.map(
    ({ collectionName, differences }): SchemaStep => ({
      do: 'change',
      collection: collectionName,
      file: fileOf(collectionName),
      differences,
    }),
  )
  const steps = [...created, ...modified]
  const drops = drop ? removed.map((collection): SchemaStep => ({ do: 'drop', collection, differences: [] })) : []
  const lost = whole.modified.flatMap(({ collectionName, differences }) =>
    differences.filter((word) => word.endsWith(' removed')).map((word) => `${collectionName}: ${word.slice(0, -8)}`),
  )
  return {
    schemaSteps: [...steps, ...drops],
    schemas: steps.length + drops.length === 0 ? [] : all,
    removed: drop ? removed : [],
    left: drop ? [] : [...removed.map((name) => `collection ${name}`), ...lost],
    errors: merged.errors ?? [],
  }
}

/** Whether an installation has added fields to a system collection. */
export const hasAdditions = ({ schema }: CollectionDefinition): boolean =>
  Object.values(schema.fields).some((field) => !isOwn(field))
