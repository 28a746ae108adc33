import { execFileSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'

const root = join(import.meta.dirname, '../..')

/** What the program says, in a process of its own: what it changes is Node's. */
function said(program: string, ...flags: readonly string[]) {
  const imports = `
    import { cachedDataVersionTag, getHeapSpaceStatistics } from 'node:v8'
    import { growWithWork, startSmall, startStreaming } from '${join(root, 'src/process/start-up.ts')}'`
  const args = [...flags, '--input-type=module-typescript', '--eval', `${imports}\n${program}`]
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' }))
}

it('a process starts with a small young generation, which grows with its work', () => {
  const { asLongAsItStarts, afterwards } = said(`
    const youngMB = () => getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').space_size / 2 ** 20
    const allocateWhatStays = () => Array.from({ length: 300_000 }, (_, i) => ({ text: 'x' + i }))
    startSmall()
    const asLongAsItStarts = [allocateWhatStays(), youngMB()].at(-1)
    growWithWork()
    const afterwards = [allocateWhatStays(), allocateWhatStays(), youngMB()].at(-1)
    console.log(JSON.stringify({ asLongAsItStarts, afterwards }))`)
  expect(asLongAsItStarts).toBeLessThanOrEqual(4)
  expect(afterwards).toBeGreaterThanOrEqual(16)
})

it('the young generation does not grow with what stays beyond 64 MB', () => {
  const { largest, stays } = said(`
    const youngMB = () => getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').space_size / 2 ** 20
    growWithWork()
    const stays = []
    let largest = 0
    for (let turn = 0; turn < 200; turn += 1) {
      stays.push(Array.from({ length: 20_000 }, (_, i) => ({ text: 'x' + i })))
      await new Promise(setImmediate)
      largest = Math.max(largest, youngMB())
    }
    console.log(JSON.stringify({ largest, stays: stays.length }))`)
  expect(stays).toBe(200)
  // By default it would be 128 MB. Some pages come to it that a collection under way holds besides.
  expect(largest).toBeGreaterThanOrEqual(64)
  expect(largest).toBeLessThan(80)
})

it('a process that streams loads under the flags of all others, so that each starts from what another one has compiled', () => {
  const { small, streaming, grown } = said(`
    startSmall()
    const small = cachedDataVersionTag()
    startStreaming()
    const streaming = cachedDataVersionTag()
    growWithWork()
    console.log(JSON.stringify({ small, streaming, grown: cachedDataVersionTag() }))
    process.exit()`)
  expect({ streaming, grown }).toEqual({ streaming: small, grown: small })
})

describe('an import by a path', () => {
  const asked = `
    import { registerHooks } from 'node:module'
    const asked = []
    registerHooks({
      resolve: (specifier, context, next) => {
        if (context.conditions.includes('import')) asked.push(specifier)
        return next(specifier, context)
      },
    })
    startSmall()
    await import('${join(root, 'src/catalog/compile.ts')}')
    console.log(JSON.stringify(asked.filter((specifier) => specifier.startsWith('.'))))`

  it('is not looked for in the program and its packages', () => {
    expect(said(asked)).toEqual([])
  })

  it('is shown to whatever was loaded before the program', () => {
    expect(said(asked, '--import=data:text/javascript,')).toContain('./fields.ts')
  })

  it('of a user is looked for by Node.js, which names what it does not find', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-imports-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    await writeFile(join(directory, 'index.js'), "import './missing.js'")
    const { code, message } = said(`
      startSmall()
      const { code, message } = await import('${directory}/index.js').catch((error) => error)
      console.log(JSON.stringify({ code, message }))`)
    expect(code).toBe('ERR_MODULE_NOT_FOUND')
    expect(message).toMatch(/missing\.js' imported from .*index\.js/)
  })
})

/** They set the flags, hence before anything else is loaded: what comes with them is a function or a name. */
const light = ['node:module', 'process/start-up.ts', 'language/child-process.ts', 'tasks/protocol.ts']

it('every process of the program sets these flags before it loads the program', () => {
  const entries = globSync('src/**/{main,start,*-main}.ts', { cwd: root }).sort()
  expect(entries).toEqual([
    'src/api/main.ts',
    'src/cli/main.ts',
    'src/setup/main.ts',
    'src/start.ts',
    'src/workers/main.ts',
    'src/workers/tasks/runner-main.ts',
  ])
  for (const entry of entries) {
    const text = readFileSync(join(root, entry), 'utf8')
    const imported = [...text.matchAll(/^import .* from '(?:\.+\/)*(.*)'$/gm)].map(([, from]) => from!)
    expect(
      imported.filter((from) => !light.some((known) => join('tasks', from).endsWith(known))),
      entry,
    ).toEqual([])
    expect(text.indexOf('startSmall()\n'), entry).toBeGreaterThan(0)
    expect(text.indexOf('startSmall()\n'), entry).toBeLessThan(text.indexOf('await import('))
  }
})
