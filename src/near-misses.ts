/** Which of the names that there are was meant by one that there is not. */

/** The known name that is spelt most like it: but for case, or at most two letters away, one in short names. */
export function nearestName(name: string, known: Iterable<string>): string | undefined {
  const asked = name.toLowerCase()
  const farthest = asked.length <= 4 ? 1 : 2
  const near = [...known]
    .map((candidate) => ({ candidate, distance: editDistance(asked, candidate.toLowerCase()) }))
    .filter(({ distance }) => distance <= farthest)
  return near.sort((left, right) => left.distance - right.distance)[0]?.candidate
}

/** Levenshtein distance, one row at a time; infinite where the lengths tell that it is more than two. */
export function editDistance(left: string, right: string): number {
  if (Math.abs(left.length - right.length) > 2) return Number.POSITIVE_INFINITY
  let row = Array.from({ length: right.length + 1 }, (_, column) => column)
  for (const [index, char] of [...left].entries()) row = nextRow(row, index + 1, char, right)
  return row[right.length] ?? 0
}

function nextRow(above: readonly number[], first: number, char: string, right: string): number[] {
  const row = [first]
  for (const [column, other] of [...right].entries()) {
    const replaced = (above[column] ?? 0) + (char === other ? 0 : 1)
    row.push(Math.min(replaced, (above[column + 1] ?? 0) + 1, (row[column] ?? 0) + 1))
  }
  return row
}
