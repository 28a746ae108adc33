/**
 * Filters resolved against a view. A dotted path through relations means: some related row matches, so parents never
 * multiply. Tests for a missing value (`isNull`, `eq null`, `empty`) on such a path also hold where there is no
 * related row.
 */
import type { Collection, Field } from '../catalog/catalog.ts'
import { comparable, exactMember, isObject, member, readCast, type ValueType } from '../catalog/values.ts'
import { errors } from '../errors.ts'
import { hasLongNumbers } from '../language/exact-json.ts'
import { meantName, quoted } from './guards.ts'
import { isMoment, momentOperator } from './moments.ts'
import { comparisonOf, findOperator, type Operator, operatorNames } from './operators.ts'
import { type Filter, type FilterEntry, parseFilter } from './parse.ts'
import { ALWAYS, allOf, anyOf, isToMany, negate, type Predicate, type Step, type TimeTest } from './plan.ts'
import { shiftFromNow } from './variables.ts'
import { resolveColumn, resolvePath, type View } from './view.ts'

/** Throws 400 for unknown names, operators and operands, 403 for what the view does not show. */
export function resolveFilter(filter: Filter | undefined, view: View, parameter = 'filter'): Predicate {
  if (filter === undefined) return ALWAYS
  switch (filter.kind) {
    case 'and':
      return allOf(filter.of.map((part) => resolveFilter(part, view, parameter)))
    case 'or':
      return anyOf(filter.of.map((part) => resolveFilter(part, view, parameter)))
    case 'not':
      return negate(resolveFilter(filter.of, view, parameter))
    case 'entry':
      return resolveEntry(filter, view, parameter)
  }
}

/** The left side of a test. */
type FilterSubject = {
  readonly field: Field
  readonly collection: Collection
  readonly cast: ValueType | undefined
  readonly steps: readonly Step[]
  /** Where the entry stands; `$COL(…)` counts from here. */
  readonly view: View
  readonly parameter: string
  readonly label: string
}

function resolveEntry(entry: FilterEntry, view: View, parameter: string): Predicate {
  const { steps, view: last, target } = resolvePath(entry.path, view, parameter)
  const label = `${parameter}.${entry.path.slice(0, 128)}`
  if ('relation' in target) {
    const entered = last.enter(target.relation)
    if (entered === undefined) throw errors.relationDenied('read', entry.path)
    return resolveRelated(entry.value, [...steps, entered.step], entered.view, parameter, label)
  }
  const { value } = entry
  const { tests, cast } = testsOf(value, label)
  const subject: FilterSubject = {
    ...{ field: target.column, collection: last.collection },
    ...{ cast, steps, view, parameter, label },
  }
  return throughSteps(
    tests.map(([name, raw]) => {
      const exact = hasLongNumbers(value) ? exactMember(value as object, name, cast ?? target.column) : raw
      return resolveTest(name, exact, subject)
    }),
    subject,
  )
}

/** `relation: null`, `relation: { isNull }`, otherwise `relation: filter`, whose members meet the same row. */
function resolveRelated(
  value: unknown,
  steps: readonly Step[],
  view: View,
  parameter: string,
  label: string,
): Predicate {
  const exists = existence(value, view)
  if (exists !== undefined) return exists ? through(steps, ALWAYS) : negate(through(steps, ALWAYS))
  if (!isObject(value)) throw errors.badQuery(`${label}: expected a filter of the relation's fields`)
  return through(steps, resolveFilter(parseFilter(value), view, parameter))
}

function existence(value: unknown, view: View): boolean | undefined {
  if (value === null) return false
  if (!isObject(value) || Object.keys(value).length !== 1) return undefined
  for (const [name, whenTrue] of [['isNull', false] as const, ['isNotNull', true] as const]) {
    if (view.collection.fields.has(name) || view.collection.relations.has(name)) continue
    const raw = member(value, name)
    if (raw === true || raw === 'true') return whenTrue
    if (raw === false || raw === 'false') return !whenTrue
  }
  return undefined
}

function testsOf(value: unknown, label: string): { tests: [string, unknown][]; cast: ValueType | undefined } {
  if (Array.isArray(value)) throw errors.badQuery(`${label}: expected a value or operators`)
  if (!isObject(value)) return { tests: [['eq', value]], cast: undefined }
  const members = Object.entries(value).filter(([, raw]) => raw !== undefined)
  const [, cast = null] = members.find(([name]) => name === 'cast') ?? []
  return {
    tests: members.filter(([name]) => name !== 'cast'),
    cast: cast === null ? undefined : readCast(cast, label),
  }
}

