import type { ItemReads, ItemWrites } from '../../data/items/items.ts'
import type { CurrentSettings } from '../../settings/settings.ts'

/** The capabilities that reads of this folder need. */
export type PermissionReads = ItemReads & CurrentSettings

/** The capabilities that changes of this folder need. */
export type PermissionWrites = ItemWrites & CurrentSettings
