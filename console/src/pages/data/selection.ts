import type { Row } from './query.ts'

export type Selected = ReadonlyMap<string, Row>

/** At most so many rows are selected at once. */
export const mostSelected = 1000

/** How the box above all rows stands. */
export const extentOf = (selected: number, count: number): 'none' | 'some' | 'all' =>
  selected === 0 ? 'none' : selected >= count ? 'all' : 'some'

/** What the box above all rows selects: the loaded rows, or none where all of them are selected already. */
export function toggledAll(selected: Selected, loaded: readonly Row[], keyOf: (row: Row) => string): Selected {
  return hasAll(selected, loaded, keyOf) ? new Map() : new Map(loaded.map((row) => [keyOf(row), row]))
}

/** How many rows are selected, and of how many where only what is loaded could be. */
export function selectionText(
  selected: Selected,
  loaded: readonly Row[],
  keyOf: (row: Row) => string,
  count: number,
): string {
  const number = selected.size.toLocaleString()
  return selected.size > 1 && selected.size < count && hasAll(selected, loaded, keyOf)
    ? `${number} loaded rows of ${count.toLocaleString()} selected`
    : `${number} selected`
}

const hasAll = (selected: Selected, loaded: readonly Row[], keyOf: (row: Row) => string): boolean =>
  selected.size > 0 && loaded.every((row) => selected.has(keyOf(row)))
