import type { ItemReads, ItemWrites } from '../items/items.ts'

/** The capabilities that reads of this folder need: those of reading items. */
export type HistoryReads = ItemReads

/** The capabilities that changes of this folder need: those of changing items. */
export type HistoryWrites = ItemWrites
