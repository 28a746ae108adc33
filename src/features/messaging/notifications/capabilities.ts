import type { ItemReads, ItemWrites } from '../../data/items/items.ts'

/** What this folder takes of the process where it reads: what reading items takes. */
export type NotificationReads = ItemReads

/** What this folder takes of the process where it changes: what changing items takes. */
export type NotificationWrites = ItemWrites
