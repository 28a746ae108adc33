/**
 * `npm run check`: format, lint, types, import rules, generated files. As many checks run at a time as there are processors,
 * the longest first; what the failed ones print is shown at the end, and the exit code is 1.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import pLimit from 'p-limit'

const root = join(import.meta.dirname, '..')
const tsc = ['node_modules/typescript/bin/tsc', '--noEmit']

const checks: readonly (readonly string[])[] = [
  [...tsc, '-p', '.'],
  [...tsc, '-p', 'clients'],
  [...tsc, '-p', 'console'],
  ['node_modules/@biomejs/biome/bin/biome', 'check', '.'],
  ['scripts/check-imports.ts'],
  ['scripts/gen.ts', '--check'],
]

/** The output of a failed check; undefined when it passed. */
async function complaintOf(args: readonly string[]): Promise<string | undefined> {
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] })
  const [out, err, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  return code === 0 ? undefined : `${args.join(' ')} failed:\n${out}${err}`
}

const inTurn = pLimit(availableParallelism())
const complaints = (await Promise.all(checks.map((args) => inTurn(() => complaintOf(args))))).filter(
  (complaint) => complaint !== undefined,
)
process.stdout.write(complaints.length === 0 ? `${checks.length} checks passed\n` : `${complaints.join('\n')}\n`)
process.exitCode = complaints.length === 0 ? 0 : 1
