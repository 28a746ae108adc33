/* The public face of this folder. */

export { resumeEffects } from '../../../db/unlogged/holds.ts'
export type { BackupHost } from './capabilities.ts'
export type { BackupHeader, Keys } from './header.ts'
export { type PartReport, type RestoredFrom, restoreCollection, restoreTenant } from './part.ts'
export { type RestoreOptions, type RestoreProgress, type RestoreResult, restoreBackup } from './restore.ts'
export { backUpBeforeUpgrade, makeScheduledBackup, watchBackups } from './scheduled.ts'
export { exportTenant, type TenantExport } from './tenant-export.ts'
export { type BackupOptions, type BackupResult, verify, writeBackup } from './write.ts'