function resolveTest(name: string, raw: unknown, subject: FilterSubject): Predicate {
  const found = findOperator(name)
  if (found === undefined) {
    const hint = meantName(name.replace(/^\$/, ''), operatorNames())
    throw errors.badQuery(`${subject.label}: unknown operator ${quoted(name)}${hint}`)
  }
  const comparison = comparisonOf(found.name)
  const other = comparison === undefined ? undefined : columnOperand(raw)
  if (comparison !== undefined && other !== undefined) return compareColumns(comparison, other, subject)
  const value = subject.view.substitute(raw)
  const own = spread(found.name, raw, value) ?? found
  const operator = momentOperator(own.name, subject.field, subject.cast) ?? own.operator
  const type = subject.cast ?? subject.field
  requireApplicable(name, operator, type, subject)
  const label = `${subject.label}.${name}`
  const operand = operator.read(value, type, label)
  if (subject.parameter === 'filter') subject.view.note?.({ raw, operator, type, label, operand })
  const test = { kind: 'test', left: { column: subject.field, up: 0, cast: subject.cast }, operator, operand } as const
  const timed = timeTest(test, found.name, raw, subject)
  if (timed !== undefined) subject.view.noteTime(timed)
  return test
}

/** Undefined for tests that name no time, and for those whose outcomes may change at any. */
function timeTest(test: TimeTest['test'], name: string, raw: unknown, subject: FilterSubject): TimeTest | undefined {
  const { collection, field, cast, parameter } = subject
  const shiftMs = shiftFromNow(raw)
  // The fields of `having` are no columns.
  if (shiftMs === undefined || cast !== undefined || parameter === 'having') return undefined
  if (field.kind === 'date') return { collection, test, shiftMs, comparison: undefined }
  const comparison = timeComparisons.get(name)
  return isMoment(field) && comparison !== undefined ? { collection, test, shiftMs, comparison } : undefined
}

const timeComparisons = new Map([
  ['lt', '<'],
  ['lte', '<='],
  ['gt', '>'],
  ['gte', '>='],
] as const) as ReadonlyMap<string, TimeTest['comparison']>

/** A variable over a to-many relation has several values: equal to it means equal to one of them. */
function spread(name: string, raw: unknown, value: unknown): ReturnType<typeof findOperator> {
  if (typeof raw !== 'string' || !Array.isArray(value)) return undefined
  if (name === 'eq') return findOperator('in')
  return name === 'ne' || name === 'not' ? findOperator('notIn') : undefined
}

function requireApplicable(name: string, operator: Operator, type: ValueType, { view, label }: FilterSubject): void {
  if (operator.kinds !== undefined && !operator.kinds.has(type.kind)) {
    throw errors.badQuery(`${label}: ${quoted(name)} does not apply to this type of field`)
  }
  if (operator.needs !== undefined && !view.hasExtension(operator.needs)) {
    throw errors.badQuery(`${label}: ${quoted(name)} needs a database extension that is not enabled`)
  }
}

const COLUMN = /^\$COL\(([^():]+)(?:::([\w [\]]+))?\)$/

function columnOperand(raw: unknown): { path: string; cast: string | undefined } | undefined {
  const match = typeof raw === 'string' ? COLUMN.exec(raw) : null
  return match === null ? undefined : { path: match[1]!, cast: match[2] }
}

function compareColumns(
  comparison: string,
  other: { path: string; cast: string | undefined },
  subject: FilterSubject,
): Predicate {
  const right = resolveColumn(other.path, subject.view, subject.label)
  // A `cast` beside the operator is meant for both columns.
  const cast = other.cast === undefined ? subject.cast : readCast(other.cast, subject.label)
  if (!comparable((subject.cast ?? subject.field).kind, (cast ?? right.column).kind)) {
    throw errors.badQuery(`${subject.label}: the two columns differ in type, cast one`)
  }
  return {
    kind: 'compare',
    left: { column: subject.field, up: 0, cast: subject.cast },
    comparison,
    steps: right.steps,
    // Counted from the row that the left column is of.
    right: { column: right.column, up: subject.steps.length, cast },
  }
}

/** Tests at the end of a path. Those for present values must hold on one and the same related row. */
function throughSteps(tests: readonly Predicate[], { steps }: FilterSubject): Predicate {
  if (steps.length === 0) return allOf(tests)
  const present = tests.filter((test) => !asksForMissing(test))
  const missing = tests.filter(asksForMissing).map((test) => missingThrough(steps, test))
  return allOf([...(present.length > 0 ? [through(steps, allOf(present))] : []), ...missing])
}

const asksForMissing = (test: Predicate): boolean => test.kind === 'test' && test.operand.matchesNull

const through = (steps: readonly Step[], where: Predicate): Predicate =>
  steps.reduceRight<Predicate>((inner, step) => ({ kind: 'exists', step, where: inner }), where)

/** As an outer join would see it: there is no related row, or one that passes. */
function missingThrough([step, ...rest]: readonly Step[], test: Predicate): Predicate {
  if (step === undefined) return test
  const inner = missingThrough(rest, test)
  if (!isToMany(step.relation)) return negate({ kind: 'exists', step, where: negate(inner) })
  const none = negate({ kind: 'exists', step, where: ALWAYS })
  return rest.length === 0 && cannotHold(inner) ? none : anyOf([none, { kind: 'exists', step, where: inner }])
}

/** `is null` of a column that is never null. */
const cannotHold = (test: Predicate): boolean =>
  test.kind === 'test' && test.operand.variant === 'is null' && !test.left.column.nullable
