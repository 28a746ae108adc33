import { type Cursor, includesSnapshot, isVisible, type Snapshot } from '../../events/cursor.ts'
import type { Message } from './views.ts'

/*
 * The life of one subscription, without socket or database: `step` gives the state after an input, and the effects.
 * Only this file decides when a subscription ends in a `resync`.
 */

/** Where a subscription is. */
export type SubscriptionState =
  | {
      /** The missed changes are being sent; live messages wait, unless they are read from the log again. */
      readonly phase: 'catching up'
      readonly waiting: WaitingMessages | undefined
      /** More arrived than may wait, or what no message says: it has to catch up again. */
      readonly overflowed: boolean
      readonly seen: Snapshot | undefined
    }
  | {
      readonly phase: 'live'
      /** Everything visible in this snapshot was sent already; undefined when all coming events are later. */
      readonly seen: Snapshot | undefined
    }

/** The last message that waits, and those before it. */
type WaitingMessages = {
  readonly message: Message
  readonly before: WaitingMessages | undefined
  readonly count: number
}

export type MessageInput = {
  readonly is: 'message'
  readonly message: Message
  /** Its client has not taken what was sent before. */
  readonly slow: boolean
}

export type SubscriptionInput =
  /** It has everything up to `cursor`, whose snapshot is `seen`. */
  | { readonly is: 'caught up'; readonly cursor: Cursor; readonly seen: Snapshot | undefined }
  /** All that is visible in `upTo` has been handed to everybody. */
  | { readonly is: 'read'; readonly upTo: Snapshot }
  /** Something has changed which rows it sees, and no message says so. */
  | { readonly is: 'disturbed' }
  /** The log no longer has the missed changes, or its user may see other rows now. */
  | { readonly is: 'unknown' }
  | { readonly is: 'failed' }
  /** Its user may not have it any more, or it makes no sense any more. */
  | { readonly is: 'refused'; readonly reason: string }

export type SubscriptionEffect =
  /** Sends these one after the other, as if each had just come. */
  | { readonly do: 'hand'; readonly messages: readonly Message[] }
  | { readonly do: 'catch up'; readonly from: Cursor }
  /** Ends it: the client has to read again. */
  | { readonly do: 'resync'; readonly reason?: 'slow' | 'failed' }
  | { readonly do: 'end'; readonly reason: string }

/** Sends the message. With `after`, its cursor is that of a client who has seen that much more. */
type Send = { readonly do: 'send'; readonly after: Snapshot | undefined }

type SubscriptionStep<Done> = readonly [SubscriptionState, readonly Done[]]

export const mostWaiting = 1000

export const beginning: SubscriptionState = {
  phase: 'catching up',
  waiting: undefined,
  overflowed: false,
  seen: undefined,
}
const live: SubscriptionState = { phase: 'live', seen: undefined }

/** By far the most frequent step, which each subscriber takes with each message; it shall not cost memory. */
const sendIt: SubscriptionStep<Send> = [live, [{ do: 'send', after: undefined }]]

export function step(state: SubscriptionState, input: MessageInput): SubscriptionStep<SubscriptionEffect | Send>
export function step(state: SubscriptionState, input: SubscriptionInput): SubscriptionStep<SubscriptionEffect>
export function step(
  state: SubscriptionState,
  input: MessageInput | SubscriptionInput,
): SubscriptionStep<SubscriptionEffect | Send> {
  switch (input.is) {
    case 'message':
      return receive(state, input)
    case 'caught up':
      return goOn(state, input)
    case 'read':
      return [hasPassed(state, input.upTo) ? live : state, []]
    case 'disturbed':
      // Whether it is later than what is being sent, reading it from the log will show.
      return state.phase === 'live' ? [state, [{ do: 'resync' }]] : [{ ...state, overflowed: true }, []]
    case 'unknown':
      return [state, [{ do: 'resync' }]]
    case 'failed':
      return [state, [{ do: 'resync', reason: 'failed' }]]
    case 'refused':
      return [state, [{ do: 'end', reason: input.reason }]]
  }
}

function receive(
  state: SubscriptionState,
  { message, slow }: MessageInput,
): SubscriptionStep<SubscriptionEffect | Send> {
  if (state.phase === 'catching up') return [wait(state, message), []]
  const { seen } = state
  if (seen !== undefined && isVisible(message.xid, seen)) return [state, []]
  if (slow) return [state, [{ do: 'resync', reason: 'slow' }]]
  return seen === undefined ? sendIt : [state, [{ do: 'send', after: seen }]]
}

function wait(state: Extract<SubscriptionState, { phase: 'catching up' }>, message: Message): SubscriptionState {
  const { waiting, overflowed } = state
  if (overflowed) return state
  const count = (waiting?.count ?? 0) + 1
  if (count > mostWaiting) return { ...state, waiting: undefined, overflowed: true }
  return { ...state, waiting: { message, before: waiting, count } }
}

function goOn(
  state: SubscriptionState,
  { cursor, seen }: Extract<SubscriptionInput, { is: 'caught up' }>,
): SubscriptionStep<SubscriptionEffect> {
  if (state.phase === 'live') return [state, []]
  if (state.overflowed) return [{ ...beginning, seen }, [{ do: 'catch up', from: cursor }]]
  return [seen === undefined ? live : { phase: 'live', seen }, [{ do: 'hand', messages: inOrder(state.waiting) }]]
}

function inOrder(last: WaitingMessages | undefined): Message[] {
  const messages: Message[] = []
  for (let one = last; one !== undefined; one = one.before) messages.push(one.message)
  return messages.reverse()
}

const hasPassed = ({ phase, seen }: SubscriptionState, upTo: Snapshot): boolean =>
  phase === 'live' && seen !== undefined && includesSnapshot(upTo, seen)
