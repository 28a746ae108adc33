import type { Catalog, Collection } from '../../catalog/catalog.ts'
import type { Grant } from '../../query/access.ts'
import { isObject } from '../../query/guards.ts'
import { rowPart } from '../../query/resolve-view.ts'
import type { AccessRules, AclRow, PermissionRow, StoredRule } from './store.ts'

/**
 * The grant of a permission row: its own fields and conditions, or the combination of the named rules it refers to
 * (spec/permissions.md §2, §4). Undefined, which means refused, where what is stored has no meaning: nothing that
 * somebody wrote past the checks may come out as "no restriction".
 */
export function grantOf(row: PermissionRow, rules: Pick<AccessRules, 'acls' | 'catalog'>): Grant | undefined {
  const collection = rules.catalog.collections.get(row.collection)
  const makesSense = (rule: StoredRule) => isWellFormed(rule) && (row.action !== 'read' || limitsFit(rule, collection))
  if (isNone(row.acl_Ids)) return makesSense(row) ? inlineGrant(row) : undefined
  if (hasInlineRule(row)) return undefined
  const named = namedRules(row.acl_Ids, rules.acls).filter(makesSense)
  return named.length === 0 ? undefined : combined(named, row, rules.catalog)
}

/** The rules with these ids, in their order; ids of rules that are gone grant nothing. */
export function namedRules(ids: unknown, acls: ReadonlyMap<string, AclRow>): readonly AclRow[] {
  return Array.isArray(ids) ? ids.flatMap((id) => acls.get(String(id)) ?? []) : []
}

/** `*`, `a, b.*` and `["a", "b.*"]` are all accepted; null and an empty list mean "none given". */
export function fieldSpecs(stored: unknown): readonly string[] | null {
  const list: readonly unknown[] = Array.isArray(stored) ? stored : [stored ?? '']
  const specs = list.flatMap((spec) => String(spec).split(',')).map((spec) => spec.trim())
  const given = specs.filter((spec) => spec !== '')
  return given.length === 0 ? null : given
}

/** Text or a list of texts, or nothing. */
export function isFieldList(value: unknown): boolean {
  if (value === undefined || value === null || typeof value === 'string') return true
  return Array.isArray(value) && value.every((spec) => typeof spec === 'string')
}

/** Null, an empty list or an empty object: nothing given. */
export function isNone(value: unknown): boolean {
  if (value === undefined || value === null) return true
  return Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0
}

/** Whether a permission says anything itself, beside naming rules. */
export function hasInlineRule({ fields, conditions, relConditions, defaultValues }: StoredRule): boolean {
  return fieldSpecs(fields) !== null || ![conditions, relConditions, defaultValues].every(isNone)
}

function isWellFormed({ fields, relConditions, defaultValues }: StoredRule): boolean {
  // Conditions need no look here: what does not resolve lets nothing through.
  const isNoneOrObject = (value: unknown) => isNone(value) || isObject(value)
  return isFieldList(fields) && isNoneOrObject(relConditions) && isNoneOrObject(defaultValues)
}

/** A limit on the rows of what is no relation limits nothing, which nobody can have meant. */
function limitsFit({ relConditions }: StoredRule, collection: Collection | undefined): boolean {
  if (collection === undefined || !isObject(relConditions)) return true
  return Object.keys(relConditions).every((name) => collection.relations.has(name))
}

function inlineGrant({ fields, conditions, relConditions, defaultValues }: StoredRule): Grant {
  return {
    fields: fieldSpecs(fields),
    conditions: conditions ?? null,
    relConditions: relConditions ?? null,
    defaultValues: isObject(defaultValues) ? defaultValues : null,
  }
}

function combined(named: readonly StoredRule[], { action, collection }: PermissionRow, catalog: Catalog): Grant {
  const conditions = named.map((rule) => rule.conditions)
  return {
    fields: unionOfFields(named, action),
    conditions: conditions.some(isNone) ? null : conditions.length === 1 ? conditions[0] : { OR: conditions },
    relConditions: eitherOf(
      named.map((rule) => rule.relConditions),
      catalog.collections.get(collection),
      catalog,
    ),
    defaultValues: Object.assign({}, ...named.map((rule) => rule.defaultValues)),
  }
}

/** An exclusion in one of the rules holds for all of them: a union of what is left would need another language. */
function unionOfFields(named: readonly StoredRule[], action: string): readonly string[] | null {
  const union = new Set(named.flatMap((rule) => specsFor(action, fieldSpecs(rule.fields))))
  return union.size === 0 ? null : [...union]
}

/** No fields given: on read every own column, on write none. */
function specsFor(action: string, specs: readonly string[] | null): readonly string[] {
  if (action !== 'read') return specs ?? []
  return specs?.some((spec) => !spec.startsWith('-')) ? specs : ['*', ...(specs ?? [])]
}

type RelConditions = Readonly<Record<string, unknown>>

/** Limits on related rows that hold in every rule, each lifted to "one of them lets the row through". */
function eitherOf(all: readonly unknown[], collection: Collection | undefined, catalog: Catalog): RelConditions | null {
  const [first, ...rest] = all
  if (!all.every(isObject) || !isObject(first)) return null
  const common = Object.keys(first).filter((name) => rest.every((one) => Object.hasOwn(one as object, name)))
  const entries = common.flatMap((name) => {
    const relation = collection?.relations.get(name)
    const target = relation && catalog.collections.get(relation.target)
    if (target === undefined) return []
    const behind = all.map((one) => (one as RelConditions)[name])
    return [[name, rest.length === 0 ? behind[0] : eitherBehind(behind, target, catalog)]]
  })
  return Object.fromEntries(entries)
}

function eitherBehind(behind: readonly unknown[], target: Collection, catalog: Catalog): RelConditions {
  const rows = behind.map((conditions) => rowPart(conditions, target))
  const nested = behind.map((conditions) => relatedPart(conditions, target))
  return { ...(!rows.some(isNone) && { OR: rows }), ...eitherOf(nested, target, catalog) }
}

/** What {@link rowPart} leaves out. */
export function relatedPart(conditions: unknown, collection: Collection): RelConditions {
  const entries = isObject(conditions) ? Object.entries(conditions) : []
  return Object.fromEntries(entries.filter(([name, value]) => collection.relations.has(name) && isObject(value)))
}
