/** The reversal of some changes of one row: decided by its events alone, without a database. */

/** An event of a row. */
export type LoggedChange = {
  readonly position: string
  readonly action: 'create' | 'update' | 'delete'
  /** The fields that an update changed. */
  readonly fields: readonly string[]
  /** Those that it changed besides, and whose columns were dropped after it, whatever has their names today. */
  readonly dropped?: readonly string[]
  /** Its images are gone. */
  readonly isErased: boolean
  /** It is one of those to be undone. */
  readonly isUndone: boolean
  /** An undo has written it. */
  readonly isByUndo: boolean
}

/**
 * How a row comes back to what it would be without the undone changes. Values are named by the event before which the row
 * had them: `image` for all fields but those in `fields`.
 */
export type Reversal = {
  readonly action: 'create' | 'update' | 'delete'
  readonly image: string | undefined
  readonly fields: ReadonlyMap<string, string>
  /** Fields that the undone changes wrote last, and that were dropped since: there is nothing to write their values to. */
  readonly dropped: ReadonlySet<string>
  /** Fields that others have changed since, which must not be overwritten unasked. */
  readonly since: ReadonlySet<string>
  /** Others have deleted the row since, or made it again. */
  readonly isRemade: boolean
  readonly isErased: boolean
  /** What it was decided by. */
  readonly changes: readonly LoggedChange[]
}

/**
 * Walks back from the newest event. For each field the undone changes that no other change follows are taken back, to the value
 * before the first of them; what others had overwritten before needs no undoing. A row is created and deleted as a whole,
 * so these events concern each field. `changes` are all events of the row since the first undone one, the oldest first.
 * Undefined where the row is what it would be.
 */
export function reversalOf(changes: readonly LoggedChange[]): Reversal | undefined {
  const isThere = changes.at(-1)?.action !== 'delete'
  const walk: Walk = {
    wasThere: isThere,
    image: undefined,
    fields: new Map(),
    dropped: new Set(),
    since: new Set(),
    closed: new Set(),
    closedDropped: new Set(),
    isWhole: false,
    isRemade: false,
  }
  for (const change of changes.toReversed()) if (step(walk, change) === 'end') break
  const { wasThere, image, fields, dropped, since, isRemade } = walk
  const isErased = changes.some((change) => change.isErased)
  const reversal = { image, fields, dropped, since, isRemade, isErased, changes }
  if (!isThere && !wasThere) return undefined
  if (isThere && !wasThere) return { ...reversal, action: 'delete' }
  if (!isThere) return { ...reversal, action: 'create' }
  if (image === undefined && fields.size === 0 && dropped.size === 0 && !isErased) return undefined
  return { ...reversal, action: 'update' }
}

/** The changes of others that concern a field, since the last undone one that does; the oldest first. */
export function laterOf(changes: readonly LoggedChange[], field: string): readonly LoggedChange[] {
  const concerning = changes.filter(({ action, fields }) => action !== 'update' || fields.includes(field))
  return concerning.slice(concerning.findLastIndex(({ isUndone }) => isUndone) + 1)
}

/**
 * Whether a field has the value that the undone changes left because every later one was undone. An undo takes back to where
 * the value that it writes was before; a value that somebody wrote again is theirs. Values are compared as they are.
 */
export function isPutBack(
  left: unknown,
  later: readonly { readonly value: unknown; readonly isByUndo: boolean }[],
): boolean {
  const standing = [left]
  for (const { value, isByUndo } of later) {
    const at = isByUndo ? standing.lastIndexOf(value) : -1
    if (at < 0) standing.push(value)
    else standing.length = at + 1
  }
  return standing.length === 1
}

type Walk = {
  wasThere: boolean
  image: string | undefined
  readonly fields: Map<string, string>
  readonly dropped: Set<string>
  readonly since: Set<string>
  /** Fields whose value before the undone changes is another request's. */
  readonly closed: Set<string>
  /** The same of dropped ones. */
  readonly closedDropped: Set<string>
  /** An undone change of the row as a whole has been met. */
  isWhole: boolean
  isRemade: boolean
}

function step(walk: Walk, { action, position, fields, dropped = [], isUndone }: LoggedChange): 'end' | undefined {
  if (isUndone) {
    if (action === 'update') {
      takeBack(walk, fields, position)
      for (const field of dropped) if (!walk.closedDropped.has(field)) walk.dropped.add(field)
    } else {
      walk.isWhole = true
      walk.wasThere = action === 'delete'
      walk.image = action === 'delete' ? position : undefined
      walk.fields.clear()
      walk.dropped.clear()
      walk.closed.clear()
      walk.closedDropped.clear()
    }
    return undefined
  }
  if (action !== 'update') {
    // Later, another request made or deleted the row, which has overwritten the earlier changes.
    if (walk.isWhole || walk.fields.size > 0 || walk.dropped.size > 0) return 'end'
    walk.isRemade = true
    walk.wasThere = action === 'delete'
    return undefined
  }
  for (const field of fields)
    if (walk.isWhole || walk.fields.has(field)) walk.closed.add(field)
    else walk.since.add(field)
  for (const field of dropped) if (walk.isWhole || walk.dropped.has(field)) walk.closedDropped.add(field)
  return undefined
}

function takeBack({ fields: taken, closed }: Walk, fields: readonly string[], position: string): void {
  for (const field of fields) if (!closed.has(field)) taken.set(field, position)
}
