import { describe, expect, it } from 'vitest'
import { openLedger, streamFaults } from '../support/ledger.ts'
import type { Frame } from '../support/socket.ts'

/* The process tests believe these two, so they have to notice what they are there for. */

describe('a ledger', () => {
  const answers: Record<string, () => Promise<{ status: number }>> = {
    done: async () => ({ status: 201 }),
    refused: async () => ({ status: 409 }),
    faulty: async () => ({ status: 503 }),
    cut: () => Promise.reject(new Error('the line broke')),
  }

  it.each<[what: string, row: string[], event: string[], faults: number]>([
    ['all is well, the unknown done', ['done', 'faulty', 'cut'], ['done', 'faulty', 'cut'], 0],
    ['all is well, the unknown not done', ['done'], ['done'], 0],
    ['a lost write', [], [], 1],
    ['a write without its event', ['done'], [], 1],
    ['an unknown write that is half there', ['done', 'cut'], ['done'], 1],
    ['a refused write that was done', ['done', 'refused'], ['done', 'refused'], 1],
    ['a repeated write', ['done', 'cut', 'cut'], ['done', 'cut', 'cut'], 1],
    ['a ghost', ['done', 'nobody’s'], ['done'], 1],
  ])('finds: %s', async (_what, row, event, faults) => {
    const ledger = openLedger()
    for (const [key, answer] of Object.entries(answers)) await ledger.write(key, answer)
    expect(ledger.faults({ row, event })).toHaveLength(faults)
  })
})

describe('a stream', () => {
  const committed = ['1', '2', '3'].map((position) => ({ position, entityId: position === '2' ? 'b' : 'a' }))
  const received = (...positions: string[]) =>
    positions.map((position) => ({ position, data: { id: position === '2' ? 'b' : 'a' } }) as Frame)

  it.each<[what: string, frames: Frame[], faults: number]>([
    ['nothing', received('2', '1', '3'), 0],
    ['a missing change', received('1', '2'), 1],
    ['a change that was never committed', received('1', '2', '3', '4'), 1],
    ['a repetition', received('1', '2', '3', '3'), 1],
    ['a record’s changes the wrong way round', received('3', '2', '1'), 1],
  ])('is found to have: %s', (_what, frames, faults) => {
    expect(streamFaults(frames, committed)).toHaveLength(faults)
  })
})
