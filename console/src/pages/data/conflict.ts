import type { Row } from './query.ts'
import { sameValue } from './values.ts'

/** A change that came too late: what the row was, what was meant, and what it has become. */
export type Conflict = {
  readonly base: Row
  readonly mine: Row
  readonly theirs: Row
  readonly etag: string | undefined
  /** The rows that `mine` refers to, by their relations, to show their titles. */
  readonly related?: Row
}

/** The fields that both have written, each differently. */
export const conflicting = ({ base, mine, theirs }: Pick<Conflict, 'base' | 'mine' | 'theirs'>): readonly string[] =>
  Object.keys(mine).filter((name) => !sameValue(base[name], theirs[name]) && !sameValue(mine[name], theirs[name]))
