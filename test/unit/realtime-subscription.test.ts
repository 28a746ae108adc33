import { describe, expect, it } from 'vitest'
import {
  beginning,
  type MessageInput,
  mostWaiting,
  type SubscriptionInput,
  type SubscriptionState,
  step,
} from '../../src/api/realtime/subscription.ts'
import { cursorAt, parseSnapshot } from '../../src/events/cursor.ts'

const at = (xid: number) => parseSnapshot(`${xid}:${xid}:`)!
const cursor = cursorAt('10:10:')
const message = (xid: number, slow = false): MessageInput => ({
  is: 'message',
  message: { name: 'book:create', xid: BigInt(xid), body: { cursor: `c${xid}` } },
  slow,
})
const caughtUp = (xid: number): SubscriptionInput => ({ is: 'caught up', cursor, seen: at(xid) })

const stateAfter = (
  state: SubscriptionState,
  ...inputs: readonly (MessageInput | SubscriptionInput)[]
): SubscriptionState => inputs.reduce((before, input) => step(before, input as SubscriptionInput)[0], state)
const effectsOf = (state: SubscriptionState, input: MessageInput | SubscriptionInput) =>
  step(state, input as SubscriptionInput)[1]

const live: SubscriptionState = { phase: 'live', seen: undefined }

describe('given a subscription that is live', () => {
  it('when a message comes, then it is sent as it is, and nothing changes', () => {
    expect(step(live, message(12))).toEqual([live, [{ do: 'send', after: undefined }]])
  })

  it('when its client does not read, then it has to read again, as the only one', () => {
    expect(effectsOf(live, message(12, true))).toEqual([{ do: 'resync', reason: 'slow' }])
  })

  it('when a rule may show other rows, then it has to read again', () => {
    expect(effectsOf(live, { is: 'disturbed' })).toEqual([{ do: 'resync' }])
  })

  it.each<[SubscriptionInput, object]>([
    [{ is: 'unknown' }, { do: 'resync' }],
    [{ is: 'failed' }, { do: 'resync', reason: 'failed' }],
    [
      { is: 'refused', reason: 'no permission' },
      { do: 'end', reason: 'no permission' },
    ],
  ])('when it is %j, then %j', (input, effect) => {
    expect(effectsOf(live, input)).toEqual([effect])
  })
})

describe('given a subscription that is live and has seen what is yet to be delivered', () => {
  const ahead = stateAfter(beginning, caughtUp(15))

  it('when a message comes that it has seen, then nothing is sent, even to a slow client', () => {
    expect([effectsOf(ahead, message(14)), effectsOf(ahead, message(14, true))]).toEqual([[], []])
  })

  it('when a later one comes, then its cursor says what else was seen', () => {
    expect(effectsOf(ahead, message(15))).toEqual([{ do: 'send', after: at(15) }])
  })

  it('when all of that has been delivered, then it is like everybody else', () => {
    expect(stateAfter(ahead, { is: 'read', upTo: at(14) })).toEqual(ahead)
    expect(stateAfter(ahead, { is: 'read', upTo: at(15) })).toEqual(live)
  })
})

describe('given a subscription that is catching up', () => {
  it('when messages come, then they wait and are handed on in their order, once it has caught up', () => {
    const waiting = stateAfter(beginning, message(11), message(12, true), message(13))
    expect(step(waiting, caughtUp(12))).toEqual([
      { phase: 'live', seen: at(12) },
      [{ do: 'hand', messages: [11, 12, 13].map((xid) => message(xid).message) }],
    ])
  })

  it('when more come than may wait, then it forgets them and catches up once more from where it is', () => {
    const many = Array.from({ length: mostWaiting + 1 }, (_, n) => message(n + 11))
    const overflowed = stateAfter(beginning, ...many)
    expect(overflowed).toMatchObject({ phase: 'catching up', waiting: undefined, overflowed: true })
    const [again, effects] = step(overflowed, caughtUp(15))
    expect(effects).toEqual([{ do: 'catch up', from: cursor }])
    expect(again).toEqual({ ...beginning, seen: at(15) })
    expect(effectsOf(stateAfter(again, message(20)), caughtUp(19))).toEqual([
      { do: 'hand', messages: [message(20).message] },
    ])
  })

  it('when exactly as many come as may wait, then none is forgotten', () => {
    const many = Array.from({ length: mostWaiting }, (_, n) => message(n + 11))
    expect(stateAfter(beginning, ...many)).toMatchObject({ overflowed: false, waiting: { count: mostWaiting } })
  })

  it('when a rule may show other rows, then it catches up once more instead of reading again', () => {
    const disturbed = stateAfter(beginning, message(11), { is: 'disturbed' })
    expect(effectsOf(disturbed, caughtUp(12))).toEqual([{ do: 'catch up', from: cursor }])
  })

  it('when everything has been handed out, then it goes on with what it has seen itself', () => {
    const again = stateAfter(beginning, { is: 'disturbed' }, caughtUp(12))
    expect(stateAfter(again, { is: 'read', upTo: at(20) })).toEqual(again)
  })

  it('when the log cannot say what was missed, then it has to read again', () => {
    expect(effectsOf(beginning, { is: 'unknown' })).toEqual([{ do: 'resync' }])
  })
})
