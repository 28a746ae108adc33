import type { Relation } from '../../../catalog/catalog.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { compileCondition } from '../../../query/compile.ts'
import { createParams, ident, literal, type Params } from '../../../query/sql.ts'
import { isJunction, type WriteAction, type WriteContext } from './context.ts'
import type { KeyContest, StoredKey, StoredKeys } from './foreign-keys.ts'
import { isShown, maySee, readRule } from './references.ts'
import { keyCondition, ruleSql } from './statements.ts'

type UpdateContext = WriteContext & { readonly action: WriteAction }

/**
 * The foreign keys of contests as the row to change has them. Those that the caller may not read are left out, so that it
 * cannot find out by contradictions what they are.
 */
export async function storedKeys(
  db: Reader,
  context: UpdateContext,
  id: string,
  contests: readonly KeyContest[],
): Promise<StoredKeys> {
  const { collection } = context
  const params = createParams()
  const shown = contests.filter(({ foreignKey }) => isJunction(collection) || isShown(context, foreignKey))
  const members = shown.map((contest) => `${literal(contest.foreignKey)}, ${storedSql(context, contest, params)}`)
  const where = `${keyCondition(collection, [id], params)} and ${ruleSql(context, 't', params)}`
  const text = `select jsonb_build_object(${members}) as keys from ${ident(collection.name)} t where ${where}`
  const row = await db.maybeOne<{ keys: Record<string, StoredKey> }>(rawQuery(text, params.values))
  return row === undefined ? 'missing' : new Map(Object.entries(row.keys))
}

function storedSql(
  context: UpdateContext,
  { foreignKey, discriminator, relations }: KeyContest,
  params: Params,
): string {
  const kind = discriminator === undefined ? 'null' : `t.${ident(discriminator)}::text`
  const rows = relations.map((relation) => `${literal(relation.name)}, ${shownSql(context, relation, params)}`)
  return `jsonb_build_object('key', t.${ident(foreignKey)}::text, 'kind', ${kind}, 'rows', jsonb_build_object(${rows}))`
}

function shownSql(context: UpdateContext, relation: Relation, params: Params): string {
  const { access, catalog } = context
  const { discriminator, foreignKey, target, targetKey } = relation
  const rule = maySee(access, relation) ? readRule(context, relation, false) : undefined
  const condition = rule === undefined ? 'true' : compileCondition(rule, 'ref', params)
  const sameKind =
    discriminator === undefined ? '' : ` and t.${ident(discriminator.column)} = ${literal(discriminator.value)}`
  const key = `ref.${ident(catalog.collections.get(target)!.primaryKey.name)}::text`
  const where = `ref.${ident(targetKey)} = t.${ident(foreignKey)}${sameKind}`
  const found = `select jsonb_build_object('row', ${key}, 'isShown', ${condition}) from ${ident(target)} ref where ${where}`
  return `coalesce((${found}), '{"row": null, "isShown": false}')`
}
