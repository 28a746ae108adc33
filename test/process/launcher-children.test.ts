import { join } from 'node:path'
import { expect, it } from 'vitest'
import { startChild, supervise } from '../../src/launcher/children.ts'
import { root, waitFor } from '../support/processes.ts'

const crashing = { name: 'web', script: join(root, 'test/support/crashing.ts'), env: {} }

it('a process that keeps dying is started six times, then given up with its last words', async () => {
  const lines: string[] = []
  const restarts: string[] = []
  const part = supervise({
    ...crashing,
    onLine: (text) => void lines.push(text),
    onRestart: (how) => void restarts.push(how),
  })
  await expect(part.failed).rejects.toThrow(/^web keeps ending \(exit code 3\).*the last words/s)
  expect(restarts).toEqual(Array(5).fill('exit code 3'))
  expect(lines).toHaveLength(6)
  await part.stop()
})

it('a process that was told to stop is not started again', async () => {
  const restarts: string[] = []
  const script = join(root, 'test/support/waiting.ts')
  const lines: string[] = []
  const part = supervise({
    name: 'mail',
    script,
    env: {},
    onLine: (text) => void lines.push(text),
    onRestart: (how) => void restarts.push(how),
  })
  await waitFor(() => lines.includes('waiting'))
  await part.stop()
  expect({ lines, restarts }).toEqual({ lines: ['waiting', 'stopping'], restarts: [] })
})

it('how a process ended is told by exit code or signal', async () => {
  const crashed = startChild({ ...crashing, onLine: () => undefined })
  expect(await crashed.ended).toBe('exit code 3')
  const killed = startChild({ ...crashing, script: join(root, 'test/support/waiting.ts'), onLine: () => undefined })
  killed.kill()
  expect(await killed.ended).toBe('signal SIGKILL')
})
