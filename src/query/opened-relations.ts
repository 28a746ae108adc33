/**
 * A relation that a read grant *names* is a grant to read just the named columns through it, also where the role has no
 * grant of its own for the related collection (ADR 0035):
 *
 * - `members.firstName` opens `members`, and shows that column and the primary key;
 * - `members.team.name` opens both relations on its way;
 * - `members.*` and `members` open a collection of the project with all its columns, never one of the system: there
 *   columns are named one by one;
 * - `*.*` opens nothing, and no spec ever opens an identity collection.
 */
import type { Catalog, Collection } from '../catalog/catalog.ts'
import { identityCollections } from '../catalog/identity-collections.ts'
import { oncePer } from '../once-per.ts'
import type { Grant } from './access.ts'
import { compileGrant, type FieldGrant, type Spec } from './grants.ts'

/** What a read grant shows of the rows of its collection and of those behind its relations. */
export type ReadGrant = {
  readonly fields: FieldGrant
  /** Dotted paths of the relations that it opens by naming them. */
  readonly opened: ReadonlySet<string>
}

/** The read grant of a collection, compiled once for as long as both are what they are. */
export const compileReadGrant = (catalog: Catalog, collection: Collection, grant: Grant): ReadGrant =>
  compiledIn(catalog)(collection)(grant)

/** Whether the grant names this column, so that it is shown whatever the related collection's own grant says. */
export function namesColumn(
  { granted }: FieldGrant,
  relations: readonly string[],
  column: string,
  target: Collection,
): boolean {
  if (identityCollections.has(target.name)) return false
  return granted.some((spec) => {
    const rest = restBehind(spec, relations)
    return rest !== undefined && ((rest.length === 1 && rest[0] === column) || (isWhole(rest) && !target.system))
  })
}

const compiledIn = oncePer((catalog: Catalog) =>
  oncePer((collection: Collection) =>
    oncePer((grant: Grant): ReadGrant => {
      const fields = compileGrant(grant.fields)
      return { fields, opened: new Set(fields.granted.flatMap((spec) => openedBy(spec, fields, collection, catalog))) }
    }),
  ),
)

/** The relations on the way of one spec; none where it does not lead to a column that it may show. */
function openedBy(spec: Spec, { excluded }: FieldGrant, collection: Collection, catalog: Catalog): string[] {
  const opened: string[] = []
  let current = collection
  for (const [i, segment] of spec.entries()) {
    const isLast = i === spec.length - 1
    const prefix = spec.slice(0, i + 1).join('.')
    if (excluded.includes(prefix)) return []
    const field = current.fields.get(segment)
    if (field !== undefined) return isLast && !field.hidden ? opened : []
    const relation = current.relations.get(segment)
    if (relation === undefined) return endsWhole(spec.slice(i), current, opened)
    const target = catalog.collections.get(relation.target)
    if (target === undefined || identityCollections.has(target.name)) return []
    opened.push(prefix)
    current = target
  }
  return endsWhole([], current, opened)
}

/** The rows of a junction are the relation itself: it is open wherever it is named, whatever is named behind it. */
function endsWhole(rest: Spec, target: Collection, opened: string[]): string[] {
  return (isWhole(rest) && !target.system) || (rest[0] === '*' && isLink(target)) ? opened : []
}

/** The rows of a junction are the relation itself: without a tenant of their own they have their parent's. */
export const isLink = (collection: Collection): boolean => collection.definition.schema.isJunction === true

/** What follows the relations in a spec that names each of them; undefined where it does not. */
const restBehind = (spec: Spec, relations: readonly string[]): Spec | undefined =>
  spec.length >= relations.length && relations.every((name, i) => spec[i] === name)
    ? spec.slice(relations.length)
    : undefined

/** `rel` and `rel.*`, which `rel.*.*` covers, too. */
const isWhole = (rest: Spec): boolean => rest.every((segment) => segment === '*')
