import { spawnSync } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { parseArgs } from 'node:util'

/*
 * `npm run faults [-- --seeds 20 --only F-10,F-31 --seed 7 --writes 100000 …]`: strikes real processes while they work and
 * checks what they promise (docs/faults.md). Prints every seed; `--seed` repeats one. Exit code 0 only if all held.
 */

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    seed: { type: 'string' },
    writes: { type: 'string', default: '100000' },
    tasks: { type: 'string', default: '4000' },
    rows: { type: 'string', default: '1000000' },
    rounds: { type: 'string' },
    sockets: { type: 'string', default: '2000' },
  },
})
const count = wholeNumber('seeds', values.seeds)
const seeds =
  values.seed === undefined
    ? Array.from({ length: count }, () => randomInt(2 ** 32))
    : [wholeNumber('seed', values.seed)]
const env = {
  ...process.env,
  FAULTS_SEEDS: seeds.join(),
  FAULTS_ONLY: values.only,
  FAULTS_WRITES: String(wholeNumber('writes', values.writes)),
  FAULTS_TASKS: String(wholeNumber('tasks', values.tasks)),
  FAULTS_ROWS: String(wholeNumber('rows', values.rows)),
  FAULTS_SOCKETS: String(wholeNumber('sockets', values.sockets)),
  FAULTS_ROUNDS: values.rounds === undefined ? '' : String(wholeNumber('rounds', values.rounds)),
}
const vitest = 'node_modules/vitest/vitest.mjs'
const { status } = spawnSync(
  process.execPath,
  [vitest, 'run', '--config', 'test/faults/vitest.config.ts', '--root', '.'],
  {
    env,
    stdio: 'inherit',
  },
)
process.exitCode = status ?? 1

function wholeNumber(name: string, text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text)
  console.error(`--${name} must be a whole number, not ${text}`)
  process.exit(1)
}
