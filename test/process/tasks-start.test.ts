import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, beforeEach, expect, it } from 'vitest'
import { testEnv } from '../support/prepare.ts'
import { startProcess, waitFor } from '../support/processes.ts'
import { type TaskBed, taskBed } from '../support/tasks.ts'

let bed: TaskBed
let env: Record<string, string>

/** As many processes load it as LOADS says; the next one notes that it tries to, and never gets ready. */
const stuck = `
  import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
  const { LOADED, STUCK, LOADS } = process.env
  appendFileSync(LOADED, '.')
  if (readFileSync(LOADED).length > LOADS) {
    writeFileSync(STUCK, '')
    await new Promise(() => {})
  }
  export default { type: 'quick', async handler() {} }`

/** Its process lives on, but cannot be told anything any more. */
const deaf = `
  import { writeFileSync } from 'node:fs'
  export default { type: 'deaf', async handler() {
    setTimeout(() => {
      process.removeAllListeners('disconnect')
      process.disconnect()
      writeFileSync(process.env.STUCK, '')
    }, 20)
  } }`

beforeAll(async () => {
  bed = await taskBed({ 'svc-task-stuck/index.js': stuck, 'svc-task-deaf/index.js': deaf })
})

beforeEach(({ task }) => {
  const [LOADED = '', STUCK = ''] = ['loaded', 'stuck'].map((what) => join(bed.extensionsDir, `${what} ${task.id}`))
  env = { ...testEnv(bed.url), EXTENSIONS_DIR: bed.extensionsDir, TASK_SERVICE_ENABLED: 'true', LOADED, STUCK }
})

it('a worker whose first process for tasks does not get ready ends when it is told to', async () => {
  const worker = startProcess('src/workers/main.ts', ['tasks'], { ...env, LOADS: '0' })
  await waitFor(() => existsSync(env.STUCK!))
  expect(await worker.kill()).toEqual({ code: 0, signal: null })
})

it('a worker does not wait for a process that is still starting when it stops', async () => {
  const worker = startProcess('src/workers/main.ts', ['tasks'], { ...env, LOADS: '1' })
  await worker.waitForLine(({ msg }) => msg === 'ready')
  // The first process has work now, so another one is made ready.
  await bed.add('quick')
  await waitFor(() => existsSync(env.STUCK!))
  expect(await worker.kill()).toEqual({ code: 0, signal: null })
})

it('a worker outlives a process that takes no message', async () => {
  const worker = startProcess('src/workers/main.ts', ['tasks'], { ...env, LOADS: '9', TASK_CONCURRENCY: '1' })
  await bed.add('deaf')
  await waitFor(() => existsSync(env.STUCK!))
  const retried = { max_retries: 3 }
  // As many as there are processes: one of them is given to the deaf one.
  const ids = [await bed.add('quick', retried), await bed.add('quick', retried)]
  for (const id of ids) await waitFor(async () => (await bed.row(id)).task_status === 'Completed')
  expect(worker.lines.some(({ how }) => String(how).includes('cannot be told anything'))).toBe(true)
  expect(await worker.kill()).toEqual({ code: 0, signal: null })
})
