import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { freePort } from '../../src/db/embedded/embedded.ts'
import {
  blocksOf,
  follow,
  guides,
  isRun,
  needsS3,
  prints,
  saveFiles,
  sessionOf,
  stepsOf,
  variablesOf,
} from '../support/guides.ts'
import { createDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { startProcess, waitFor } from '../support/processes.ts'
import { startS3 } from '../support/s3.ts'

describe('the guides of docs/', () => {
  it('are those that people search for, and each has commands to run', () => {
    expect(guides().map(({ title }) => title)).toEqual([
      'Quickstart',
      'Data modelling',
      'Permissions',
      'Sign-in pages',
      'Files',
      'Realtime',
      'Reports',
      'Multi-tenancy',
      'Extensions',
      'Extensions of the console',
      'Move a project',
      'Deploy',
      'Upgrade',
      'Backup',
      'Troubleshooting',
      'Tutorial',
    ])
    const silent = guides().filter(({ page }) => stepsOf(blocksOf(page), nowhere).length === 0)
    expect(silent).toEqual([])
  })

  it('show what their commands print', () => {
    expect(prints('{"id":"…", "n": 1}', '{"id":"7","n":1}\n')).toBe(true)
    expect(prints('{"id":…}', '{"id":"7","n":1}')).toBe(true)
    expect(prints('{"id":"…"}', '{"id":"7","n":1}')).toBe(false)
    expect(prints('{"id":"7"}', '{"id":"7","n":1}')).toBe(false)
    expect(prints('a.c', 'abc')).toBe(false)
  })
})

const nowhere = { server: 'http://127.0.0.1:1', frontend: 'http://localhost:1' }

/** Started by `npm start` on one state, below. */
const inARow = ['quickstart.md', 'tutorial.md']

/** A server and a mail worker with the page's own variables, in a directory with the page's own files, and its commands. */
describe.each(guides().filter(({ page }) => !inARow.includes(page)))('$title ($page)', ({ page }) => {
  it('holds', async () => {
    const blocks = sessionOf(page)
    expect(blocks.some(isRun)).toBe(true)
    const directory = await mkdtemp(join(tmpdir(), 'daybook-guide-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    const { url } = await createDatabase()
    const [port, other] = [await freePort(), await freePort()]
    const s3 = needsS3(blocks) ? await startS3() : undefined
    onTestFinished(() => s3?.close())
    const addresses = {
      server: `http://127.0.0.1:${port}`,
      frontend: `http://localhost:${other}`,
      ...(s3 && { s3: s3.endpoint }),
    }
    await saveFiles(directory, blocks, addresses)
    const env = {
      ...testEnv(url),
      NODE_ENV: 'development',
      LOG_LEVEL: 'warn',
      ...variablesOf(blocks, addresses),
    }
    const web = startProcess('src/api/main.ts', [], { ...env, PORT: String(port) }, { cwd: directory })
    // Of the workers that `npm start` runs besides, only the one of mails has anything to do here.
    const hasMail = blocks.some(({ text }) => text.includes('/_dev/mail'))
    const workers = hasMail ? [startProcess('src/workers/main.ts', ['mail'], env, { cwd: directory })] : []
    await waitFor(() => answers(`${addresses.server}/ready`))
    expect(await follow(stepsOf(blocks, addresses), directory, env)).toBeUndefined()
    await Promise.all([web, ...workers].map((one) => one.kill()))
  })
})

/** As a newcomer goes: each page starts `npm start` in the directory as the one before has left it. */
it('README, quickstart and tutorial hold in a row', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-guides-'))
  // Open to the server's own OS user, or its data would be kept elsewhere.
  await chmod(directory, 0o755)
  onTestFinished(() => rm(directory, { recursive: true }))
  const port = await freePort()
  const addresses = { ...nowhere, server: `http://127.0.0.1:${port}` }
  const [quickstart, tutorial] = [blocksOf('quickstart.md'), blocksOf('tutorial.md')]
  await saveFiles(directory, quickstart, addresses)
  const whileStarted = async <T>(work: () => Promise<T>): Promise<T> => {
    const env = { NODE_ENV: 'development', PORT: String(port), PASSWORD_HASH_COST: '4', CONSOLE_ENABLED: 'false' }
    const launcher = startProcess('src/start.ts', [], env, { cwd: directory })
    await launcher.waitForLine(({ text }) => text.includes('Ctrl-C stops everything'))
    try {
      return await work()
    } finally {
      await launcher.kill()
    }
  }
  await whileStarted(async () => undefined)

  const settings = Object.entries(variablesOf(quickstart, addresses)).map(([name, value]) => `${name}=${value}\n`)
  await writeFile(join(directory, '.env'), settings.join(''))
  expect(await whileStarted(() => follow(stepsOf(quickstart, addresses), directory, {}))).toBeUndefined()

  const start = tutorial.find(({ words }) => words.includes('start'))
  const script = start!.text.replace('npm start\n', '')
  expect(await follow([{ script, expected: undefined }], directory, {})).toBeUndefined()
  expect(await whileStarted(() => follow(stepsOf(tutorial, addresses), directory, {}))).toBeUndefined()
  expect(await readFile(join(directory, '.env.mine'), 'utf8')).toBe(settings.join(''))
})

const answers = (address: string): Promise<boolean> =>
  fetch(address).then(
    ({ ok }) => ok,
    () => false,
  )
