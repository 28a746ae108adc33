/** Which collections decide, beside the row itself, whether a row satisfies a condition. */
import type { ColumnPath, Predicate, Step } from './plan.ts'
import type { ResolvedFilter } from './resolve.ts'

/**
 * The collections behind the relations that a condition follows, junctions and their rules included. Its own one is
 * among them only where a relation leads back to it: a change there is then a change of other rows, too.
 */
export function relatedCollections({ predicate }: ResolvedFilter): ReadonlySet<string> {
  return new Set(behind(predicate))
}

function behind(predicate: Predicate): string[] {
  switch (predicate.kind) {
    case 'always':
    case 'never':
    case 'test':
      return []
    case 'and':
    case 'or':
      return predicate.of.flatMap(behind)
    case 'not':
      return behind(predicate.of)
    case 'compare':
      return predicate.steps.flatMap(behindStep)
    case 'exists':
      return [...behindStep(predicate.step), ...behind(predicate.where)]
    case 'search':
      return predicate.search.columns.flatMap(({ steps }: ColumnPath) => steps.flatMap(behindStep))
  }
}

function behindStep({ target, through, rule }: Step): string[] {
  return [target.name, ...(through === undefined ? [] : [through.name]), ...behind(rule)]
}
