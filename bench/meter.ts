import { readdirSync, readFileSync } from 'node:fs'

/** Seconds of processor time that a process has used; undefined where the system does not tell (Linux only). */
type Meter = () => number | undefined

const ticksPerSecond = 100

/** `with its children`: of a PostgreSQL server, whose sessions are processes of their own, those that have ended included. */
export function meterOf(pid: number | undefined, whole?: 'with its children'): Meter {
  if (pid === undefined || process.platform !== 'linux') return () => undefined
  if (whole === undefined) return () => usedBy(pid)?.own
  return () => {
    const parent = usedBy(pid)
    if (parent === undefined) return undefined
    const children = processes().flatMap((child) => usedBy(child) ?? [])
    return children
      .filter((child) => child.parent === pid)
      .reduce((sum, { own }) => sum + own, parent.own + parent.ended)
  }
}

/** Resident memory in bytes. */
export const residentBytes = (pid: number): number | undefined => statusOf(pid, 'VmRSS')

/** The most that it has been. */
export const peakBytes = (pid: number): number | undefined => statusOf(pid, 'VmHWM')

function statusOf(pid: number, name: string): number | undefined {
  const kilobytes = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(`/proc/${pid}/status`))?.[1]
  return kilobytes === undefined ? undefined : Number(kilobytes) * 1024
}

type Used = { readonly parent: number; readonly own: number; readonly ended: number }

function usedBy(pid: number): Used | undefined {
  // The second field is the program's name in brackets, which may hold anything.
  const fields = read(`/proc/${pid}/stat`)
    .replace(/^.*\) /s, '')
    .split(' ')
    .map(Number)
  if (fields.length < 16) return undefined
  const [user, system, endedUser, endedSystem] = fields.slice(11, 15) as [number, number, number, number]
  return {
    parent: fields[1]!,
    own: (user + system) / ticksPerSecond,
    ended: (endedUser + endedSystem) / ticksPerSecond,
  }
}

const processes = (): number[] =>
  readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)

/** Empty when the process has ended. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    if (!['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    return ''
  }
}
