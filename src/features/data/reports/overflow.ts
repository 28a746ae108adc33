import { sqlState } from '../../../db/errors.ts'
import { AppError } from '../../../errors.ts'
import { type Aggregate, mayFail, type Selection } from '../../../query/plan.ts'
import type { Plan } from '../../../query/resolve.ts'

/** A sum or an average of stored values that no number of its type can hold. */
export class ResultOutOfRange extends AppError {}

/**
 * Names the aggregates that an error of the database may be about; undefined where it is about something else. A cast or an
 * operator of the request that may fail by itself takes the blame.
 */
export function resultOutOfRange(plan: Plan, error: unknown): ResultOutOfRange | undefined {
  const { grouping, where } = plan
  if (grouping === undefined || sqlState(error) !== numberOutOfRange) return undefined
  if (mayFail(where) || mayFail(grouping.having) || detailMayFail(grouping.detail)) return undefined
  const suspects = grouping.aggregates.filter(canOverflow).map(described)
  if (suspects.length === 0) return undefined
  const message = `The result is out of range: ${suspects.join(' or ')}`
  return new ResultOutOfRange(400, message, { cause: error })
}

const numberOutOfRange = '22003'

/** Whole numbers add up in a type that has no bound in practice. */
const canOverflow = ({ fn, path }: Aggregate): boolean =>
  (fn === 'sum' || fn === 'avg') && (path?.column.kind === 'float' || path?.column.kind === 'decimal')

function described({ alias, fn, path }: Aggregate): string {
  const names = [...path!.steps.map(({ relation }) => relation.name), path!.column.name]
  return `${alias} (${fn} of ${names.join('.')})`
}

const detailMayFail = (detail: Selection | undefined): boolean =>
  detail?.nested.some(({ where, selection }) => mayFail(where) || detailMayFail(selection)) ?? false
