import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { freePort, probePort } from '../db/embedded/free-port.ts'

/** A fault of the surroundings, told in one sentence that names the variable; no stack is shown for it. */
export class StartError extends Error {
  override readonly name = 'StartError'
}

/**
 * The port of PORT, or a free one for 0. Better to know now than after the database has been made.
 *
 * @throws StartError when it is taken or can't be had
 */
export async function usablePort({ host, port }: Config['server']): Promise<number> {
  try {
    if (port === 0) return await freePort(host)
    await probePort(port, host)
    return port
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    throw new StartError(problems[code]?.(port, host) ?? `HOST, PORT: ${message}`)
  }
}

const problems: Record<string, (port: number, host: string) => string> = {
  EADDRINUSE: (port, host) =>
    `PORT: ${port} on ${host} is taken by another process. Stop that one or set PORT to another number.`,
  EACCES: (port) => `PORT: this user may not listen on ${port}. Set PORT to a number above 1023.`,
  EADDRNOTAVAIL: (_port, host) => `HOST: ${host} is no address of this machine.`,
  ENOTFOUND: (_port, host) => `HOST: the name ${host} is not known.`,
}

/** SECRET_KEY, or outside production a key that is made once and kept, so that sessions survive a restart. */
export async function secretKey({ auth, database }: Config): Promise<string> {
  if (auth.secretKey !== '') return auth.secretKey
  const file = join(database.dataDir, 'secret-key')
  await mkdir(database.dataDir, { recursive: true })
  try {
    await writeFile(file, `${randomBytes(48).toString('base64url')}\n`, { flag: 'wx', mode: 0o600 })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return (await readFile(file, 'utf8')).trim()
}

const lookMs = 500

/**
 * Calls `onGone` once when the npm that runs this process is gone: a signal to npm ends npm and its shell, and nobody
 * passes it on. Without npm a parent may end and leave its child running, as a shell does after `nohup … &`, so then
 * nothing is watched. Returns how to stop.
 */
export function watchNpm(env: NodeJS.ProcessEnv, onGone: () => void): () => void {
  if (env.npm_lifecycle_event === undefined) return () => undefined
  const before = keepers()
  const timer = setInterval(() => {
    if (keepers() === before) return
    clearInterval(timer)
    onGone()
  }, lookMs).unref()
  return () => clearInterval(timer)
}

/** Our parent, and where that is the shell which npm puts between, also its parent: npm. It changes when one has gone. */
function keepers(): string {
  const parent = process.ppid
  return isShell(parent) ? `${parent} ${parentOf(parent)}` : String(parent)
}

/** Unknown where there is no /proc; there npm alone can go unnoticed, not its shell. */
function isShell(pid: number): boolean {
  return /^\S*sh\0-c\0/.test(read(`/proc/${pid}/cmdline`))
}

/** The second word after the command's name, which may hold blanks and brackets (proc(5)). */
function parentOf(pid: number): string | undefined {
  const status = read(`/proc/${pid}/stat`)
  return status.slice(status.lastIndexOf(')') + 2).split(' ')[1]
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if (!['ENOENT', 'ESRCH', 'EACCES'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    return ''
  }
}
