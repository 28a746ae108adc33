/** In which order rows are written, so that every reference and every unique value is free when it is needed. */

/** A row to be written, with the places of others that it takes or leaves. Places are texts, equal where they are the same. */
export type Move = {
  readonly action: 'create' | 'update' | 'delete'
  /** Values that others may refer to once the row is written; of one that goes, those that it has. */
  readonly offers: readonly string[]
  /** The same of a row that is only marked as deleted: it stays, unless the deletion of another one takes it. */
  readonly marks?: readonly string[]
  /** Values of an update that it has and others can refer to no longer afterwards. */
  readonly leaves: readonly string[]
  /** Rows that must be there before, by the column that refers to them. */
  readonly needs: ReadonlyMap<string, Need>
  /** Rows that it refers to now and no longer afterwards, by column. */
  readonly releases: ReadonlyMap<string, Need>
  /** Unique values that it will have, each with a column of it that may be null until then. */
  readonly takes: readonly Taken[]
  /** Unique values that it has and will not have any more. */
  readonly frees: readonly string[]
}

/**
 * `canWait`: the column may be null meanwhile. `holds`: what it refers to keeps this value as long as it does. `was`: which
 * place of the past it comes from, of a reference that no constraint keeps.
 */
type Need = {
  readonly place: string
  readonly canWait: boolean
  readonly holds: boolean
  readonly was?: string | undefined
}
type Taken = { readonly place: string; readonly nullable: string | undefined }

/** A move by its index. `without` are columns that are null after it, `only` those that it writes and no others. */
export type OrderedMove = {
  readonly move: number
  readonly without: readonly string[]
  readonly only?: readonly string[]
}

/**
 * Waves of steps; those of one wave may be made in any order. Rows are written after what they refer to has the values that they name, and
 * deleted after what refers to them. Where rows wait for each other in a circle, a column that may be null is set last, or of rows that
 * go is set to null first. Undefined where there is no such column.
 */
export function orderOf(moves: readonly Move[]): readonly (readonly OrderedMove[])[] | undefined {
  const waits = waitsOf(moves)
  const blockers = waits.map((list) => new Set(list.map(({ on }) => on)))
  const followers = moves.map((): number[] => [])
  for (const [index, on] of blockers.entries()) for (const other of on) followers[other]!.push(index)
  const without = moves.map((): string[] => [])
  const left = new Set(moves.keys())
  const waves: OrderedMove[][] = []
  let ready = [...left].filter((index) => blockers[index]!.size === 0)
  while (left.size > 0) {
    if (ready.length === 0) {
      const opened = openCircle(moves, waits, blockers, left)
      if (opened === undefined) return undefined
      without[opened.move] = [...opened.without]
      if (opened.letGo.length > 0) waves.push([...opened.letGo])
      blockers[opened.move]!.clear()
      ready = [opened.move]
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

/**
 * A move and the other one that it waits for. It need not wait where it leaves out `column` for now, or where the other one, which refers to it, sets
 * `letGo` to null before it goes.
 */
type Wait = { readonly on: number; readonly column?: string | undefined; readonly letGo?: string | undefined }

type Release = Wait & { readonly holds: boolean }

function waitsOf(moves: readonly Move[]): Wait[][] {
  const waits = moves.map((): Wait[] => [])
  const offered = new Map<string, number>()
  const freed = new Map<string, number>()
  const referring = new Map<string, Release[]>()
  for (const [index, { action, offers, frees, releases }] of moves.entries()) {
    for (const place of action === 'delete' ? [] : offers) offered.set(place, index)
    for (const place of frees) freed.set(place, index)
    for (const [column, { place, canWait, holds }] of releases) {
      const wait = { on: index, letGo: canWait && action === 'delete' ? column : undefined, holds }
      referring.set(place, referring.get(place) ?? [])
      referring.get(place)!.push(wait)
    }
  }
  /** What refers to a row, and to those that would go with it. */
  const referringTo = (place: string, met = new Set<number>()): readonly Wait[] =>
    (referring.get(place) ?? []).flatMap((wait) => {
      if (met.has(wait.on)) return []
      const marks = moves[wait.on]!.marks ?? []
      if (marks.length > 0) met.add(wait.on)
      return [wait, ...marks.flatMap((mark) => referringTo(mark, met))]
    })
  for (const [index, { action, needs, takes, offers, leaves }] of moves.entries()) {
    const wait = (on: number | undefined, how: Omit<Wait, 'on'>) => {
      // One statement may write a row that points at itself.
      if (on !== undefined && on !== index) waits[index]!.push({ on, ...how })
    }
    for (const [column, { place, canWait }] of needs) wait(offered.get(place), { column: canWait ? column : undefined })
    for (const { place, nullable } of takes) wait(freed.get(place), { column: nullable })
    for (const place of action === 'delete' ? offers : [])
      for (const { on, letGo } of referringTo(place)) wait(on, { letGo })
    for (const place of leaves)
      for (const { on, letGo, holds } of referring.get(place) ?? []) if (holds) wait(on, { letGo })
  }
  return waits
}

type Opened = { readonly move: number; readonly without: readonly string[]; readonly letGo: readonly OrderedMove[] }

/** Finds a move that can go on, where it leaves out columns for now or others let it go before they go themselves. */
function openCircle(
  moves: readonly Move[],
  waits: readonly (readonly Wait[])[],
  blockers: readonly Set<number>[],
  left: ReadonlySet<number>,
): Opened | undefined {
  const open = (index: number) => waits[index]!.filter(({ on }) => blockers[index]!.has(on))
  const first = (isWanted: (move: number) => boolean) => {
    for (const index of left) if (isWanted(index)) return index
    return undefined
  }
  const later = first((index) => moves[index]!.action !== 'delete' && open(index).every(({ column }) => column))
  if (later !== undefined)
    return { move: later, without: [...new Set(open(later).map(({ column }) => column!))], letGo: [] }
  const going = first((index) => moves[index]!.action === 'delete' && open(index).every(({ letGo }) => letGo))
  if (going === undefined) return undefined
  const letGo = [...Map.groupBy(open(going), ({ on }) => on)].map(([move, list]) => {
    const columns = list.map(({ letGo }) => letGo!)
    return { move, without: columns, only: columns }
  })
  return { move: going, without: [], letGo }
}
