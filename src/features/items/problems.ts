import { AppError, errors, type FieldProblem } from '../../errors.ts'

/** What is wrong with a relation of a payload; `field` is its path, e.g. `lines.2.product`. */
export type RelationProblem = { readonly field: string; readonly message: string }

/** Everything wrong with one request, so that it is answered at once. */
export type Problems = { readonly fields: FieldProblem[]; readonly relations: RelationProblem[] }

export const openProblems = (): Problems => ({ fields: [], relations: [] })

/** 400 with all of them; relations first, because their fields could not be read. */
export function refuseProblems({ fields, relations }: Problems): void {
  if (relations.length > 0) throw relationalError(relations)
  if (fields.length > 0) throw errors.validation(fields)
}

/** A relation that cannot be written as it was given (spec/items.md §10). */
export function relationalError(problems: readonly RelationProblem[]): AppError {
  return new AppError(400, 'Validation failed for relational data', { details: problems })
}

/** The same words for an item that is missing and one that is not the caller's, so that nothing is given away. */
export const unknownItem = (action: 'read' | 'update'): string => errors.itemDenied(action).message
