import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { root } from '../support/processes.ts'

const contenders = 5
const rounds = 40
const dead = '1 this process has never begun\n'

function after(claim: string): string {
  return `launcher.pid.after-${createHash('sha256').update(claim).digest('hex').slice(0, 32)}`
}

let home: string
let all: ReturnType<typeof contender>[]

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'daybook-claim-'))
  all = Array.from({ length: contenders }, contender)
  // Each of them is ready to go before the first round.
  await Promise.all(all.map(async (one) => one.claim(await roundOf({}), 0)))
})

afterAll(async () => {
  for (const one of all) await one.end()
  await rm(home, { recursive: true })
})

function contender() {
  const child = spawn(process.execPath, [join(root, 'test/support/claiming.ts')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  return {
    pid: child.pid!,
    claim: async (directory: string, at: number): Promise<string> => {
      child.stdin.write(`${directory} ${at}\n`)
      return String((await answers.next()).value)
    },
    end: async () => {
      child.stdin.end()
      if (child.exitCode === null) await once(child, 'exit')
    },
  }
}

/** What each round begins with, and what is there when it is over. */
it.each<[string, Readonly<Record<string, string>>]>([
  ['nothing', {}],
  ['the claim of a dead process', { 'launcher.pid': dead }],
  ['an empty claim', { 'launcher.pid': '' }],
  [
    'the claim of a dead process after which another one came and died',
    { 'launcher.pid': dead, [after(dead)]: '2 nor this\n' },
  ],
])('of processes that start at the same moment over %s one gets the directory', async (_what, files) => {
  for (let round = 0; round < rounds; round += 1) {
    const directory = await roundOf(files)
    const at = Date.now() + 5
    const outcomes = await Promise.all(all.map((one) => one.claim(directory, at)))
    expect(outcomes.toSorted()).toEqual([...Array(contenders - 1).fill('refused'), 'won'])
    const winner = all[outcomes.indexOf('won')]!
    expect(await readdir(directory)).toEqual(['launcher.pid'])
    expect(await readFile(join(directory, 'launcher.pid'), 'utf8')).toMatch(new RegExp(`^${winner.pid} `))
  }
})

async function roundOf(files: Readonly<Record<string, string>>): Promise<string> {
  const directory = await mkdtemp(join(home, 'round-'))
  await mkdir(directory, { recursive: true })
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text)
  return directory
}
