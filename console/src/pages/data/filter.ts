/** A filter as a tree that can be edited: every filter of the query language is one, and comes back as it was meant. */
export type FilterNode = FilterGroup | FilterCondition

export type FilterGroup = {
  readonly kind: 'group'
  readonly join: 'AND' | 'OR'
  readonly isNot: boolean
  readonly members: readonly FilterNode[]
}

export type FilterCondition = {
  readonly kind: 'condition'
  /** `name`, or over relations: `category.name`. */
  readonly path: string
  readonly operator: string
  readonly operand: unknown
  /** Compares as another type. */
  readonly cast?: string
}

export type Filter = Readonly<Record<string, unknown>>

export const emptyGroup: FilterGroup = { kind: 'group', join: 'AND', isNot: false, members: [] }

/** The condition on related rows as a whole is an operator of its own here: its operand is their filter. */
export const relatedOperator = 'related'

/** Reads a filter; `isRelation` knows the paths that end at a relation. */
export function readFilter(filter: Filter, isRelation: (path: string) => boolean): FilterGroup {
  const members = Object.entries(filter).flatMap(([name, value]) => readMember(name, value, isRelation))
  const [only] = members
  if (members.length === 1 && only?.kind === 'group') return only
  return { ...emptyGroup, members }
}

function readMember(name: string, value: unknown, isRelation: (path: string) => boolean): readonly FilterNode[] {
  const word = name.toUpperCase()
  if ((word === 'AND' || word === 'OR') && Array.isArray(value))
    return [
      { kind: 'group', join: word, isNot: false, members: value.map((one) => unwrapped(readFilter(one, isRelation))) },
    ]
  if (word === 'NOT' && isObject(value)) {
    const inner = readFilter(value, isRelation)
    return [inner.isNot ? { ...emptyGroup, isNot: true, members: [inner] } : { ...inner, isNot: true }]
  }
  if (word === 'NOT' && Array.isArray(value))
    return [{ ...emptyGroup, isNot: true, members: value.map((one) => unwrapped(readFilter(one, isRelation))) }]
  const path = name.replace(/^\$(.+)\$$/, '$1')
  if (value === null) return [{ kind: 'condition', path, operator: 'isNull', operand: true }]
  if (!isObject(value)) return [{ kind: 'condition', path, operator: 'eq', operand: value }]
  const { cast, ...operators } = value
  const names = Object.keys(operators)
  const asksWhether = names.every((one) => one === 'isNull' || one === 'isNotNull')
  if (isRelation(path) && !asksWhether) return [{ kind: 'condition', path, operator: relatedOperator, operand: value }]
  return names.map((operator) => ({
    kind: 'condition',
    path,
    operator,
    operand: operators[operator],
    ...(typeof cast === 'string' && { cast }),
  }))
}

/**
 * Whether a value is a filter whose meaning {@link readFilter} keeps. What others have stored may be anything: an empty
 * comparison, for example, is no condition that could be edited.
 */
export function isEditable(value: unknown): value is Filter {
  if (!isObject(value)) return false
  return Object.entries(value).every(([name, member]) => {
    const word = name.toUpperCase()
    if (word === 'AND' || word === 'OR') return Array.isArray(member) && member.length > 0 && member.every(isGroup)
    if (word === 'NOT') return Array.isArray(member) ? member.length > 0 && member.every(isGroup) : isGroup(member)
    return !isEmpty(member)
  })
}

const isGroup = (value: unknown): boolean => isEditable(value) && !isEmpty(value)

const isEmpty = (value: unknown): boolean => isObject(value) && Object.keys(value).length === 0

/** A group of one member that says no more than the member. */
const unwrapped = (group: FilterGroup): FilterNode =>
  group.members.length === 1 && !group.isNot ? group.members[0]! : group

/** Writes a filter; undefined where nothing is asked. */
export function writeFilter(group: FilterGroup): Filter | undefined {
  return countConditions(group) === 0 ? undefined : writeNode(group)
}

function writeNode(node: FilterNode): Filter {
  if (node.kind === 'condition') return writeCondition(node)
  const members = node.members.filter((one) => countConditions(one) > 0).map(writeNode)
  const inner = node.join === 'AND' ? (merged(members) ?? { AND: members }) : { OR: members }
  return node.isNot ? { NOT: inner } : inner
}

function writeCondition({ path, operator, operand, cast }: FilterCondition): Filter {
  if (operator === relatedOperator) return { [path]: operand }
  if (operator === 'eq' && cast === undefined && !isObject(operand) && operand !== undefined) return { [path]: operand }
  return { [path]: { [operator]: operand, ...(cast !== undefined && { cast }) } }
}

/** Members that must all hold are one object where no name comes twice. */
function merged(members: readonly Filter[]): Filter | undefined {
  const names = members.flatMap((one) => Object.keys(one))
  return new Set(names).size === names.length ? Object.assign({}, ...members) : undefined
}

const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** How many conditions there are. */
export const countConditions = (node: FilterNode): number =>
  node.kind === 'condition' ? 1 : node.members.reduce((sum, one) => sum + countConditions(one), 0)

/** Whether a condition waits for what it compares with. A text may be compared with the empty one. */
export const isUnfinished = (node: FilterNode): boolean =>
  node.kind === 'group'
    ? node.members.some(isUnfinished)
    : Array.isArray(node.operand)
      ? node.operand.length === 0 || node.operand.includes('')
      : node.operand === '' && node.operator !== 'eq' && node.operator !== 'ne'
