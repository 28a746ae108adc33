import pino from 'pino'
import { expect, it } from 'vitest'
import { AppError, errors } from '../../src/errors.ts'
import { openListeners, type ToolListener } from '../../src/features/operations/mcp/routes.ts'
import { waitFor } from '../support/wait.ts'

/** Listeners of a process whose rules change when `change` is called. */
function open() {
  const handlers: (() => void)[] = []
  const access = { onChange: (handler: () => void) => void handlers.push(handler) } as never
  const listeners = openListeners({ access, log: pino({ level: 'silent' }) })
  const change = () => {
    for (const handler of handlers) handler()
  }
  return { listeners, change }
}

function listener(more: Partial<ToolListener> = {}) {
  const heard: string[] = []
  const told: ToolListener = {
    userId: 'ada',
    names: 'svc_get_item',
    namesNow: async () => 'svc_get_item',
    tellOfChange: () => void heard.push('changed'),
    end: () => void heard.push('ended'),
    ...more,
  }
  return { told, heard }
}

it('tells whose tools have changed, once, and ends whose credential opens nothing any more', async () => {
  const { listeners, change } = open()
  const same = listener()
  const other = listener({ namesNow: async () => 'svc_get_item,svc_delete_item' })
  const gone = listener({ namesNow: async () => Promise.reject(errors.unauthorized()) })
  const unknown = listener({ namesNow: async () => Promise.reject(new AppError(503, 'later')) })
  for (const { told } of [same, other, gone, unknown]) listeners.add(told)
  for (let i = 0; i < 3; i += 1) change()
  await waitFor(() => gone.heard.length > 0)
  change()
  await waitFor(() => gone.heard.length > 1)
  expect([same.heard, other.heard, unknown.heard]).toEqual([[], ['changed'], []])
  listeners.endAll()
  expect([same.heard, other.heard, unknown.heard]).toEqual([['ended'], ['changed', 'ended'], ['ended']])
})

it('lets a user listen sixteen times, and not once more', () => {
  const { listeners } = open()
  const leave = Array.from({ length: 16 }, () => {
    listeners.admit('ada')
    return listeners.add(listener().told)
  })
  expect(() => listeners.admit('ada')).toThrow('Too many clients listen already')
  listeners.admit('grace')
  leave[0]!()
  listeners.admit('ada')
  listeners.endAll()
})
