import type { ItemReads } from '../items/items.ts'

/** The capabilities that reads of this folder need. */
export type ReportReads = ItemReads
