/**
 * A view is what one caller may see of one collection, reached in one way. Everything in a request that names a
 * field or relation asks a view, so that nothing can be filtered, sorted, searched, counted or returned past it.
 */
import type { Collection, Field, Relation } from '../catalog/catalog.ts'
import { errors } from '../errors.ts'
import { MAX_RELATION_DEPTH, meantName, quoted } from './guards.ts'
import type { OperatorExtension } from './operators.ts'
import type { ColumnPath, Slot, Step, TimeTest } from './plan.ts'

export type View = {
  readonly collection: Collection
  /** Whether the field may be read; false for hidden ones, for everybody. */
  mayRead(field: Field): boolean
  /** Whether full-text search may look into it: for related rows that needs a grant of their own collection. */
  maySearch(field: Field): boolean
  /** The step over a relation and the view of its target; undefined where the caller may not follow it. */
  enter(relation: Relation): RelationEntry | undefined
  /** Every variable in the value replaced (see variables.ts). */
  substitute(value: unknown): unknown
  hasExtension(name: OperatorExtension): boolean
  /** Records a value of the request's filter; absent where stored texts are resolved. */
  note?(slot: Slot): void
  /** Records a test that names the time. */
  noteTime(test: TimeTest): void
}

/** `step.rule` holds for exactly the rows of `view` that the caller may see. */
export type RelationEntry = { readonly step: Step; readonly view: View }

/** The columns that `*` stands for. */
export const readableColumns = (view: View): readonly Field[] =>
  [...view.collection.fields.values()].filter((field) => view.mayRead(field))

/* Names of a request, looked up in a view: each dotted segment becomes a step, the last one a field or relation. */

type ResolvedPath = {
  readonly steps: readonly Step[]
  /** Of the collection that the last segment belongs to. */
  readonly view: View
  /** `column` is the field whose column is read for `field`, nearly always itself. */
  readonly target: { readonly field: Field; readonly column: Field } | { readonly relation: Relation }
}

type ResolvedColumn = ColumnPath & { readonly field: Field; readonly view: View }

/**
 * `a.b.column` or `$a.b.column$`. 400 where a name is unknown, 403 where the caller may not read it, in the same
 * words whether it is hidden or not granted.
 */
export function resolvePath(path: string, view: View, parameter: string): ResolvedPath {
  const segments = unwrap(path).split('.')
  if (segments.length > MAX_RELATION_DEPTH + 1) throw errors.badQuery(`${parameter}: too many relations in a path`)
  const steps: Step[] = []
  let current = view
  for (const segment of segments.slice(0, -1)) {
    const entered = enter(current, segment, path, parameter)
    steps.push(entered.step)
    current = entered.view
  }
  return { steps, view: current, target: lastSegment(current, segments.at(-1)!, path, parameter) }
}

/** As {@link resolvePath} where only a column will do. */
export function resolveColumn(path: string, view: View, parameter: string): ResolvedColumn {
  const { steps, target, view: last } = resolvePath(path, view, parameter)
  if ('relation' in target) throw errors.badQuery(`${parameter}: ${quoted(path)} is a relation`)
  return { steps, view: last, ...target }
}

/** The step over the relation named by a segment; 400 or 403. */
export function enter(view: View, segment: string, path: string, parameter: string): { step: Step; view: View } {
  const relation = view.collection.relations.get(segment)
  if (relation === undefined) {
    const field = view.collection.fields.get(segment)
    if (field !== undefined && !view.mayRead(field)) throw errors.fieldDenied('read', path)
    throw unknownName(parameter, path, view, segment)
  }
  const entered = view.enter(relation)
  if (entered === undefined) throw errors.relationDenied('read', path)
  return entered
}

/** 400, with the name that a segment of the path was meant to be; of those that the caller may read. */
export function unknownName(parameter: string, path: string, view: View, segment: string) {
  const { relations } = view.collection
  const readable = readableColumns(view).map((field) => field.name)
  const followed = [...relations.values()].filter((one) => view.enter(one) !== undefined).map((one) => one.name)
  const hint = meantName(segment, [...readable, ...followed])
  return errors.badQuery(`${parameter}: unknown field ${quoted(path)}${hint}`)
}

function lastSegment(view: View, segment: string, path: string, parameter: string): ResolvedPath['target'] {
  const field = view.collection.fields.get(segment)
  if (field !== undefined) {
    if (!view.mayRead(field)) throw errors.fieldDenied('read', path)
    // Its stored value differs from the shown one, and a comparison would disclose it.
    if (field.shownBy !== undefined) throw errors.badQuery(`${parameter}: ${quoted(path)} can only be selected`)
    const { sameAs } = field
    return { field, column: sameAs === undefined ? field : view.collection.fields.get(sameAs)! }
  }
  const relation = view.collection.relations.get(segment)
  if (relation === undefined) throw unknownName(parameter, path, view, segment)
  return { relation }
}

const unwrap = (path: string): string => (/^\$.+\$$/.test(path) ? path.slice(1, -1) : path)
