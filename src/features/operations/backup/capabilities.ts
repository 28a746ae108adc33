import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import type { StorageServices } from '../../files/storage/storage.ts'

/**
 * The capabilities for a backup or a restore: they open connections of their own, so the database need not be set up.
 */
export type BackupHost = Configuration & Logs & StorageServices
