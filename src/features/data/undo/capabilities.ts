import type { ItemReads, ItemWrites } from '../items/items.ts'

/** What this folder takes of the process where it reads: what reading items takes. */
export type UndoReads = ItemReads

/** What this folder takes of the process where it changes: what changing items takes. */
export type UndoWrites = ItemWrites
