import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { text } from 'node:stream/consumers'
import { expect, it, onTestFinished } from 'vitest'

/** A process that has something to say when its launcher has gone. */
const program = (stderr: boolean, lastWords: string) => `
  import { openLogger } from '${new URL('../../src/adapters/logger.ts', import.meta.url).href}'

  const log = openLogger({ level: 'info', name: 'test', stderr: ${stderr} })
  process.once('disconnect', () => { ${lastWords} })
  process.send('up')`

/** The second line waits while the first one is being written. */
const inAHurry = `log.info('first'); log.info('second'); log.info('third'); process.exit(0)`
/** A fatal line is written at once, with all that waits. */
const atItsLeisure = `log.info('first'); log.info('second'); log.fatal('third'); log.info('fourth')`

async function start(stderr: boolean, lastWords: string) {
  const args = ['--input-type=module-typescript', '--eval', program(stderr, lastWords)]
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe', 'ipc'] })
  onTestFinished(() => void child.kill('SIGKILL'))
  const exited = once(child, 'exit')
  await once(child, 'message')
  return { child, exited, output: stderr ? child.stderr! : child.stdout! }
}

it.each([false, true])('a process ends when its log is no longer read (standard error: %s)', async (stderr) => {
  const { child, exited, output } = await start(stderr, inAHurry)
  output.destroy()
  await once(output, 'close')
  child.disconnect()
  expect(await exited).toEqual([0, null])
})

it.each([
  [false, inAHurry, ['first', 'second', 'third']],
  [true, inAHurry, ['first', 'second', 'third']],
  [false, atItsLeisure, ['first', 'second', 'third', 'fourth']],
])('what it logs before it ends is written (standard error: %s): %s', async (stderr, lastWords, words) => {
  const { child, exited, output } = await start(stderr, lastWords)
  const written = text(output)
  child.disconnect()
  expect(await exited).toEqual([0, null])
  const lines = (await written).trim().split('\n')
  expect(lines.map((line) => JSON.parse(line).msg).toSorted()).toEqual(words.toSorted())
})
