import { describe, expect, it } from 'vitest'
import { newcomer, type PresenceState, step } from '../../src/features/messaging/rooms/redis-store.ts'

const settled: PresenceState = { ...newcomer('p', 0), isComplete: true, isAvailable: true }
const place = { room: { tenantId: undefined, name: 'r' }, socketId: 's' }
const heard = { is: 'heard', name: 'p', known: true, condemned: [], at: 1000 } as const
const effectsOf = (state: PresenceState, input: Parameters<typeof step>[1]) => step(state, input)[1]
const stateAfter = (state: PresenceState, input: Parameters<typeof step>[1]) => step(state, input)[0]

describe('given a process that Redis knows with all its members', () => {
  it('when its sign of life is answered, then it only pays what it owes', () => {
    expect(effectsOf(settled, heard)).toEqual([{ do: 'pay' }])
  })

  it('when Redis does not know it any more, then its members are put back before anything else', () => {
    expect(effectsOf(settled, { ...heard, known: false })).toEqual([{ do: 'restore', name: 'p' }, { do: 'pay' }])
  })

  it('when processes have died, then the members of each are removed', () => {
    expect(effectsOf(settled, { ...heard, condemned: ['a', 'b'] })).toEqual([
      { do: 'pay' },
      { do: 'sweep', name: 'a' },
      { do: 'sweep', name: 'b' },
    ])
  })

  it('when an hour has passed, then the keys live on, once an hour', () => {
    const [later, effects] = step(settled, { ...heard, at: 3_600_001 })
    expect(effects).toEqual([{ do: 'pay' }, { do: 'refresh' }])
    expect(effectsOf(later, { ...heard, at: 3_602_001 })).toEqual([{ do: 'pay' }])
  })

  it('when Redis does not answer, then it is unavailable until all has been done again', () => {
    const failed = stateAfter(settled, { is: 'failed' })
    expect(failed.isAvailable).toBe(false)
    expect(stateAfter(failed, { is: 'done' }).isAvailable).toBe(true)
  })

  it('when a socket left unheard, then that is owed until it is paid', () => {
    const owing = stateAfter(settled, { is: 'owed', place })
    expect(owing.owed).toEqual([place])
    expect(stateAfter(owing, { is: 'paid', place }).owed).toEqual([])
  })
})

describe('given a process that takes another name', () => {
  it('when only some members are put back, then the next sign of life puts them back again', () => {
    const renamed = stateAfter(settled, { is: 'renamed', name: 'q' })
    expect([renamed.name, renamed.isComplete]).toEqual(['q', false])
    expect(effectsOf(renamed, { ...heard, name: 'q' })).toEqual([{ do: 'restore', name: 'q' }, { do: 'pay' }])
  })

  it('when Redis knows the name, then nothing is owed; when all are back, then it is complete', () => {
    const owing = stateAfter(stateAfter(settled, { is: 'owed', place }), { is: 'renamed', name: 'q' })
    const registered = stateAfter(owing, { is: 'registered' })
    expect([owing.owed, registered.owed, registered.isComplete]).toEqual([[place], [], false])
    expect(stateAfter(registered, { is: 'restored' }).isComplete).toBe(true)
  })
})
