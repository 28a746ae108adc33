import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import { type Exit, processesWith, startProcess, survivors, type TestProcess, waitFor } from '../support/processes.ts'

/** Commands on the embedded database, one of which would end the server that another one uses. */

let home: string
let dataDir: string

const daybook = (...args: string[]): TestProcess =>
  startProcess(
    'src/cli/main.ts',
    args,
    { DAYBOOK_DATA_DIR: dataDir, PORT: '0', NODE_ENV: 'development' },
    { cwd: home },
  )

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'daybook-commands-'))
  dataDir = join(home, 'data')
  expect(await daybook('setup').exited).toEqual(succeeded)
})

// A server that runs on, or a claim that is left, would be there.
afterEach(async () => {
  await waitFor(() => survivors().length === 0 && processesWith(dataDir).length === 0)
})

afterAll(async () => {
  for (const pid of survivors()) process.kill(pid, 'SIGKILL')
  await rm(home, { recursive: true })
})

const succeeded: Exit = { code: 0, signal: null }

/** A command that uses the database until it is told to end. */
async function longCommand(): Promise<TestProcess> {
  const command = daybook('log', 'tail', '--follow')
  await command.waitForLine(({ text }) => /\bcreate\b/.test(text))
  return command
}

const isWaitingFor =
  (other: TestProcess) =>
  ({ text }: { readonly text: string }) =>
    text.includes(`waiting for process ${other.pid}: a command that runs the database`)

it('run one after the other, and none ends the server of another', async () => {
  const first = await longCommand()
  const others = [daybook('backup', join(home, 'one.daybook')), daybook('log', 'verify')]
  for (const other of others) await other.waitForLine(isWaitingFor(first))
  expect(await first.kill('SIGINT')).toEqual(succeeded)
  for (const other of others) expect(await other.exited).toEqual(succeeded)
  expect((await readdir(dataDir)).filter((name) => name.startsWith('launcher.pid'))).toEqual([])
})

it('take the place of one that was killed, and leave no trace where they are killed as they wait', async () => {
  const first = await longCommand()
  const [waiting, killed] = [daybook('log', 'verify'), daybook('log', 'verify')]
  for (const other of [waiting, killed]) await other.waitForLine(isWaitingFor(first))
  await killed.kill('SIGKILL')
  expect((await readdir(dataDir)).filter((name) => name.includes(`.${killed.pid}.`))).toEqual([])
  await first.kill('SIGKILL')
  expect(await waiting.exited).toEqual(succeeded)
})

it('are waited for by a start, whose server commands then share', async () => {
  const first = await longCommand()
  const [stopped, start] = [daybook('start'), daybook('start')]
  for (const other of [stopped, start]) await other.waitForLine(isWaitingFor(first))
  expect(await stopped.kill('SIGINT')).toEqual(succeeded)
  expect(await first.kill('SIGINT')).toEqual(succeeded)
  await start.waitForLine(({ text }) => text.includes('Ctrl-C stops everything'))
  const sharing = await longCommand()
  expect(await daybook('log', 'verify').exited).toEqual(succeeded)
  expect(await sharing.kill('SIGINT')).toEqual(succeeded)
  expect(await start.kill('SIGINT')).toEqual(succeeded)
})
