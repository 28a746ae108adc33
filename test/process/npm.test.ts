import { readFileSync, realpathSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { compiledDirectory } from '../../src/process/start-up.ts'
import { createDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { processesWith, root, startProcess, survivors, type TestProcess, waitFor } from '../support/processes.ts'

let home: string

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'daybook-npm-'))
})

afterEach(async () => {
  for (const pid of survivors()) process.kill(pid, 'SIGKILL')
  await rm(home, { recursive: true })
})

const npm = () =>
  realpathSync(
    process.env
      .PATH!.split(delimiter)
      .map((dir) => join(dir, 'npm'))
      .find(exists)!,
  )

function exists(file: string): boolean {
  try {
    return realpathSync(file) !== ''
  } catch {
    return false
  }
}

async function variables(): Promise<Record<string, string>> {
  const { url } = await createDatabase()
  const NODE_COMPILE_CACHE = compiledDirectory
  return {
    ...testEnv(url),
    NODE_COMPILE_CACHE,
    NODE_ENV: 'development',
    PORT: '0',
    DAYBOOK_DATA_DIR: home,
    DATABASE_POOL_MAX: '5',
  }
}

const isUp = ({ text }: { text: string }) => text.includes('Ctrl-C stops everything')
const nothingRuns = () => waitFor(() => survivors().length === 0)

describe('npm start', () => {
  it.each<NodeJS.Signals>(['SIGTERM', 'SIGKILL'])('stops everything when npm gets %s', async (signal) => {
    const started = startProcess(npm(), ['start'], await variables())
    await started.waitForLine(isUp)
    expect(survivors().length).toBeGreaterThan(3)
    await Promise.all([started.kill(signal), nothingRuns()])
  })
})

describe('the launcher without npm', () => {
  it('goes on when what has started it ends', async () => {
    const shell = startProcess('test/support/leaving.ts', [join(root, 'src/start.ts')], await variables())
    const { text } = await shell.waitForLine((line) => /^started \d+$/.test(line.text))
    const launcher = Number(text.split(' ')[1])
    await shell.waitForLine(isUp)
    process.kill(shell.pid, 'SIGKILL')
    await waitFor(() => parentOf(launcher) !== shell.pid)
    const [web] = webs()
    process.kill(web!, 'SIGKILL')
    // Starting another one takes longer than noticing that one is gone.
    await waitFor(() => webs().some((pid) => pid !== web) && shell.lines.some(isRestart))
    await waitFor(() => shell.lines.filter(isReady).length > readyBefore(shell))
    process.kill(launcher, 'SIGTERM')
    await nothingRuns()
  })
})

const webs = () => processesWith(join(root, 'src/api/main.ts')).filter((pid) => survivors().includes(pid))
const isRestart = ({ text }: { text: string }) => /web ended .*starting it again/.test(text)
const isReady = ({ text }: { text: string }) => / web .* ready/.test(text)

function readyBefore({ lines }: TestProcess): number {
  return lines.slice(0, lines.findIndex(isRestart)).filter(isReady).length
}

const parentOf = (pid: number) => {
  const status = readFileSync(`/proc/${pid}/stat`, 'utf8')
  return Number(status.slice(status.lastIndexOf(')') + 2).split(' ')[1])
}
