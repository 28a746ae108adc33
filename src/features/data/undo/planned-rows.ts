import type { Collection, Field } from '../../../catalog/catalog.ts'
import type { Reader } from '../../../db/sql.ts'
import { oncePer } from '../../../language/once.ts'
import type { Restoration } from '../items/items.ts'
import type { Move } from './order.ts'
import {
  columnsMadeBySql,
  type PastColumns,
  type PastReference,
  type RowBefore,
  referencesDangling,
  rowsBefore,
} from './queries.ts'
import type { Reversal } from './reversal.ts'

/** The rows of a plan: what comes back of each, what speaks against it, and where its values of then are read. */

export type PlannedRow = {
  readonly collection: Collection
  readonly id: string
  /** `none`: there is nothing that could be done, or without reasons (see `isSettled`) nothing left to do. */
  readonly action: 'create' | 'update' | 'delete' | 'none'
  /** The event before which all values were so; only of a row to be created. */
  readonly image: string | undefined
  /** Columns to be set to what they were before these events, by name. */
  readonly fields: ReadonlyMap<string, string>
  readonly reasons: readonly Reason[]
  /** The newest event of it that is undone; none where rows come back from a backup. */
  readonly newest?: string | undefined
  /** The restoration of parts outside of the database that the row names. */
  readonly restoring?: Restoration | undefined
  readonly move: Move
  /** Columns that come back to a row that is gone, as it was before already. */
  readonly dangling?: ReadonlySet<string> | undefined
}

/** A row before it is known what it takes from others and leaves to them. */
export type RowDraft = Omit<PlannedRow, 'move'>

/** A conflict with later changes, and whether it can be forced. */
export type Reason =
  /** Others have written these fields since, or made the row again with other values. */
  | { readonly reason: 'changed'; readonly fields: readonly string[] }
  /** Others have deleted it since. */
  | { readonly reason: 'deleted' }
  /** The log does not hold these fields: they are hidden, or no longer there. */
  | { readonly reason: 'lost'; readonly fields: readonly string[]; readonly required?: true }
  /** The log's images of it were erased. */
  | { readonly reason: 'erased' }
  /** Rows that are not undone refer to it. */
  | { readonly reason: 'referenced'; readonly by: readonly { readonly collection: string; readonly rows: number }[] }
  /** The row that these fields referred to is gone. */
  | { readonly reason: 'reference gone'; readonly fields: readonly string[]; readonly required: boolean }
  /** A row in the trash, or one that is only marked, has the unique values of these fields. */
  | { readonly reason: 'taken'; readonly fields: readonly string[]; readonly required: true }

/** Columns that follow the writer of now, or other columns of the row: no undo has to set them. */
export function isFollowing({ fields, timestamps, usertrack }: Collection, name: string): boolean {
  const { generated, sameAs } = fields.get(name) ?? {}
  const isWriters = (timestamps && name === 'updatedAt') || (usertrack && name === 'userUpdated_Id')
  return isWriters || generated !== undefined || sameAs !== undefined
}

/** Columns that the server has set, and that come back as they were. */
export const isServers = ({ timestamps, usertrack }: Collection, name: string): boolean =>
  (timestamps && name === 'createdAt') || (usertrack && name === 'userCreated_Id')

/** Columns that the log holds and a write can set. */
export const storedFields = oncePer((collection: Collection): readonly Field[] =>
  [...collection.fields.values()].filter(({ name, hidden }) => !hidden && !isFollowing(collection, name)),
)

/** Rows as they were, by their places: the log's images before its events, or rows that were taken out of a backup. */
export type PastRows = {
  /** Columns that it holds and a write can set. */
  readonly fields: (collection: Collection) => readonly Field[]
  /** Those that are in the table but not in the definition: only a row that was gone gets them back. */
  readonly madeBySql: (db: Reader, collection: Collection) => Promise<readonly Field[]>
  readonly holdsHidden: (collection: Collection) => boolean
  /** Whether content that rows of then name, and that is gone, comes back with them. */
  readonly hasContent: (version: Readonly<Record<string, unknown>>) => boolean
  readonly at: (
    db: Reader,
    collection: Collection,
    columns: PastColumns,
    places: readonly string[],
  ) => Promise<ReadonlyMap<string, RowBefore>>
  /** Which of these references to rows that are gone led nowhere at their places already. */
  readonly dangling: (
    db: Reader,
    collection: Collection,
    references: readonly PastReference[],
  ) => Promise<readonly PastReference[]>
}

/** The log: places are positions of events, none of them written before `first`. */
export const pastOfLog = (first: string): PastRows => ({
  fields: storedFields,
  madeBySql: columnsMadeBySql,
  holdsHidden: () => false,
  hasContent: () => false,
  at: (db, collection, columns, places) => rowsBefore(db, collection, columns, places, first),
  dangling: referencesDangling,
})

/** Columns that a write can set, those too that the log does not hold. */
export const settableFields = oncePer((collection: Collection): readonly Field[] => {
  const stored = new Set(storedFields(collection))
  return [...collection.fields.values()].filter(
    (field) => stored.has(field) || (field.hidden && field.generated === undefined && field.sameAs === undefined),
  )
})

/** The events before which the row had the values that come back. */
export const positionsOf = ({ image, fields }: Pick<Reversal, 'image' | 'fields'>): readonly string[] => [
  ...new Set([...fields.values(), ...(image === undefined ? [] : [image])]),
]

/** Whether a row goes by its undo, or is marked; or would be marked but is so already, which others may still depend on. */
export const isDeletion = (row: RowDraft): boolean => row.action === 'delete' || isSettled(row)

/** Whether a row is what its undo would make of it. */
export const isSettled = ({ action, reasons }: RowDraft): boolean => action === 'none' && reasons.length === 0
