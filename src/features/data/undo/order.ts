/** In which order rows are written, so that every reference and every unique value is free when it is needed. */

/** A row to be written, with the places of others that it takes or leaves. Places are texts, equal where they are the same. */
export type Move = {
  readonly action: 'create' | 'update' | 'delete'
  /** What others may refer to once the row is there. */
  readonly offers: readonly string[]
  /** What must be there before, by the column that refers to it. */
  readonly needs: ReadonlyMap<string, Need>
  /** What it refers to now and does not any more afterwards, by column. */
  readonly releases: ReadonlyMap<string, string>
  /** Unique values that it will have. */
  readonly takes: readonly string[]
  /** Unique values that it has and will not have any more. */
  readonly frees: readonly string[]
}

/** `canWait`: the column may be null until then. */
type Need = { readonly place: string; readonly canWait: boolean }

/** Moves that are made together, by their index. `without` are columns that stay null for now, `only` those that were left out. */
export type Step = { readonly move: number; readonly without: readonly string[]; readonly only?: readonly string[] }

/**
 * Waves of steps; those of one wave may be made in any order. Rows are created after what they refer to, and deleted after what
 * refers to them. Where rows wait for each other in a circle, a column that may be null is set last. Undefined where
 * there is no such column.
 */
export function orderOf(moves: readonly Move[]): readonly (readonly Step[])[] | undefined {
  const waits = waitsOf(moves)
  const blockers = waits.map((list) => new Set(list.map(({ on }) => on)))
  const followers = moves.map((): number[] => [])
  for (const [index, on] of blockers.entries()) for (const other of on) followers[other]!.push(index)
  const without = moves.map((): string[] => [])
  const left = new Set(moves.keys())
  const waves: Step[][] = []
  let ready = [...left].filter((index) => blockers[index]!.size === 0)
  while (left.size > 0) {
    if (ready.length === 0) {
      const opened = openCircle(moves, waits, blockers, left, without)
      if (opened === undefined) return undefined
      ready = [opened]
    }
    waves.push(ready.map((move) => ({ move, without: without[move]! })))
    const next: number[] = []
    for (const done of ready) left.delete(done)
    for (const done of ready)
      for (const follower of followers[done]!)
        if (blockers[follower]!.delete(done) && blockers[follower]!.size === 0 && left.has(follower))
          next.push(follower)
    ready = next
  }
  const late = [...without.entries()].filter(([, columns]) => columns.length > 0)
  if (late.length > 0) waves.push(late.map(([move, only]) => ({ move, without: [], only })))
  return waves
}

/** What a move waits for, and by which of its columns, where that may be left out for now. */
type Wait = { readonly on: number; readonly column: string | undefined }

function waitsOf(moves: readonly Move[]): Wait[][] {
  const waits = moves.map((): Wait[] => [])
  const offered = new Map<string, number>()
  const freed = new Map<string, number>()
  const referring = new Map<string, number[]>()
  for (const [index, { action, offers, frees, releases }] of moves.entries()) {
    for (const place of action === 'create' ? offers : []) offered.set(place, index)
    for (const place of frees) freed.set(place, index)
    for (const place of releases.values()) referring.set(place, [...(referring.get(place) ?? []), index])
  }
  for (const [index, { action, needs, takes, offers }] of moves.entries()) {
    for (const [column, { place, canWait }] of needs) {
      const on = offered.get(place)
      // One statement may write a row that points at itself.
      if (on !== undefined && on !== index) waits[index]!.push({ on, column: canWait ? column : undefined })
    }
    for (const place of takes) {
      const on = freed.get(place)
      if (on !== undefined && on !== index) waits[index]!.push({ on, column: undefined })
    }
    for (const place of action === 'delete' ? offers : [])
      for (const on of referring.get(place) ?? []) if (on !== index) waits[index]!.push({ on, column: undefined })
  }
  return waits
}

/** Finds a move that can go on if it leaves some columns out for now, and lets it. */
function openCircle(
  moves: readonly Move[],
  waits: readonly (readonly Wait[])[],
  blockers: readonly Set<number>[],
  left: ReadonlySet<number>,
  without: string[][],
): number | undefined {
  for (const index of left) {
    if (moves[index]!.action === 'delete') continue
    const open = waits[index]!.filter(({ on }) => blockers[index]!.has(on))
    if (open.some(({ column }) => column === undefined)) continue
    without[index] = [...new Set(open.map(({ column }) => column!))]
    blockers[index]!.clear()
    return index
  }
  return undefined
}
