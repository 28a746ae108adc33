/**
 * Writes the files that are generated from the program's tables. With `--check` it writes nothing, names the
 * files that differ from what it would write, and exits with 1 if there are any.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { membersDocument } from '../src/catalog/shape.ts'
import { configDocument } from './config-document.ts'
import { floorsTable } from './floors.ts'
import { referencePages } from './reference/pages.ts'

/** Every generated file: its path from the root of the project, and its text. */
export const artefacts: readonly Artefact[] = [
  { path: 'docs/config.md', render: configDocument },
  { path: 'docs/schema-members.md', render: membersDocument },
  { path: 'ARCHITECTURE.md', render: () => withRegion('ARCHITECTURE.md', 'floors', floorsTable()) },
  ...(await referencePages()).map(({ path, text }) => ({ path, render: () => text })),
]

type Artefact = Readonly<{ path: string; render: () => string }>

/** The paths whose file is missing or differs from what would be written. */
export function staleFiles(root: string, all: readonly Artefact[] = artefacts): string[] {
  return all.filter(({ path, render }) => readIfPresent(join(root, path)) !== render()).map(({ path }) => path)
}

export function writeFiles(root: string, all: readonly Artefact[] = artefacts): void {
  for (const { path, render } of all) {
    const file = join(root, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, render())
  }
}

/** A file written by hand, with what stands between the two marks of a region put anew. */
function withRegion(path: string, region: string, text: string): string {
  const whole = readFileSync(join(import.meta.dirname, '..', path), 'utf8')
  const [begin, end] = [`<!-- ${region}: npm run gen -->`, `<!-- /${region} -->`]
  const [from, to] = [whole.indexOf(begin), whole.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`${path} has no region ${region}`)
  return `${whole.slice(0, from + begin.length)}\n\n${text}\n\n${whole.slice(to)}`
}

function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
}

function main(args: readonly string[]): void {
  const root = join(import.meta.dirname, '..')
  const stale = staleFiles(root)
  if (args.includes('--check')) {
    for (const path of stale) process.stderr.write(`${path} is out of date: run npm run gen\n`)
    process.exitCode = stale.length === 0 ? 0 : 1
    return
  }
  writeFiles(root)
  process.stdout.write(stale.length === 0 ? 'nothing to write\n' : `wrote ${stale.join(', ')}\n`)
}

if (import.meta.main) main(process.argv.slice(2))
