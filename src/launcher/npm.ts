import { readFileSync } from 'node:fs'

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
