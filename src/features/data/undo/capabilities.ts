import type { ItemReads, ItemWrites } from '../items/items.ts'

/** The capabilities that this folder takes to read: those of reading items. */
export type UndoReads = ItemReads

/** The capabilities that this folder takes to change: those of changing items. */
export type UndoWrites = ItemWrites
