import { execFile } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { link, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { platform } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { EmbeddedError, type Notes } from './host.ts'

/**
 * Makes this process the only one that runs a server on `dataDir` and returns how to give it up. A claim left by a
 * killed process does not count: it names the process id together with that process's start time, since ids are
 * used again (in a restarted container nearly always).
 *
 * If several processes find such a claim at the same moment, one of them gets it. None of them removes the claim, because
 * by then it may be another process's. A file that is named after the old claim, and that can be made only once, decides
 * which process is next. That process replaces the old claim with its own. If it dies before that, the next one follows in
 * the same way.
 *
 * @throws EmbeddedError when a running process holds it
 */
export async function claimDirectory(dataDir: string): Promise<() => Promise<void>> {
  const file = join(dataDir, claimName)
  const own = join(dataDir, `${claimName}.${process.pid}.${randomBytes(4).toString('hex')}`)
  await writeFile(own, `${process.pid} ${await startTime(process.pid)}\n`, { flag: 'wx' })
  try {
    while (!((await linked(own, file)) || (await succeeded(own, file, dataDir))));
  } finally {
    await rm(own, { force: true })
  }
  return () => rm(file, { force: true })
}

/** Whether a running process has claimed the directory, so that its server runs or is about to. */
export async function isClaimed(dataDir: string): Promise<boolean> {
  const claim = await contentOf(join(dataDir, claimName))
  return claim !== undefined && (await holderOf(claim)) !== undefined
}

const claimName = 'launcher.pid'
const successorPrefix = `${claimName}.after-`

/** Takes the place of dead holders; false when the claim has changed meanwhile. */
async function succeeded(own: string, file: string, dataDir: string): Promise<boolean> {
  const first = await contentOf(file)
  if (first === undefined) return false
  let last = first
  let place: string
  for (;;) {
    await refuseIfHeld(last, dataDir)
    place = join(dataDir, `${successorPrefix}${createHash('sha256').update(last).digest('hex').slice(0, 32)}`)
    const next = await contentOf(place)
    if (next === undefined) break
    last = next
  }
  if (!(await linked(own, place))) return false
  // The place may have been free because another one has been there, and is done.
  if ((await contentOf(file)) !== first) {
    await rm(place, { force: true })
    return false
  }
  await rename(own, file)
  // From here on no process can come after the dead ones.
  const left = (await readdir(dataDir)).filter((name) => name.startsWith(successorPrefix))
  await Promise.all(left.map((name) => rm(join(dataDir, name), { force: true })))
  return true
}

/** Gives a complete file a second name; false when that is taken. */
async function linked(from: string, to: string): Promise<boolean> {
  try {
    await link(from, to)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    return false
  }
}

function contentOf(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(absent)
}

async function refuseIfHeld(claim: string, dataDir: string): Promise<void> {
  const pid = await holderOf(claim)
  if (pid === undefined) return
  throw new EmbeddedError(
    `the database in ${dataDir} is in use by process ${pid}: stop that one first, or set DATABASE_URL to another server`,
  )
}

/** The process that made a claim, if it still runs. */
async function holderOf(claim: string): Promise<string | undefined> {
  const [pid = '', since = ''] = splitOnce(claim.trim(), ' ')
  return since !== '' && (await startTime(Number(pid))) === since ? pid : undefined
}

/**
 * Stops the server that a killed process left on this cluster, if there is one, so that there are never two. It looks
 * for a live process whose command line names the cluster: `postmaster.pid` may outlive its server, and its process id
 * may belong to another process by now.
 */
export async function stopLeftOver(clusterDir: string, log: Notes): Promise<void> {
  const file = join(clusterDir, 'postmaster.pid')
  const pid = Number((await readFile(file, 'utf8').catch(absent))?.split('\n')[0])
  const command = Number.isInteger(pid) ? await commandLine(pid) : undefined
  if (command === undefined) return
  if (command.includes(clusterDir)) {
    log.warn(`stopping the PostgreSQL server that an earlier start left behind (process ${pid})`)
    process.kill(pid, 'SIGINT')
    await ended(pid, clusterDir)
  } else if (!command.includes('postgres')) {
    // PostgreSQL would take this stranger for itself and refuse to start. Of another server it shall decide.
    await rm(file)
  }
}

const leftOverLimitMs = 30_000

async function ended(pid: number, clusterDir: string): Promise<void> {
  const limit = Date.now() + leftOverLimitMs
  while ((await commandLine(pid))?.includes(clusterDir)) {
    if (Date.now() > limit) throw new EmbeddedError(`the left-over PostgreSQL server, process ${pid}, does not stop`)
    await delay(25)
  }
}

/** A word that tells two processes with the same id apart; empty when there is none or it is a zombie. */
async function startTime(pid: number): Promise<string> {
  if (platform() !== 'linux') return ps('lstart=', pid)
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(absent)
  // The command's name may hold blanks and brackets; after it come the state and, 20th, the start time (proc(5)).
  const words = status?.slice(status.lastIndexOf(')') + 2).split(' ') ?? []
  return words[0] === 'Z' ? '' : (words[19] ?? '')
}

/** The command line of a running process; undefined when there is none. */
async function commandLine(pid: number): Promise<string | undefined> {
  if (platform() !== 'linux') return (await ps('command=', pid)) || undefined
  const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(absent)
  return line?.replaceAll('\0', ' ') || undefined
}

async function ps(column: string, pid: number): Promise<string> {
  try {
    return (await promisify(execFile)('ps', ['-ww', '-o', column, '-p', String(pid)])).stdout.trim()
  } catch (error) {
    // `ps` exits with 1 when no process has this id
    if ((error as { code?: unknown }).code === 1) return ''
    throw error
  }
}

function splitOnce(text: string, separator: string): string[] {
  const at = text.indexOf(separator)
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)]
}

/** ESRCH: a file below /proc whose process ends while it is read. */
function absent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ESRCH') throw error
}
