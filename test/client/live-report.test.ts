import type { Socket } from 'socket.io-client'
import { expect, test } from 'vitest'
import { openLiveReport } from '../../clients/live-report.ts'

type Told = (message: unknown) => void

/** A connected socket whose requests are answered by hand, and a wait that ends by hand. */
function opened() {
  const handlers = new Map<string, Told>()
  const asked: Told[] = []
  let due: (() => void) | undefined
  const socket = {
    connected: true,
    on: (name: string, handler: Told) => handlers.set(name, handler) && socket,
    off: () => socket,
    emit: (name: string, _query: unknown, answer: Told) => name === 'report:subscribe' && asked.push(answer),
  }
  const backoff = {
    later: (run: () => void) => {
      due = run
    },
    reset: () => undefined,
    cancel: () => undefined,
  }
  const report = openLiveReport(
    {},
    () => socket as unknown as Socket,
    () => undefined,
    backoff,
  )
  return {
    report,
    asked,
    told: (name: string, message: unknown) => handlers.get(name)!(message),
    wait: () => {
      const run = due
      due = undefined
      run?.()
    },
  }
}

test('a live report asks again after a fault that passes, however it hears of it', () => {
  const { report, asked, told, wait } = opened()
  asked[0]!({ status: 'error', message: 'Service temporarily unavailable' })
  expect(report.view).toMatchObject({ status: 'loading', error: { final: false } })
  wait()
  asked[1]!({ status: 'success', id: 'r', data: [{ n: 1 }] })
  expect(report.view).toEqual({ rows: [{ n: 1 }], status: 'live', error: undefined })
  told('report:ended', { id: 'r', message: 'Service temporarily unavailable' })
  expect(report.view).toMatchObject({ rows: [{ n: 1 }], status: 'broken', error: { final: false } })
  wait()
  asked[2]!({ status: 'success', id: 's', data: [{ n: 2 }] })
  expect(report.view).toMatchObject({ rows: [{ n: 2 }], status: 'live' })
})

test('a live report ends with a refusal that stays', () => {
  const { report, asked, wait } = opened()
  asked[0]!({ status: 'error', message: 'Insufficient permissions' })
  expect(report.view).toMatchObject({ status: 'ended', error: { final: true, message: 'Insufficient permissions' } })
  wait()
  expect(asked).toHaveLength(1)
})
