import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, inject, it } from 'vitest'
import { showSteps } from '../../scripts/demo/steps.ts'
import { createEmptyDatabase } from '../support/postgres.ts'
import { processesWith, startProcess, survivors, type TestProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'

const longest = 120_000

let directory: string

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'daybook-demo-test-'))
})

afterEach(() => rm(directory, { recursive: true }))

/** The titles of all steps, in their order. */
const story = [
  'The administrator signs in',
  'Two related collections are made',
  'The countries of the world are imported',
  'A user registers; the mail worker is killed before it sends; its successor does',
  'The mailed link opens the account, once',
  'The user signs in and may read nothing',
  "The user's role is granted the countries of Europe",
  'Filtered and nested reads show what is granted',
  'The user subscribes',
  'Each change arrives',
  'The feed is killed; each change arrives',
  'The web process is killed and comes back; each change arrives',
  'What arrived is what the log holds, each once',
  'The mail was sent once',
  'The log tells who did what',
  'The log and the tables agree',
  'Every process stops when it is told to',
]

describe('the steps of the demo', () => {
  it('shows a step that does not hold, with what was seen before', async () => {
    const said: string[] = []
    const step = showSteps((text) => said.push(text))
    await step('this holds', async (see) => see('one'))
    const broken = step('this does not', async (see) => {
      see('two')
      throw new Error('three')
    })
    await expect(broken).rejects.toThrow('three')
    expect(said).toEqual(['✓ this holds\n    one', '✗ this does not\n    two'])
  })
})

describe('npm run demo', () => {
  it('holds from its first step to its last, needs nothing that runs and leaves nothing behind', {
    timeout: longest,
  }, async () => {
    const demo = play()
    expect(await demo.exited).toEqual({ code: 0, signal: null })
    const texts = demo.lines.map(({ text }) => text)
    expect(texts.filter((text) => text.startsWith('✗'))).toEqual([])
    expect(texts.filter((text) => text.startsWith('✓'))).toEqual(story.map((title) => `✓ ${title}`))
    expect(texts.at(-1)).toBe('Everything held.')
    await nothingIsLeft()
  })

  it('removes everything on Ctrl-C, also from the server of DATABASE_URL', { timeout: longest }, async () => {
    const { url } = await createEmptyDatabase()
    const demo = play({ DATABASE_URL: url })
    await demo.waitForLine(({ text }) => text.startsWith('✓'))
    const name = /daybook_demo_\w+/.exec(demo.lines.map(({ text }) => text).join('\n'))?.[0]
    expect(await exists(name)).toBe(true)
    demo.kill('SIGINT')
    expect(await demo.kill('SIGINT')).toEqual({ code: 130, signal: null })
    expect(await exists(name)).toBe(false)
    await nothingIsLeft()
  })

  it('ends with 1 and says why when it cannot play', async () => {
    const demo = play({ DATABASE_URL: 'postgres://nobody:secret@127.0.0.1:1/none' })
    expect(await demo.exited).toEqual({ code: 1, signal: null })
    const text = demo.lines.map((line) => line.text).join('\n')
    expect(text).toContain('DATABASE_URL: no database for the demo can be made there')
    expect(text).not.toMatch(/secret|^ +at /m)
    await nothingIsLeft()
  })

  /** In a working directory and a directory for temporary files of its own. */
  function play(env: Record<string, string> = {}): TestProcess {
    return startProcess('scripts/demo.ts', [], { TMPDIR: directory, ...env }, { cwd: directory })
  }

  async function nothingIsLeft(): Promise<void> {
    await waitFor(() => survivors().length === 0 && processesWith(directory).length === 0)
    expect(await readdir(directory)).toEqual([])
  }

  async function exists(database: string | undefined): Promise<boolean> {
    const statement = 'select from pg_database where datname = $1'
    return withClient(
      inject('server').url,
      async (client) => (await client.query(statement, [database])).rowCount === 1,
    )
  }
})
