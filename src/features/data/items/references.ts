import type { Relation } from '../../../catalog/catalog.ts'
import { oncePer } from '../../../language/once.ts'
import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { envOf, type ResolvedFilter, readableFields, resolveCondition } from '../../../query/resolve.ts'
import { ident, literal, type Params } from '../../../query/sql.ts'
import { isJunction, type PayloadContext } from './context.ts'
import type { AnyKey } from './foreign-keys.ts'

/** The checks of the rows that a written row points at, as parts of its statement. */

/**
 * Rows that a written row points at: in every form (`author: id`, `author_Id: id`) only such as the caller may read.
 * Otherwise the database's constraint would tell a row that the caller may not see from one that is not there.
 */
export type Reference = {
  readonly relation: Relation
  /** The rows that the caller may point at; undefined where every existing row will do, `none` where none will. */
  readonly rule: ResolvedFilter | 'none' | undefined
  /** Named by the relation, not by its column. With what the caller may, this decides the rule. */
  readonly isStrict: boolean
  /** A row may go on pointing where it points: clients send back whole rows, and who sees the value learns nothing by it. */
  readonly mayStay: boolean
  /** Of a many-to-any key of which the change writes one column only: the row that is changed has the other. */
  readonly half?: HalfReference
}

type HalfReference = Pick<AnyKey, 'foreignKey' | 'discriminator'> & {
  /** The column that is written is the key, not its kind. */
  readonly isKey: boolean
  readonly choices: readonly Pick<Reference, 'relation' | 'rule'>[]
}

/** How a payload names the row that is pointed at. */
export type RowReference = {
  /** By the relation; otherwise by the column. */
  readonly byRelation: boolean
  readonly value?: unknown
}

/**
 * The check of a foreign key that the payload sets; undefined where the database's constraint is enough. 403 when the
 * relation is named and the caller may read nothing of its target. By its column a foreign key may always name the
 * caller's own user, role and tenant (they are known to exist), and deleted rows, which can be read too. In an undo links name
 * deleted rows as well: they come back as they were.
 */
export function referenceOf(
  context: PayloadContext,
  relation: Relation,
  { byRelation, value }: RowReference,
): Reference | undefined {
  const isStrict = byRelation || isJunction(context.collection)
  if (!isStrict && relation.constraint && isOwn(context, relation, value)) return undefined
  const known = referencesOf(context)[isStrict ? 'strict' : 'loose']
  if (!known.has(relation)) known.set(relation, makeReference(context, relation, isStrict))
  return known.get(relation)
}

/** References do not depend on the value: they are the same for all rows of a request. */
const referencesOf = oncePer((_: PayloadContext) => ({
  strict: new Map<Relation, Reference | undefined>(),
  loose: new Map<Relation, Reference | undefined>(),
  halves: new Map<string, Reference>(),
}))

/** Links of an undo come back to rows that were deleted since. */
const includesDeleted = ({ isUndo }: PayloadContext, isStrict: boolean): boolean => !isStrict || isUndo === true

function makeReference(context: PayloadContext, relation: Relation, isStrict: boolean): Reference | undefined {
  const includeDeleted = includesDeleted(context, isStrict)
  const rule = isStrict || maySee(context.access, relation) ? readRule(context, relation, includeDeleted) : 'none'
  if (rule === undefined && relation.constraint) return undefined
  return { relation, rule, isStrict, mayStay: !isStrict && isShown(context, relation.foreignKey) }
}

/** The check of a many-to-any key of an existing row of which only the key (`isKey`) or only the kind is written. */
export function halfReferenceOf(context: PayloadContext, any: AnyKey, isKey: boolean): Reference {
  const { halves } = referencesOf(context)
  const column = isKey ? any.foreignKey : any.discriminator
  const known = halves.get(column)
  if (known !== undefined) return known
  const made = makeHalfReference(context, any, isKey)
  halves.set(column, made)
  return made
}

function makeHalfReference(context: PayloadContext, any: AnyKey, isKey: boolean): Reference {
  const { foreignKey, discriminator, relations } = any
  const isStrict = isJunction(context.collection)
  const choices = [...relations.values()].map((relation) => {
    const rule = maySee(context.access, relation)
      ? readRule(context, relation, includesDeleted(context, isStrict))
      : 'none'
    return { relation, rule } as const
  })
  const mayStay = isStrict || (isShown(context, foreignKey) && isShown(context, discriminator))
  const half = { foreignKey, discriminator, isKey, choices }
  return { relation: choices[0]!.relation, rule: 'none', isStrict, mayStay, half }
}

/**
 * A condition that is true, or ends the statement with 400 (`svc_refer`). `value` is the key as SQL; `stays` a condition that
 * the row points there already.
 */
export function referenceSql(
  { relation, rule, mayStay, half }: Reference,
  value: string,
  params: Params,
  stays?: () => string,
): string {
  const same = mayStay && stays !== undefined ? [stays()] : []
  if (half !== undefined) return halfSql(half, value, params, same)
  const found = rule === 'none' ? [] : [foundSql(relation, rule, value, params)]
  const refused = `${literal(`${relation.name} `)} || (${value})::text`
  return `svc_refer(${[`${value} is null`, ...same, ...found].join(' or ')}, ${refused})`
}

/**
 * The statement reads the other column from the row that it changes, called `t`: another writer may change that at the same
 * moment, and then the condition is looked at again.
 */
function halfSql(
  { foreignKey, discriminator, isKey, choices }: HalfReference,
  value: string,
  params: Params,
  same: readonly string[],
): string {
  const key = isKey ? value : `t.${ident(foreignKey)}`
  const kind = isKey ? `t.${ident(discriminator)}` : value
  const found = choices.flatMap(({ relation, rule }) =>
    rule === 'none'
      ? []
      : [`${kind} = ${literal(relation.discriminator!.value)} and ${foundSql(relation, rule, key, params)}`],
  )
  const refused = `${literal(`${isKey ? foreignKey : discriminator} `)} || (${key})::text`
  return `svc_refer(${[`${key} is null`, `${kind} is null`, ...same, ...found].join(' or ')}, ${refused})`
}

function foundSql(relation: Relation, rule: ResolvedFilter | undefined, value: string, params: Params): string {
  const key = `ref.${ident(relation.targetKey)} = ${value}`
  const allowed = rule === undefined ? key : `${key} and ${compileCondition(rule, 'ref', params)}`
  return `exists(select 1 from ${ident(relation.target)} ref where ${allowed})`
}

export function readRule(
  { catalog, access, config, now }: PayloadContext,
  { target }: Relation,
  includeDeleted: boolean,
): ResolvedFilter | undefined {
  return resolveCondition(catalog, access, target, 'read', envOf(config, now), { includeDeleted })
}

export function maySee(access: Access, { target }: Relation): boolean {
  return access.admin || access.grant(target, 'read') !== undefined
}

function isOwn({ access, rules }: PayloadContext, { target, targetKey }: Relation, value: unknown): boolean {
  const own = rules.get(target)?.ownKey?.(access)
  return targetKey === 'id' && own !== undefined && typeof value === 'string' && value.toLowerCase() === own
}

/** Whether the caller may read the column of rows that it may read. */
export function isShown({ catalog, access, collection }: PayloadContext, column: string): boolean {
  const mayRead = access.admin || access.grant(collection.name, 'read') !== undefined
  return mayRead && readableFields(catalog, access, collection.name).some(({ name }) => name === column)
}
