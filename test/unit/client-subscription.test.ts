import { expect, test } from 'vitest'
import {
  type SubscriptionEffect,
  type SubscriptionInput,
  type SubscriptionState,
  stepSubscription,
  unloaded,
} from '../../clients/realtime-step.ts'
import { type Change, RealtimeError } from '../../clients/realtime-types.ts'

type Row = { readonly id: number }
type Input = SubscriptionInput<Row>

const success = (cursor: string, attempt = 1): Input => ({
  kind: 'answered',
  attempt,
  answer: { status: 'success', cursor },
})
const refusal = (message: string): Input => ({ kind: 'answered', attempt: 1, answer: { status: 'error', message } })
const begin: Input = { kind: 'begin' }
const loaded: Input = { kind: 'loaded', cursor: undefined }
const change = (id: number): Change<Row> => ({
  action: 'update',
  collection: 'notes',
  data: { id },
  timestamp: '2026-01-01T00:00:00.000Z',
  cursor: `c${id}`,
  position: String(id),
})

/** What the last of some messages leads to. */
function after(
  inputs: readonly Input[],
  { since, snapshot = false }: { since?: string; snapshot?: boolean } = {},
): { state: SubscriptionState<Row>; effects: readonly SubscriptionEffect<Row>[] } {
  let state = unloaded<Row>(since)
  let effects: readonly SubscriptionEffect<Row>[] = []
  for (const input of inputs) [state, effects] = stepSubscription(state, input, { snapshot })
  return { state, effects }
}

test('begins from now on, or after the cursor that it has', () => {
  expect(after([begin]).effects).toEqual([])
  expect(after([loaded]).effects).toEqual([{ kind: 'begin' }])
  expect(after([loaded, begin])).toMatchObject({
    state: { phase: 'starting' },
    effects: [{ kind: 'subscribe', attempt: 1, since: undefined }],
  })
  expect(after([{ kind: 'loaded', cursor: 'kept' }, begin])).toMatchObject({
    state: { phase: 'following' },
    effects: [{ kind: 'subscribe', attempt: 1, since: 'kept' }],
  })
  expect(after([{ kind: 'loaded', cursor: 'kept' }, begin], { since: 'given' }).effects).toEqual([
    { kind: 'subscribe', attempt: 1, since: 'given' },
  ])
})

test('goes on after the last change that was handled, on a new connection', () => {
  const told = [loaded, begin, success('c0'), { kind: 'changed', change: change(1) } as const]
  expect(after(told).effects).toEqual([{ kind: 'tell', change: change(1) }])
  expect(after([...told, begin]).effects).toEqual([{ kind: 'subscribe', attempt: 2, since: 'c0' }])
  const handled = [...told, { kind: 'handled', cursor: 'c1' } as const]
  expect(after(handled).effects).toEqual([{ kind: 'save', cursor: 'c1' }])
  expect(after([...handled, begin]).effects).toEqual([{ kind: 'subscribe', attempt: 2, since: 'c1' }])
})

test('ignores the answer to an attempt that a later one replaced', () => {
  const replaced = [loaded, begin, begin]
  expect(after([...replaced, success('old', 1)])).toMatchObject({ state: { phase: 'starting' }, effects: [] })
  expect(after([...replaced, success('c0', 2)]).effects).toEqual([{ kind: 'begun' }, { kind: 'save', cursor: 'c0' }])
})

test('asks again after a fault of the server, and ends after a refusal', () => {
  const asked = [loaded, begin]
  expect(after([...asked, refusal('Internal server error')])).toMatchObject({
    state: { phase: 'starting' },
    effects: [{ kind: 'error', error: { final: false } }, { kind: 'retry' }],
  })
  expect(after([...asked, refusal('Forbidden')])).toMatchObject({
    state: { phase: 'ended' },
    effects: [{ kind: 'close' }, { kind: 'error', error: { final: true, message: 'Forbidden' } }],
  })
})

