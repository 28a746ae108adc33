/**
 * Builds the console into `console/dist`, whole or not at all: `node console/build.ts [--if-stale] [--sizes]`. Fails when more is
 * loaded than the limits below allow; `--sizes` says how much that is.
 */
import { readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

const here = import.meta.dirname
const dist = join(here, 'dist')
const sources = ['src', 'index.html', 'vite.config.ts', 'build.ts', '../clients', '../package-lock.json']

/** Gzipped kilobytes: from the first byte to the list of collections, and each further page. */
const limits = { first: 250, further: 80 }

if (!process.argv.includes('--if-stale') || isStale()) await build()

async function build(): Promise<void> {
  // Whatever this process was started for: React has its checks of development otherwise.
  process.env.NODE_ENV = 'production'
  // Loaded here, because a start that finds the console built needs nothing of it.
  const vite = await import('vite')
  const fresh = `${dist}-${process.pid}`
  const old = `${fresh}-old`
  const remove = () => {
    for (const place of [fresh, old]) rmSync(place, { recursive: true, force: true })
  }
  process.on('exit', remove).on('SIGTERM', () => process.exit(1))
  const started = performance.now()
  await vite.build({
    configFile: join(here, 'vite.config.ts'),
    logLevel: 'warn',
    build: { outDir: fresh, emptyOutDir: true },
  })
  checkSizes(fresh)
  // A browser that has the old page may still ask for the old files; it then loads the page anew (src/app/lazy.ts).
  renameUnless('ENOENT', dist, old)
  // Another process may have put its own there meanwhile, which is as good.
  renameUnless('ENOTEMPTY', fresh, dist)
  remove()
  say(`built in ${((performance.now() - started) / 1000).toFixed(1)} s`)
}

function renameUnless(code: string, from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== code) throw error
  }
}

function isStale(): boolean {
  const builtAt = newest(join(dist, 'index.html'))
  return builtAt === 0 || sources.some((source) => newest(join(here, source)) > builtAt)
}

/** When the newest file of a place was written; 0 where there is none. */
function newest(place: string): number {
  const found = statSync(place, { throwIfNoEntry: false })
  if (found === undefined) return 0
  if (!found.isDirectory()) return found.mtimeMs
  return Math.max(0, ...readdirSync(place).map((name) => (name === 'dist' ? 0 : newest(join(place, name)))))
}

type Chunk = {
  readonly file: string
  readonly imports?: readonly string[]
  readonly css?: readonly string[]
  readonly dynamicImports?: readonly string[]
}

/** Holds what the pages load against the limits, by what the build says of its chunks. */
function checkSizes(outDir: string): void {
  const manifestFile = join(outDir, 'manifest.json')
  const manifest: Record<string, Chunk> = JSON.parse(readFileSync(manifestFile, 'utf8'))
  rmSync(manifestFile)
  const closure = (name: string, found = new Set<string>()): Set<string> => {
    const chunk = manifest[name]
    if (chunk === undefined || found.has(chunk.file)) return found
    for (const file of [chunk.file, ...(chunk.css ?? [])]) found.add(file)
    for (const other of chunk.imports ?? []) closure(other, found)
    return found
  }
  const kilobytes = (files: Iterable<string>) =>
    [...files].reduce((sum, file) => sum + gzipSync(readFileSync(join(outDir, file))).length, 0) / 1000
  const first = closure('index.html')
  for (const name of ['src/shell/shell.tsx', 'src/pages/data/collections.tsx']) closure(name, first)
  const problems: string[] = []
  const judge = (what: string, size: number, limit: number) => {
    if (size > limit) problems.push(`${what} takes ${size.toFixed(0)} kB gzipped, more than ${limit}`)
    return `${what} ${size.toFixed(0)}`
  }
  const pages = Object.keys(manifest).filter((name) => name.startsWith('src/') && !first.has(manifest[name]!.file))
  const sizes = [
    judge('first', kilobytes(first), limits.first),
    ...pages.map((name) =>
      judge(
        name.replace(/^src\/(pages\/)?/, ''),
        kilobytes([...closure(name)].filter((file) => !first.has(file))),
        limits.further,
      ),
    ),
  ]
  if (process.argv.includes('--sizes')) say(`kB gzipped: ${sizes.join(', ')}`)
  if (problems.length > 0) throw new Error(problems.join('; '))
}

function say(text: string): void {
  process.stdout.write(`${text}\n`)
}
