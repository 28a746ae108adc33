import type { Collection, Field } from '../../app/definition.ts'
import type { Row } from './query.ts'
import { sameValue } from './values.ts'

/** The fields to follow: a change has the columns of its own row, and nothing of the rows that these refer to. */
export const fieldsToFollow = ({ key }: Pick<Collection, 'key'>, columns: readonly Pick<Field, 'name'>[]) => [
  ...new Set([key, ...columns.map(({ name }) => name)]),
]

type Column = Pick<Field, 'name' | 'relation'>

/**
 * What a change makes of a shown row, and whether the row has to be read to be shown: it refers to another row, whose title no
 * change tells, or a column is missing. Until then the other row is not shown under the title of the former one.
 */
export function changedRow(before: Row, change: Row, columns: readonly Column[]): { row: Row; isIncomplete: boolean } {
  const turned = columns.flatMap(({ name, relation }) =>
    relation !== undefined && name in change && !sameValue(before[name], change[name]) ? [{ name, relation }] : [],
  )
  return {
    row: { ...before, ...change, ...Object.fromEntries(turned.map(({ relation }) => [relation.name, null])) },
    isIncomplete:
      turned.some(({ name }) => change[name] !== null) || columns.some(({ name }) => change[name] === undefined),
  }
}

/** Why a list does not follow changes, for people. A browser says nothing of a socket that does not open. */
export const reasonOf = ({ message }: Error): string =>
  message === 'websocket error' ? 'the realtime channel does not answer, or is off (SOCKET_ENABLED)' : message
