import type { Catalog, Collection, Field } from '../../catalog/catalog.ts'
import { logTable } from '../../events/log.ts'
import type { Access } from '../../query/access.ts'
import { compileCondition } from '../../query/compile.ts'
import { projectionSql } from '../../query/projection.ts'
import { type ResolveEnv, resolveCondition } from '../../query/resolve.ts'
import { createParams, ident, literal } from '../../query/sql.ts'

/** One event as a caller may see it. */
export type ChangedRow = {
  readonly position: string
  readonly action: string
  /** JSON text of the asked fields after the change; before it for a delete. */
  readonly data: string
  /** Whether the row after the change, for a delete the row before it, is the caller's to see. */
  readonly visible: boolean
  /** The same for the row before the change; false for a create. */
  readonly was_visible: boolean
  /** JSON text of the primary key. */
  readonly key: string
}

export type Seen = {
  readonly catalog: Catalog
  readonly access: Access
  readonly collection: Collection
  readonly fields: readonly Field[]
  readonly env: ResolveEnv
  /** False: every row counts as visible. */
  readonly scoped: boolean
}

/**
 * The statement that shows events of a collection, by position, to a caller: their images become rows of today's table
 * and go through the projection and the condition of a read (design §4), so there is no second evaluator. Its first
 * parameter is a list of positions; equal text and values mean an equal view. Erased events are left out.
 */
export function changedRowsSql({ catalog, access, collection, fields, env, scoped }: Seen) {
  const params = createParams([null])
  const members = fields.flatMap((field) => [literal(field.name), projectionSql(field, 't')])
  const rule = scoped ? resolveCondition(catalog, access, collection.name, 'read', env) : undefined
  const condition = (alias: string) => (rule === undefined ? 'true' : compileCondition(rule, alias, params))
  const image = (value: string) => `lateral jsonb_populate_record(null::${ident(collection.name)}, ${value})`
  const text = `select e.position::text as position, e.action, (${jsonObject(members)})::text as data,
    coalesce(${condition('t')}, false) as visible, coalesce(${condition('old')}, false) and e.action <> 'create' as was_visible,
    to_json(${projectionSql(collection.primaryKey, 't')})::text as key
    from ${ident(logTable)} e,
      ${image(`coalesce(e.changes->'after', e.changes->'before')`)} t,
      ${image(`coalesce(e.changes->'after', '{}') || coalesce(e.changes->'before', '{}')`)} old
    where e.position = any($1::bigint[]) and not e.changes ? 'erased' order by e.position`
  return { text, values: params.values.slice(1) }
}

/** Within PostgreSQL's limit of 100 arguments to a function. */
function jsonObject(members: readonly string[]): string {
  const parts: string[] = []
  for (let i = 0; i < members.length; i += 80) parts.push(`jsonb_build_object(${members.slice(i, i + 80)})`)
  return parts.length === 0 ? `'{}'::jsonb` : parts.join(' || ')
}
