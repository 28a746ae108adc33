import type { GridPlace } from '../../ui/grid.tsx'

/** Where a list was left, and how many rows it had: it is as long again before it is read. */
export type ListPlace = GridPlace & { readonly count: number }

const storageKey = 'daybook-console:places'
const mostKept = 50

/** The last one is the newest. A reload keeps them. */
const places = new Map<string, ListPlace>(
  JSON.parse(sessionStorage.getItem(storageKey) ?? '[]') as readonly [string, ListPlace][],
)

window.addEventListener('pagehide', () =>
  sessionStorage.setItem(storageKey, JSON.stringify([...places].slice(-mostKept))),
)

/** The list in the entry of the history that is shown. Another filter or order makes another entry. */
function entryOf(collection: string): string {
  const { __TSR_key: entry } = Object(window.history.state) as { readonly __TSR_key?: string }
  return `${collection} ${String(entry)}`
}

export const keptPlace = (collection: string): ListPlace | undefined => places.get(entryOf(collection))

export function keepPlace(collection: string, place: ListPlace): void {
  const entry = entryOf(collection)
  places.delete(entry)
  places.set(entry, place)
}
