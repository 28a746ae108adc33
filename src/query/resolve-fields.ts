/** `fields` resolved to a selection (`spec/items.md` §4). Wildcards narrow to what is granted; names must be granted. */
import type { Field, Relation } from '../catalog/catalog.ts'
import { errors } from '../errors.ts'
import { isObject, MAX_NESTED, MAX_RELATION_DEPTH, member, quoted } from './guards.ts'
import { parseFilter } from './parse.ts'
import { ALWAYS, allOf, type NestedSelection, type Predicate, type Selection } from './plan.ts'
import { resolveFilter } from './resolve-filter.ts'
import { enter, unknownName } from './resolve-path.ts'
import { relConditionsAt, rowPart } from './resolve-view.ts'
import { type Entered, readableColumns, type View } from './view.ts'

export type FieldsRequest = {
  readonly fields: readonly string[]
  /** The request's relConditions. */
  readonly relConditions: Readonly<Record<string, unknown>> | undefined
  /** Names that may stand among the fields without being one, such as aggregate aliases. */
  readonly ignored: ReadonlySet<string>
}

/** Throws 400 for unknown names and excessive expansion, 403 for named fields and relations that are not granted. */
export function resolveFields(request: FieldsRequest, view: View): Selection {
  const root: Node = emptyNode(view)
  const budget = { nested: 0 }
  const entries = request.fields.filter((entry) => !request.ignored.has(entry) && !entry.startsWith('date:'))
  const included = entries.filter((entry) => !entry.startsWith('-'))
  for (const entry of included.length > 0 ? included : ['*']) include(root, entry, budget)
  for (const entry of entries.filter((entry) => entry.startsWith('-'))) exclude(root, entry.slice(1))
  requireKnownRelations(request.relConditions, view)
  return toSelection(root, request.relConditions ?? null)
}

/** The selection under construction. */
type Node = {
  readonly view: View
  readonly columns: Map<string, Field>
  readonly nested: Map<string, { readonly relation: Relation; readonly entered: Entered; readonly node: Node }>
  /** Relations of a many-to-any junction that were asked for by name. */
  readonly named: Set<string>
}

type Budget = { nested: number }

const emptyNode = (view: View): Node => ({ view, columns: new Map(), nested: new Map(), named: new Set() })

function include(root: Node, entry: string, budget: Budget): void {
  const segments = entry.split('.')
  if (segments.length > MAX_RELATION_DEPTH + 1) throw errors.badQuery('fields: too many relations in a path')
  add(root, segments, entry, budget)
}

function add(node: Node, [head, ...rest]: readonly string[], entry: string, budget: Budget): void {
  const field = node.view.collection.fields.get(head!)
  if (head === '*') {
    addAll(node, rest, entry, budget)
  } else if (rest.length > 0) {
    node.named.add(head!)
    add(nestedNode(node, head!, entry, budget), rest, entry, budget)
  } else if (field === undefined) {
    addColumns(nestedNode(node, head!, entry, budget))
  } else {
    if (!node.view.mayRead(field)) throw errors.fieldDenied('read', entry)
    node.columns.set(field.name, field)
  }
}

/** `*`, `*.*`, …: the columns here and of every relation that may be followed. */
function addAll(node: Node, rest: readonly string[], entry: string, budget: Budget): void {
  if (rest.some((segment) => segment !== '*')) throw errors.badQuery(`fields: ${quoted(entry)} has a name after *`)
  addColumns(node)
  if (rest.length === 0) return
  for (const relation of node.view.collection.relations.values()) {
    const child = openNested(node, relation, budget)
    if (child !== undefined) addAll(child, rest.slice(1), entry, budget)
  }
}

function addColumns(node: Node): void {
  for (const field of readableColumns(node.view)) node.columns.set(field.name, field)
}

function nestedNode(node: Node, name: string, entry: string, budget: Budget): Node {
  const known = node.nested.get(name)
  if (known !== undefined) return known.node
  const entered = enter(node.view, name, entry, 'fields')
  return attach(node, entered.step.relation, entered, budget)
}

function openNested(node: Node, relation: Relation, budget: Budget): Node | undefined {
  const known = node.nested.get(relation.name)
  if (known !== undefined) return known.node
  const entered = node.view.enter(relation)
  return entered && attach(node, relation, entered, budget)
}

function attach(node: Node, relation: Relation, entered: Entered, budget: Budget): Node {
  budget.nested += 1
  if (budget.nested > MAX_NESTED) throw errors.badQuery('fields: too many relations')
  const child = emptyNode(entered.view)
  // A nested object always carries its id (`spec/items.md` §3).
  const { primaryKey } = entered.view.collection
  if (entered.view.mayRead(primaryKey)) child.columns.set(primaryKey.name, primaryKey)
  node.nested.set(relation.name, { relation, entered, node: child })
  return child
}

function exclude(root: Node, entry: string): void {
  const segments = entry.split('.')
  let node: Node | undefined = root
  let view: View | undefined = root.view
  for (const segment of segments.slice(0, -1)) {
    view = enter(view, segment, entry, 'fields').view
    node = node?.nested.get(segment)?.node
  }
  const last = segments.at(-1)!
  const { fields, relations } = view.collection
  if (!fields.has(last) && !relations.has(last)) throw unknownName('fields', entry)
  node?.nested.delete(last)
  const keepsId = node !== root && last === view.collection.primaryKey.name
  if (!keepsId) node?.columns.delete(last)
}

function toSelection(node: Node, conditions: unknown): Selection {
  return {
    collection: node.view.collection,
    columns: [...node.columns.values()],
    nested: [...node.nested.values()].map((child) => {
      const behind = relConditionsAt(conditions, child.relation.name)
      return {
        step: child.entered.step,
        selection: toSelection(child.node, behind),
        where: allOf([requestedRows(behind, child.node.view)]),
        only: onlyNamed(child.relation, child.node),
      }
    }),
  }
}

function requestedRows(conditions: unknown, view: View): Predicate {
  const own = rowPart(conditions, view.collection)
  return own === null ? ALWAYS : resolveFilter(parseFilter(own), view, 'relConditions')
}

/** `blocks.image.*` returns the junction rows that point at images only. */
function onlyNamed(relation: Relation, node: Node): NestedSelection['only'] {
  if (relation.kind !== 'polymorphic') return undefined
  const named = [...node.named].map((name) => node.view.collection.relations.get(name)?.discriminator)
  const discriminators = named.filter((discriminator) => discriminator !== undefined)
  const column = discriminators[0]?.column
  return column === undefined ? undefined : { column, values: discriminators.map(({ value }) => value) }
}

/** Every relation named in relConditions exists and may be read, also where it is not selected. */
function requireKnownRelations(conditions: unknown, view: View): void {
  if (!isObject(conditions)) return
  for (const name of Object.keys(conditions)) {
    const { view: behind } = enter(view, name, name, 'relConditions')
    requireKnownNested(member(conditions, name), behind)
  }
}

function requireKnownNested(conditions: unknown, view: View): void {
  if (!isObject(conditions)) throw errors.badQuery('relConditions: expected { relation: filter }')
  for (const [name, nested] of Object.entries(conditions)) {
    if (!view.collection.relations.has(name) || !isObject(nested)) continue
    requireKnownNested(nested, enter(view, name, name, 'relConditions').view)
  }
}
