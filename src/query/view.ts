/**
 * A view is what one caller may see of one collection, reached in one way. Everything in a request that names a
 * field or relation asks a view, so that nothing can be filtered, sorted, searched, counted or returned past it.
 */
import type { Collection, Field, Relation } from '../catalog/catalog.ts'
import type { Extension } from './operator.ts'
import type { Asked, Step } from './plan.ts'

export type View = {
  readonly collection: Collection
  /** Whether the field may be read; false for hidden ones, for everybody. */
  mayRead(field: Field): boolean
  /** Whether full-text search may look into it: for related rows that needs a grant of their own collection. */
  maySearch(field: Field): boolean
  /** The step over a relation and the view behind it; undefined where the caller may not follow it. */
  enter(relation: Relation): Entered | undefined
  /** Every variable in the value replaced (see variables.ts). */
  substitute(value: unknown): unknown
  hasExtension(name: Extension): boolean
  /** Is told what the request's filter asks for; nobody is of stored texts. */
  note?(asked: Asked): void
}

/** `step.rule` holds for exactly the rows of `view` that the caller may see. */
export type Entered = { readonly step: Step; readonly view: View }

/** The columns that `*` stands for. */
export const readableColumns = (view: View): readonly Field[] =>
  [...view.collection.fields.values()].filter((field) => view.mayRead(field))
