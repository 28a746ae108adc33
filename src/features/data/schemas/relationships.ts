import type { Catalog, Relation } from '../../../catalog/catalog.ts'
import { checkIdentifier } from '../../../catalog/identifiers.ts'
import {
  type Relationship,
  type RelationshipChange,
  type RelationshipDetails,
  withChangedRelationship,
  withoutRelationship,
  withRelationship,
} from '../../../catalog/relationships.ts'
import {
  type DefinitionProblem,
  memberProblems,
  type RelationshipType,
  relationshipTypeOf,
} from '../../../catalog/shape.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import type { ChangeOptions } from './change.ts'
import { changeSchemas, type SchemaChanged } from './change.ts'

/** Creates a relationship with its column, index, junction and relation back. */
export function createRelationship(
  deps: Reads & Writes,
  actor: Actor,
  { source, body }: { source: string; body: Body },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => withRelationship(catalog, source, readRelationship(source, body))
  return changeSchemas(deps, actor, { message: 'Error creating relationship', edit }, options)
}

/** Changes what the ends of a relationship say: alias, description, showAs, onDelete, onUpdate. */
export function updateRelationship(
  deps: Reads & Writes,
  actor: Actor,
  { source, field, body }: { source: string; field: string; body: Body },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const relation = catalog.collections.get(source)?.relations.get(field)
    return withChangedRelationship(catalog, source, field, readChange(relation, body))
  }
  return changeSchemas(deps, actor, { message: 'Error updating relationship', edit }, options)
}

/** Removes a relationship with its column, relation back and junction. */
export function deleteRelationship(
  deps: Reads & Writes,
  actor: Actor,
  { source, field }: { source: string; field: string },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => withoutRelationship(catalog, source, field)
  return changeSchemas(deps, actor, { message: 'Error deleting relationship', edit }, options)
}

type Body = Readonly<Record<string, unknown>>

function readRelationship(source: string, body: Body): Relationship {
  const [name, as] = [body.name ?? body.as, text(body, 'as')]
  const type = typeOf(body)
  checkMembers(body, [])
  checkIdentifier('relationship name', name)
  if (as !== undefined) checkIdentifier(`relation of ${source}`, as)
  return {
    type,
    name: as ?? name,
    entry: name,
    isOnTarget: body.type === 'HasOne' || body.relType === 'HasOne',
    target: text(body, 'target'),
    alias: text(body, 'alias'),
    foreignKey: text(body, 'foreignKey'),
    through: text(body, 'through'),
    tables: tablesOf(body),
    details: detailsOf(body),
  }
}

/** The kind, in either vocabulary, under either name. */
function typeOf({ type, relType }: Body): RelationshipType {
  const [one, other] = [relationshipTypeOf(type ?? relType), relationshipTypeOf(relType ?? type)]
  if (one === undefined || one !== other)
    throw new AppError(400, 'Invalid relationship type. Must be M2O, O2M, O2O, M2M, or M2A')
  return one
}

function readChange(relation: Relation | undefined, body: Body): RelationshipChange {
  checkMembers(body, relation === undefined ? [] : fixedProblems(relation, body))
  const isRemoval = body.alias === null || body.alias === ''
  return { alias: isRemoval ? null : text(body, 'alias'), details: detailsOf(body) }
}

/** Clients may send a relationship back as they know it, but not as another one. */
function fixedProblems(relation: Relation, body: Body): DefinitionProblem[] {
  const { name, target, foreignKey, through, tables } = relation
  const present: Body = { name, as: name, target, foreignKey, through: through ?? body.through }
  const isOther = (word: string) => body[word] !== undefined && body[word] !== null && body[word] !== present[word]
  const isOtherType = (word: unknown) =>
    word !== undefined && word !== null && !typesOf[relation.kind].includes(relationshipTypeOf(word)!)
  const hasOtherTables = Array.isArray(body.tables) && [...body.tables].sort().join() !== [...tables].sort().join()
  const words = [
    ...Object.keys(present).filter(isOther),
    ...['type', 'relType'].filter((word) => isOtherType(body[word])),
    ...(hasOtherTables ? ['tables'] : []),
  ]
  return words.map((path) => ({ path, message: 'cannot be changed: delete the relationship and create another' }))
}

const typesOf: Readonly<Record<Relation['kind'], readonly RelationshipType[]>> = {
  belongsTo: ['M2O', 'O2O'],
  hasOne: ['O2O'],
  hasMany: ['O2M', 'M2M', 'M2A'],
  belongsToMany: ['M2M'],
  polymorphic: ['M2A'],
}

function checkMembers(body: Body, more: readonly DefinitionProblem[]): void {
  const shape = memberProblems(['relationship'], body, '').filter(({ message }) => !message.startsWith('must be'))
  const problems = [...shape, ...more]
  if (problems.length === 0) return
  const words = problems.map(({ path, message }) => `${path}: ${message}`).join('; ')
  throw new AppError(400, words, { code: 'INVALID_SCHEMA', details: { errors: problems } })
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
