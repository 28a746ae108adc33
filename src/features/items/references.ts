import type { Collection, Relation } from '../../catalog/catalog.ts'
import { oncePer } from '../../once-per.ts'
import type { Access } from '../../query/access.ts'
import { compileCondition } from '../../query/compile.ts'
import { type ResolvedFilter, readableFields, resolveCondition } from '../../query/resolve.ts'
import { ident, literal, type Params } from '../../query/sql.ts'
import { isJunction } from './context.ts'
import type { PayloadContext } from './payload.ts'
import { envOf } from './reads.ts'

/**
 * Rows that a written row points at: in every form (`author: id`, `author_Id: id`) only such as the caller may read.
 * Otherwise the database's constraint would tell a row that the caller may not see from one that is not there.
 */
export type Reference = {
  readonly relation: Relation
  /** What the caller may point at; undefined where every existing row will do, `none` where none will. */
  readonly rule: ResolvedFilter | 'none' | undefined
  /** Named by the relation, not by its column. With what the caller may, this decides the rule. */
  readonly isStrict: boolean
  /** A row may go on pointing where it points: clients send back whole rows, and who sees the value learns nothing by it. */
  readonly mayStay: boolean
}

/** How a payload names the row that is pointed at. */
export type Naming = {
  /** By the relation; otherwise by the column. */
  readonly byRelation: boolean
  readonly value?: unknown
}

/**
 * What must be checked of a foreign key that the payload sets; undefined where the database's constraint is enough. 403
 * when the relation is named and the caller may read nothing of its target. By the column the caller's own user, role and tenant may always be
 * pointed at (they are known to be there), and deleted rows, which can be read too.
 */
export function referenceOf(
  context: PayloadContext,
  relation: Relation,
  { byRelation, value }: Naming,
): Reference | undefined {
  const isStrict = byRelation || isJunction(context.collection)
  if (!isStrict && relation.constraint && isOwn(context.access, relation, value)) return undefined
  const rule = isStrict || maySee(context.access, relation) ? readRule(context, relation, !isStrict) : 'none'
  if (rule === undefined && relation.constraint) return undefined
  return { relation, rule, isStrict, mayStay: !isStrict && isShown(context, relation.foreignKey) }
}

/**
 * A condition that is true, or ends the statement with 400 (`svc_refer`). `value` is the key as SQL; `stays` a condition that
 * the row points there already.
 */
export function referenceSql(
  { relation, rule, mayStay }: Reference,
  value: string,
  params: Params,
  stays?: () => string,
): string {
  const same = mayStay && stays !== undefined ? [stays()] : []
  const found = rule === 'none' ? [] : [foundSql(relation, rule, value, params)]
  return `svc_refer(${[`${value} is null`, ...same, ...found].join(' or ')}, ${literal(relation.name)})`
}

function foundSql(relation: Relation, rule: ResolvedFilter | undefined, value: string, params: Params): string {
  const key = `ref.${ident(relation.targetKey)} = ${value}`
  const allowed = rule === undefined ? key : `${key} and ${compileCondition(rule, 'ref', params)}`
  return `exists(select 1 from ${ident(relation.target)} ref where ${allowed})`
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

function readRule(
  { catalog, access, config, now }: PayloadContext,
  { target }: Relation,
  includeDeleted: boolean,
): ResolvedFilter | undefined {
  return resolveCondition(catalog, access, target, 'read', envOf(config, now), { includeDeleted })
}

function maySee(access: Access, { target }: Relation): boolean {
  return access.admin || access.grant(target, 'read') !== undefined
}

function isOwn({ userId, roleId, tenantId }: Access, { target, targetKey }: Relation, value: unknown): boolean {
  const own = { svc_User: userId, svc_Role: roleId, svc_Tenant: tenantId }[target]
  return targetKey === 'id' && own !== undefined && typeof value === 'string' && value.toLowerCase() === own
}

/** Whether the caller may read the column of rows that it may read. */
function isShown({ catalog, access, collection }: PayloadContext, column: string): boolean {
  const mayRead = access.admin || access.grant(collection.name, 'read') !== undefined
  return mayRead && readableFields(catalog, access, collection.name).some(({ name }) => name === column)
}
