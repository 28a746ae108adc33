import { checkIdentifier } from '../../catalog/identifiers.ts'
import {
  type RelationshipChange,
  withChangedRelationship,
  withoutRelationship,
} from '../../catalog/relationship-edits.ts'
import {
  type Relationship,
  type RelationshipDetails,
  type RelationshipType,
  relationshipTypes,
  withRelationship,
} from '../../catalog/relationships.ts'
import { AppError } from '../../errors.ts'
import type { Actor } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { changeSchemas } from './change.ts'
import { objectOf } from './schemas.ts'

/** Creates a relationship with its column, index, junction and relation back (spec/schemas.md §3). */
export async function createRelationship(rt: Runtime, actor: Actor, source: string, body: unknown): Promise<void> {
  await changeSchemas(rt, actor, 'Error creating relationship', (catalog) =>
    withRelationship(catalog, source, readRelationship(body)),
  )
}

/** Changes what the ends of a relationship say: alias, description, showAs, onDelete, onUpdate. */
export async function updateRelationship(
  rt: Runtime,
  actor: Actor,
  { source, field, body }: { source: string; field: string; body: unknown },
): Promise<void> {
  await changeSchemas(rt, actor, 'Error updating relationship', (catalog) =>
    withChangedRelationship(catalog, source, field, readChange(body)),
  )
}

/** Removes a relationship with its column, relation back and junction. */
export async function deleteRelationship(rt: Runtime, actor: Actor, source: string, field: string): Promise<void> {
  await changeSchemas(rt, actor, 'Error deleting relationship', (catalog) =>
    withoutRelationship(catalog, source, field),
  )
}

type Body = Readonly<Record<string, unknown>>

function readRelationship(raw: unknown): Relationship {
  const body = objectOf(raw)
  const { type, name } = body
  if (!isType(type)) throw new AppError(400, 'Invalid relationship type. Must be M2O, O2M, O2O, M2M, or M2A')
  checkIdentifier('relationship name', name)
  return {
    type,
    name,
    target: text(body, 'target'),
    alias: text(body, 'alias'),
    foreignKey: text(body, 'foreignKey'),
    through: text(body, 'through'),
    tables: tablesOf(body),
    details: detailsOf(body),
  }
}

function readChange(raw: unknown): RelationshipChange {
  const body = objectOf(raw)
  const isRemoval = body.alias === null || body.alias === ''
  return { alias: isRemoval ? null : text(body, 'alias'), details: detailsOf(body) }
}

function isType(type: unknown): type is RelationshipType {
  return relationshipTypes.some((known) => known === type)
}

function detailsOf(body: Body): RelationshipDetails {
  const [description, onDelete, onUpdate] = ['description', 'onDelete', 'onUpdate'].map((key) => text(body, key))
  const { showAs } = body
  if (showAs !== undefined && showAs !== null && !Array.isArray(showAs))
    throw new AppError(400, 'showAs must be a list')
  return {
    ...(description !== undefined && { description }),
    ...(onDelete !== undefined && { onDelete }),
    ...(onUpdate !== undefined && { onUpdate }),
    ...(Array.isArray(showAs) && { showAs }),
  }
}

function tablesOf({ tables }: Body): readonly string[] | undefined {
  if (tables === undefined || tables === null) return undefined
  const isList = Array.isArray(tables) && tables.every((table) => typeof table === 'string')
  if (!isList) throw new AppError(400, 'tables must be a list of collections')
  return [...new Set(tables as string[])]
}

/** Absent, null and empty mean the same. */
function text(body: Body, key: string): string | undefined {
  const value = body[key] ?? undefined
  if (value !== undefined && typeof value !== 'string') throw new AppError(400, `${key} must be a string`)
  return value === '' ? undefined : value
}
