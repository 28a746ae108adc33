import type { Logger } from 'pino'
import type { Catalog, Collection, Field } from '../../catalog/catalog.ts'
import type { Database } from '../../db/pools.ts'
import { AppError } from '../../errors.ts'
import { type Access, systemAccess, type VariableName } from '../../query/access.ts'
import { compileOne } from '../../query/compile.ts'
import { isObject } from '../../query/guards.ts'
import { parseListQuery } from '../../query/parse.ts'
import { isToMany } from '../../query/plan.ts'
import { noSettings, resolveOne } from '../../query/resolve.ts'
import type { Statement } from '../../query/sql.ts'
import { rowsOf, substitute } from '../../query/variables.ts'

/**
 * Variables that lead through relations, such as `$CURRENT_USER.userRoles.tenant_Id`. Rules are resolved without
 * waiting, so what they ask for is known beforehand: the paths in a role's stored rules are collected when these are
 * compiled, and their values are read with the session, in one statement.
 */

/** `$name.path[0].path[1]…`; without a path the id of the row. */
export type Variable = { readonly name: VariableName; readonly path: readonly string[] }

/** Values by {@link variableKey}; none where there is no related row. */
export type Related = ReadonlyMap<string, unknown>

/** What a variable stands for: a field, reached over relations, perhaps of several rows. */
export type VariableTarget = {
  readonly field: Field
  /** Relation names from the caller's row to the field's. */
  readonly relations: readonly string[]
  readonly many: boolean
}

export const variableKey = ({ name, path }: Variable): string => [name, ...path].join('.')

/** Undefined for names that do not exist, and for hidden fields. A path that ends at a relation means its rows' ids. */
export function variableTarget(catalog: Catalog, { name, path }: Variable): VariableTarget | undefined {
  let collection: Collection = catalog.collections.get(rowsOf[name])!
  const relations: string[] = []
  let many = false
  for (const [i, segment] of path.entries()) {
    const field = collection.fields.get(segment)
    if (field !== undefined) return i === path.length - 1 && !field.hidden ? { field, relations, many } : undefined
    const relation = collection.relations.get(segment)
    const target = relation && catalog.collections.get(relation.target)
    if (relation === undefined || target === undefined) return undefined
    relations.push(segment)
    many ||= isToMany(relation)
    collection = target
  }
  return { field: collection.primaryKey, relations, many }
}

/** Every variable in a stored value. What follows a hidden field is not found: such a rule means nothing anyway. */
export function variablesIn(value: unknown, catalog: Catalog): readonly Variable[] {
  const found: Variable[] = []
  const access: Access = {
    ...systemAccess,
    variable: (name, path) => {
      found.push({ name, path })
      return undefined
    },
  }
  try {
    substitute(value, { catalog, access, now: new Date(0), ofRequest: false })
  } catch (error) {
    if (!(error instanceof AppError)) throw error
  }
  return found
}

/** Where the caller's rows are from the row of svc_UserRole that ties them together. Settings have one that is not tied. */
const fromUserRole: Readonly<Record<VariableName, readonly string[] | undefined>> = {
  CURRENT_USER: ['user'],
  CURRENT_ROLE: ['role'],
  CURRENT_TENANT: ['tenant'],
  CURRENT_USERROLE: [],
  CURRENT_SETTINGS: undefined,
}

/** A variable that needs more than the caller's own rows, as the path of a query of svc_UserRole. */
export type RelatedPath = { readonly key: string; readonly path: readonly string[]; readonly many: boolean }

/** Undefined where the caller's own rows have the answer, or nothing has. */
export function relatedPath(catalog: Catalog, variable: Variable): RelatedPath | undefined {
  const target = variableTarget(catalog, variable)
  const start = fromUserRole[variable.name]
  if (target === undefined || target.relations.length === 0 || start === undefined) return undefined
  const path = [...start, ...target.relations, target.field.name]
  return { key: variableKey(variable), path, many: target.many }
}

/**
 * The values of these paths for the user in a role that the row of svc_UserRole names, in wire form, whatever their
 * permissions say; hidden fields and soft-deleted rows are left out. To-many paths give an array of different values.
 */
export async function loadRelated(
  db: Database,
  catalog: Catalog,
  paths: readonly RelatedPath[],
  userRoleId: string,
  log: Logger,
): Promise<Related> {
  const statement = paths.length === 0 ? undefined : relatedSql(catalog, paths, userRoleId, log)
  if (statement === undefined) return new Map()
  const [row] = await db.run<{ data: string }>(statement.text, statement.values, 'prepared')
  const tree: unknown = row === undefined ? null : JSON.parse(row.data)
  return new Map(
    paths.flatMap(({ key, path, many }): [string, unknown][] => {
      const found = [...new Set(valuesAt(tree, path))]
      return found.length === 0 ? [] : [[key, many ? found : found[0]]]
    }),
  )
}

/** Undefined, so that the variables match nothing, where all rules together follow more relations than one query may. */
function relatedSql(
  catalog: Catalog,
  paths: readonly RelatedPath[],
  userRoleId: string,
  log: Logger,
): Statement | undefined {
  try {
    const query = parseListQuery({ fields: paths.map(({ path }) => path.join('.')) })
    return compileOne(resolveOne(catalog, systemAccess, 'svc_UserRole', userRoleId, query, noSettings))
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    log.error({ err: error }, 'the variables in stored permissions cannot be read')
    return undefined
  }
}

function valuesAt(node: unknown, [head, ...rest]: readonly string[]): unknown[] {
  if (node === null || node === undefined) return []
  if (head === undefined) return [node]
  if (Array.isArray(node)) return node.flatMap((one) => valuesAt(one, [head, ...rest]))
  return isObject(node) ? valuesAt(node[head], rest) : []
}
