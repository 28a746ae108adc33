import { enableCompileCache } from 'node:module'
import { join } from 'node:path'

/**
 * Keeps what Node.js makes of our files and those of the packages in `.cache` of the checkout, for the next start. To be
 * called before they are imported, hence the two files of a process. Where the directory can't be written nothing is kept.
 */
export function keepCompiled(): void {
  enableCompileCache(join(import.meta.dirname, '../.cache/compiled'))
}
