import type { Collection, Relation } from '../../catalog/catalog.ts'
import { oncePer } from '../../once-per.ts'
import { type Access, type Grant, withGrants } from '../../query/access.ts'
import { compileCondition } from '../../query/compile.ts'
import { type ResolvedFilter, resolveCondition } from '../../query/resolve.ts'
import { ident, literal, type Params } from '../../query/sql.ts'
import { isJunction } from './context.ts'
import type { PayloadContext } from './payload.ts'
import { envOf } from './reads.ts'
import { isScoped } from './tenant.ts'

/**
 * Rows that a written row points at. Three ways to say so, by what they promise:
 *
 * - the relation (`author: id`) and every foreign key of a junction: the caller may read the item;
 * - the column (`author_Id: id`) is a column like any other: the item exists, in a tenant that the caller may read;
 * - relations without a database constraint: checked here, as nothing else would.
 */
export type Reference = {
  readonly relation: Relation
  /** What the caller may point at; undefined where every existing row will do. */
  readonly rule: ResolvedFilter | undefined
}

/**
 * What must be checked of a foreign key that the payload sets; undefined where the database's constraint is enough.
 * 403 when the relation is named and the caller may read nothing of its target.
 */
export function referenceOf(context: PayloadContext, relation: Relation, byName: boolean): Reference | undefined {
  const strict = byName || isJunction(context.collection)
  const rule = strict ? readRule(context, context.access, relation) : tenantRule(context, relation)
  return rule === undefined && relation.constraint ? undefined : { relation, rule }
}

/** A condition that is true, or ends the statement with 400 (`svc_refer`). `value` is the key as SQL. */
export function referenceSql({ relation, rule }: Reference, value: string, params: Params): string {
  const key = `ref.${ident(relation.targetKey)} = ${value}`
  const allowed = rule === undefined ? key : `${key} and ${compileCondition(rule, 'ref', params)}`
  const found = `exists(select 1 from ${ident(relation.target)} ref where ${allowed})`
  return `svc_refer(${value} is null or ${found}, ${literal(relation.name)})`
}

/** The relation that a column is the foreign key of; of a many-to-any junction, the one its row's discriminator names. */
export function relationBehind(
  collection: Collection,
  column: string,
  payload: Readonly<Record<string, unknown>>,
): Relation | undefined {
  const behind = relationsByKey(collection).get(column)
  return behind?.find(({ discriminator }) =>
    discriminator === undefined
      ? true
      : Object.hasOwn(payload, discriminator.column) && payload[discriminator.column] === discriminator.value,
  )
}

const relationsByKey = oncePer((collection: Collection): ReadonlyMap<string, readonly Relation[]> => {
  const own = [...collection.relations.values()].filter(({ kind }) => kind === 'belongsTo')
  return Map.groupBy(own, ({ foreignKey }) => foreignKey)
})

function readRule(context: PayloadContext, access: Access, relation: Relation): ResolvedFilter | undefined {
  return resolveCondition(context.catalog, access, relation.target, 'read', envOf(context.config, context.now))
}

function tenantRule(context: PayloadContext, relation: Relation): ResolvedFilter | undefined {
  if (!isScoped(context.access, context.config)) return undefined
  const access = withGrants(context.access, () => everything)
  return resolveCondition(context.catalog, access, relation.target, 'read', envOf(context.config, context.now), {
    includeDeleted: true,
  })
}

const everything: Grant = { fields: ['*'], conditions: null, relConditions: null, defaultValues: null }
