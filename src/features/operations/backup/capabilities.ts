import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import type { StorageServices } from '../../files/storage/storage.ts'

/** What a backup or a restore takes of a process: it opens connections of its own, so it needs no database that is set up. */
export type BackupHost = Configuration & Logs & StorageServices
