import { chmodSync, mkdirSync, readdirSync, rmSync, statfsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

const memory = '/dev/shm'
/** Of the file system in memory, and of the memory itself. */
const enough = 3 * 2 ** 30

/**
 * Has temporary files kept in memory from here on, also by the processes that are started, where there is room: to copy a
 * database, a thousand files, takes a tenth of the processor time there. TMPDIR names another place.
 *
 * They are in a directory of this run, which goes with it. One of a run that was killed goes at the start of the next.
 */
export function keepTemporaryFilesInMemory(): void {
  if (process.env.TMPDIR !== undefined) return
  removeLeftovers(memory)
  if (!hasRoom()) {
    process.env.TMPDIR = tmpdir()
    return
  }
  const own = join(memory, `${prefix}${process.pid}`)
  mkdirSync(own, { recursive: true })
  // PostgreSQL does not run as root, whose files these may be.
  chmodSync(own, 0o755)
  process.env.TMPDIR = own
  process.once('exit', () => rmSync(own, { recursive: true, force: true }))
}

const prefix = 'daybook-run-'

/** Removes the directories of runs whose process is no more. */
export function removeLeftovers(place: string): void {
  if (process.platform !== 'linux') return
  for (const name of readdirSync(place)) {
    const [, pid] = /^daybook-run-(\d+)$/.exec(name) ?? []
    if (pid !== undefined && !isAlive(Number(pid))) rmSync(join(place, name), { recursive: true, force: true })
  }
}

/** Processes of others are alive too. */
function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

function hasRoom(): boolean {
  if (process.platform !== 'linux' || process.availableMemory() < enough) return false
  try {
    const { bavail, bsize } = statfsSync(memory)
    return bavail * bsize >= enough
  } catch {
    return false
  }
}
