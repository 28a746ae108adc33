import { enableCompileCache, registerHooks } from 'node:module'
import { join } from 'node:path'
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Where Node.js keeps what it makes of our files and those of the packages, for the next start. */
export const compiledDirectory = join(import.meta.dirname, '../../.cache/compiled')

/**
 * To be called by the file that a process is started with, before it imports the program: hence the two files of a
 * process. Starts from the code that an earlier process has compiled; if the directory can't be written, nothing is
 * kept. Naming it in NODE_COMPILE_CACHE also spares the process the compiler of types, which takes 20 MB for that first
 * file.
 *
 * Most of what a start allocates stays, so V8 would double its young generation up to 32 MB, which a process that waits
 * for work never needs. Until `growWithWork` it stays as small as it begins.
 *
 * V8 refuses code that was compiled under other flags, and the process then compiles it again and keeps that instead. So
 * every process of the program loads it under these flags, however short its work is.
 */
export function startSmall(): void {
  // Before the cache: Node.js keeps the code of each set of flags apart, unless NODE_COMPILE_CACHE has opened the cache already.
  setFlagsFromString('--semi-space-growth-factor=1')
  enableCompileCache(compiledDirectory)
  if (!isPreloaded()) registerHooks({ resolve: resolveByPath })
}

/** Whether something was loaded before the program, such as an agent that traces it: it may want to see each file that is looked for. */
function isPreloaded(): boolean {
  const given = [...process.execArgv, ...(process.env.NODE_OPTIONS?.split(/\s+/) ?? [])]
  return given.some((text) => /^(?:-r|--require|--import|--(?:experimental-)?loader)(?:=|$)/.test(text))
}

type Resolve = NonNullable<Parameters<typeof registerHooks>[0]['resolve']>

const own = new URL('../', import.meta.url).href
const isOfProgramOrPackage = (file: string): boolean => file.startsWith(own) || file.includes('/node_modules/')

/**
 * An import by a relative path names its file. Node.js asks the system about it for each of the thousands of imports, which is an
 * eighth of a start. Files of users are looked for by Node.js, so that one that is missing is named as they know it.
 */
const resolveByPath: Resolve = (specifier, context, next) => {
  const { parentURL, conditions } = context
  if (!specifier.startsWith('.') || parentURL === undefined || !conditions.includes('import'))
    return next(specifier, context)
  const { href } = new URL(specifier, parentURL)
  const isFile = isOfProgramOrPackage(parentURL) && /\.[cm]?[jt]s$/.test(href)
  return isFile ? { url: href, shortCircuit: true } : next(specifier, context)
}

let staysSmall = false

/** Buffers that wait to be collected. Bytes. */
const mostBuffers = 8 * 1024 * 1024
const lookEveryMs = 20

/**
 * For a process that streams much and ends: it has started small and stays so. V8 collects by what it has allocated itself, so pieces of
 * a stream, which lie beside its heap, pile up to 70 MB before it looks at them. A young collection takes less than a
 * millisecond there, and rids the process of them.
 */
export function startStreaming(): void {
  staysSmall = true
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as (options: { readonly type: 'minor' }) => void
  // The function is there; the flags are again those that the program is compiled under.
  setFlagsFromString('--no-expose-gc')
  const looking = setInterval(() => {
    if (process.memoryUsage().arrayBuffers > mostBuffers) collect({ type: 'minor' })
  }, lookEveryMs)
  looking.unref()
}

/**
 * The process is ready: its memory may follow its work. The old generation is collected when it is 2.2 times as large as what
 * was alive. By default it may be four times as large, and under a flood of requests, which live for some hundred
 * milliseconds, it was: 410 MB instead of 340. Not for one that streams.
 *
 * V8 may make objects old from the start where most of those from the same place have outlived its collections. What a request has
 * made outlives them while it waits for the database; as old it would then keep all alive that it points at, until the old
 * generation is collected: twice as much of a request of 1,000 rows.
 */
export function growWithWork(): void {
  if (staysSmall) return
  setFlagsFromString('--heap-growing-percent=120')
  setFlagsFromString('--no-allocation-site-pretenuring')
  growYoung()
}

/** Bytes. */
const mostYoung = 64 * 1024 * 1024

/**
 * The young generation grows as V8 has it by default, but to half of what V8 would allow. What survives fills it, so 10,000
 * connections that were opened in a row took all of it, and kept it: 50 MB, which made requests no quicker. After a
 * collection of everything it begins small again.
 */
function growYoung(): void {
  let factor = 1
  const setFactor = () => {
    const next = youngSize() < mostYoung ? 2 : 1
    if (next !== factor) setFlagsFromString(`--semi-space-growth-factor=${next}`)
    factor = next
  }
  setFactor()
  new PerformanceObserver(setFactor).observe({ entryTypes: ['gc'] })
}

const youngSize = (): number =>
  getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')!.space_size

/** Longer than any drain. Without a parent, no other process would end one that hangs. */
const drainLimitMs = 60_000

/**
 * Makes a process that the launcher started end when the launcher is gone, by the way that SIGTERM takes: the channel
 * between the two closes however the launcher died. Without a launcher, as under a process manager, it does nothing.
 */
export function exitWithParent(): void {
  // Undefined when there never was a channel, false when it has closed already.
  if (process.connected === undefined) return
  if (!process.connected) end()
  process.once('disconnect', end)
  // The channel alone must not keep a process alive that has finished.
  process.channel?.unref()
}

function end(): void {
  process.kill(process.pid, 'SIGTERM')
  setTimeout(() => process.exit(1), drainLimitMs).unref()
}
