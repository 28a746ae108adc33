import type { Catalog, Collection } from '../../app/definition.ts'
import { type FilterNode, isEditable, readFilter } from '../data/filter.ts'
import { operatorNamed } from '../data/operators.ts'
import type { Action } from './fields.ts'
import { entriesIn, isSilent } from './fields.ts'

/** The content of a permission or a named rule. Null for nothing, each as it is stored. */
export type RuleContent = {
  readonly fields: unknown
  readonly conditions: unknown
  readonly relConditions: unknown
  readonly defaultValues: unknown
}

export const isNothing = (value: unknown): boolean =>
  value === null || value === undefined || (typeof value === 'object' && Object.keys(value).length === 0)

export const nothing: RuleContent = { fields: null, conditions: null, relConditions: null, defaultValues: null }

/** The content of a stored rule, without the rest of its row. */
export const contentOf = ({ fields, conditions, relConditions, defaultValues }: RuleContent): RuleContent => ({
  fields,
  conditions,
  relConditions,
  defaultValues,
})

/**
 * What named rules give together, as one rule: conditions of one of them, the fields of all, later default values, and for
 * relations that every one limits one of the limits.
 */
export function together(rules: readonly RuleContent[], action: Action, collection: string, catalog: Catalog) {
  const [first = nothing] = rules
  if (rules.length <= 1) return contentOf(first)
  const fields = new Set(
    rules.flatMap((rule) => {
      const entries = entriesIn(rule.fields)
      return action === 'read' && isSilent(entries) ? ['*', ...entries] : entries
    }),
  )
  const conditions = rules.map((rule) => rule.conditions)
  const defaults = rules.map((rule) => rule.defaultValues)
  return {
    fields: fields.size === 0 ? null : [...fields],
    conditions: conditions.some(isNothing) ? null : { OR: conditions },
    relConditions: eitherOf(
      rules.map((rule) => rule.relConditions),
      catalog.get(collection),
      catalog,
    ),
    defaultValues: defaults.every(isNothing) ? null : Object.assign({}, ...defaults),
  } satisfies RuleContent
}

type Members = Readonly<Record<string, unknown>>

const membersOf = (value: unknown): Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Members) : {}

/** Limits of related rows that all of the rules have, each lifted to "one of them"; null for none. */
function eitherOf(all: readonly unknown[], collection: Collection | undefined, catalog: Catalog): Members | null {
  const [first = {}, ...rest] = all.map(membersOf)
  const entries = Object.keys(first).flatMap((name) => {
    const target = catalog.get(collection?.relations.find((relation) => relation.name === name)?.target ?? '')
    if (target === undefined || !rest.every((one) => Object.hasOwn(one, name))) return []
    const limits = [first, ...rest].map((one) => membersOf(one[name]))
    const isRelated = (key: string, value: unknown) =>
      target.relations.some((relation) => relation.name === key) && value === membersOf(value)
    const split = (isWanted: boolean) =>
      limits.map((limit) =>
        Object.fromEntries(Object.entries(limit).filter(([key, value]) => isRelated(key, value) === isWanted)),
      )
    const own = split(false)
    return [[name, { ...(!own.some(isNothing) && { OR: own }), ...eitherOf(split(true), target, catalog) }] as const]
  })
  return entries.length === 0 ? null : Object.fromEntries(entries)
}

/** The rule that opens nothing: no item passes, and writers get no field beside the key. */
export const closed = ({ key }: Collection, action: Action): RuleContent => ({
  ...nothing,
  fields: action === 'read' ? [key] : null,
  conditions: { [key]: { in: [] } },
})

/** The differences of another rule beside rows and fields, in words. */
export function uncounted(before: RuleContent, after: RuleContent): readonly string[] {
  const differs = (member: 'relConditions' | 'defaultValues') =>
    !(isNothing(before[member]) && isNothing(after[member])) &&
    JSON.stringify(before[member]) !== JSON.stringify(after[member])
  return [
    ...(differs('relConditions') ? ['Which related items are shown changes. These are not counted.'] : []),
    ...(differs('defaultValues') ? ['The values that items get change.'] : []),
  ]
}

/** A rule in one line. */
export function inWords({ fields, conditions, relConditions, defaultValues }: RuleContent): string {
  const named = fieldsInWords(entriesIn(fields))
  const parts = [
    named,
    isNothing(conditions) ? 'every item' : conditionsInWords(conditions),
    ...(isNothing(relConditions) ? [] : ['limits related items']),
    ...(isNothing(defaultValues) ? [] : ['gives values']),
  ]
  return parts.join(' · ')
}

function fieldsInWords(entries: readonly string[]): string {
  if (entries.length === 0) return 'no fields named'
  const without = entries.filter((entry) => entry.startsWith('-')).map((entry) => entry.slice(1))
  const opened = entries
    .filter((entry) => !entry.startsWith('-'))
    .map((entry) => (entry === '*' ? 'every field' : entry))
  return [opened.join(', '), ...(without.length > 0 ? [`without ${without.join(', ')}`] : [])].join(' ').trim()
}

function conditionsInWords(conditions: unknown): string {
  return isEditable(conditions) ? nodeInWords(readFilter(conditions, () => false)) : JSON.stringify(conditions)
}

function nodeInWords(node: FilterNode): string {
  if (node.kind === 'condition') {
    const { label, operand } = operatorNamed(node.operator)
    return [
      node.path,
      label,
      ...(operand === 'flag' && node.operand === true ? [] : [valueInWords(node.operand)]),
    ].join(' ')
  }
  const parts = node.members.map((one) => (one.kind === 'group' ? `(${nodeInWords(one)})` : nodeInWords(one)))
  const joined = parts.join(node.join === 'AND' ? ' and ' : ' or ')
  return node.isNot ? `not (${joined})` : joined
}

const valueInWords = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))