test('starts over when more has changed than can be told: the application reads, once the server has answered', () => {
  const resync: Input = { kind: 'resync', reason: undefined }
  const started = [loaded, begin, success('c0'), resync]
  expect(after(started)).toMatchObject({ state: { cursor: undefined }, effects: [{ kind: 'begin' }] })
  const again = [...started, begin]
  expect(after([...again, { kind: 'changed', change: change(1) }]).effects).toEqual([])
  expect(after([...again, success('c9', 2)]).effects).toEqual([
    { kind: 'begun' },
    { kind: 'save', cursor: 'c9' },
    { kind: 'read' },
  ])
  expect(after([...again, success('c9', 2), begin, success('c10', 3)]).effects).not.toContainEqual({ kind: 'read' })
  expect(after([...again, success('c9', 2)], { snapshot: true }).effects).not.toContainEqual({ kind: 'read' })
})

test('waits when it was too slow, keeps its cursor and ignores what is still answered', () => {
  const slow = [loaded, begin, success('c0'), begin, { kind: 'resync', reason: 'slow' } as const]
  expect(after(slow)).toMatchObject({ state: { cursor: 'c0' }, effects: [{ kind: 'retry' }] })
  expect(after([...slow, success('late', 2)]).effects).toEqual([])
  expect(after([...slow, begin]).effects).toEqual([{ kind: 'subscribe', attempt: 4, since: 'c0' }])
})

test('asks for all that there is on the same connection, and tells nothing twice for it', () => {
  const catchUp: Input = { kind: 'catch up' }
  expect(after([loaded, begin, catchUp]).effects).toEqual([])
  const asked = [loaded, begin, success('c0'), catchUp]
  expect(after(asked).effects).toEqual([{ kind: 'subscribe', attempt: 2, since: 'c0' }])
  const tell = (id: number): Input => ({ kind: 'changed', change: change(id) })
  // Told by the subscription before, as it was on its way, and then by the new one from its cursor on.
  const told = [...asked, tell(1), { kind: 'handled', cursor: 'c1' } as const]
  expect(after([...told, tell(1)])).toMatchObject({ state: { cursor: 'c1' }, effects: [] })
  expect(after([...told, tell(1), tell(2)]).effects).toEqual([{ kind: 'tell', change: change(2) }])
  expect(after([...told, tell(1), success('c3', 2)]).effects).toContainEqual({ kind: 'begun' })
  expect(after([...told, success('c3', 2)]).state.told).toBeUndefined()
  expect(after([...told, begin]).state.told).toBeUndefined()
})

test('shows a snapshot when all of its parts are there; the first part drops those of an earlier one', () => {
  const piece = (index: number, ids: readonly number[], more: boolean): Input => ({
    kind: 'piece',
    piece: { index, data: ids.map((id) => ({ id })), more },
  })
  const parts = [loaded, begin, piece(0, [7], true), piece(0, [1, 2], true), piece(1, [3], false)]
  expect(after(parts, { since: 'old', snapshot: true })).toMatchObject({
    state: { cursor: undefined, pieces: [] },
    effects: [{ kind: 'show', rows: [{ id: 1 }, { id: 2 }, { id: 3 }] }],
  })
})

test('tells nothing once it has ended, but keeps the cursor of a change whose handler ended it', () => {
  const ended = [loaded, begin, success('c0'), { kind: 'end' } as const]
  expect(after(ended).effects).toEqual([{ kind: 'close' }])
  for (const input of [
    begin,
    success('c1'),
    { kind: 'end' } as const,
    { kind: 'changed', change: change(1) } as const,
    { kind: 'failed', error: new RealtimeError('late', { final: true }) } as const,
  ])
    expect(after([...ended, input])).toMatchObject({ state: { phase: 'ended', cursor: 'c0' }, effects: [] })
  expect(after([...ended, { kind: 'handled', cursor: 'c1' }])).toMatchObject({
    state: { phase: 'ended', cursor: 'c1' },
    effects: [{ kind: 'save', cursor: 'c1' }],
  })
})
