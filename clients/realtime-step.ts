import { type Change, RealtimeError, type Removal, type RowFacts } from './realtime-types.ts'

/*
 * What follows from each message about one collection that is followed. Pure: the socket, the waits and the application's
 * handlers are the effects that it returns.
 */

export type SubscriptionState<Row> = {
  readonly phase: 'loading' | 'idle' | 'starting' | 'following' | 'ended'
  /** Where to go on after the last change that was handled. */
  readonly cursor: string | undefined
  /** Of the subscription that counts; an answer to an earlier one is of no interest. */
  readonly attempt: number
  /** The application reads the rows itself as soon as the server has answered. */
  readonly mustRead: boolean
  /** The parts of a snapshot that have come so far. */
  readonly pieces: readonly (readonly Row[])[]
  /** Of that snapshot. */
  readonly facts: RowFacts
  /**
   * While the server is asked again on the same connection: the positions of what it has told since then, which it tells
   * again. Otherwise nothing comes twice.
   */
  readonly told: readonly string[] | undefined
}

export type Answer = { status: 'success'; cursor: string } | { status: 'error'; message: string }
/** The first one has the facts. */
export type Piece<Row> = { index: number; data: readonly Row[]; more: boolean } & RowFacts
export type AnyChange<Row> = Change<Row> | Removal<Row>

export type SubscriptionInput<Row> =
  | { readonly kind: 'loaded'; readonly cursor: string | undefined }
  /** The socket is connected. */
  | { readonly kind: 'begin' }
  /** All that there is to tell until now is asked for; `begun` says that it has come. */
  | { readonly kind: 'catch up' }
  | { readonly kind: 'answered'; readonly attempt: number; readonly answer: Answer }
  | { readonly kind: 'changed'; readonly change: AnyChange<Row> }
  /** The application's handler has returned. */
  | { readonly kind: 'handled'; readonly cursor: string }
  | { readonly kind: 'piece'; readonly piece: Piece<Row> }
  | { readonly kind: 'resync'; readonly reason: string | undefined }
  | { readonly kind: 'failed'; readonly error: RealtimeError }
  | { readonly kind: 'end' }

export type SubscriptionEffect<Row> =
  | { readonly kind: 'subscribe'; readonly attempt: number; readonly since: string | undefined }
  /** Begins at once, where the socket is connected. */
  | { readonly kind: 'begin' }
  /** Begins after a wait. */
  | { readonly kind: 'retry' }
  /** The server has answered: the next wait is short again. */
  | { readonly kind: 'begun' }
  | { readonly kind: 'save'; readonly cursor: string }
  /** Calls the handler, and reports `handled` when it returns. */
  | { readonly kind: 'tell'; readonly change: AnyChange<Row> }
  | { readonly kind: 'show'; readonly rows: readonly Row[]; readonly facts: RowFacts }
  | { readonly kind: 'read' }
  | { readonly kind: 'error'; readonly error: RealtimeError }
  | { readonly kind: 'close' }

type Step<Row> = readonly [SubscriptionState<Row>, readonly SubscriptionEffect<Row>[]]

export const unloaded = <Row>(since: string | undefined): SubscriptionState<Row> => ({
  phase: 'loading',
  cursor: since,
  attempt: 0,
  mustRead: false,
  pieces: [],
  facts: {},
  told: undefined,
})

/** Faults of the server. Everything else that it answers stays as it is when it is asked again. */
const passing: readonly string[] = ['Internal server error', 'Service temporarily unavailable']

/** Whether another attempt may be answered otherwise. */
export const isPassing = (message: string): boolean => passing.includes(message)

export function stepSubscription<Row>(
  state: SubscriptionState<Row>,
  input: SubscriptionInput<Row>,
  { snapshot }: { readonly snapshot: boolean },
): Step<Row> {
  // A handler that ends the subscription has still handled its change.
  if (input.kind === 'handled') return [{ ...state, cursor: input.cursor }, [{ kind: 'save', cursor: input.cursor }]]
  if (state.phase === 'ended') return [state, []]
  switch (input.kind) {
    case 'loaded':
      return [{ ...state, phase: 'idle', cursor: state.cursor ?? input.cursor }, [{ kind: 'begin' }]]
    case 'begin':
      return state.phase === 'loading' ? [state, []] : subscribed({ ...state, told: undefined })
    case 'catch up':
      // Where the server has not answered yet, its answer comes after all that there is.
      return state.phase === 'following' && state.cursor !== undefined
        ? subscribed({ ...state, told: state.told ?? [] })
        : [state, []]
    case 'answered':
      return input.attempt === state.attempt ? answered(state, input.answer) : [state, []]
    case 'changed':
      return changed(state, input.change)
    case 'piece':
      return withPiece(state, input.piece)
    case 'resync':
      if (input.reason === 'slow') return [{ ...state, attempt: state.attempt + 1 }, [{ kind: 'retry' }]]
      // From now on, with the rows or with the application's promise to read them.
      return [{ ...state, cursor: undefined, mustRead: !snapshot }, [{ kind: 'begin' }]]
    case 'failed':
      return failed(state, input.error)
    case 'end':
      return [{ ...state, phase: 'ended' }, [{ kind: 'close' }]]
  }
}

function subscribed<Row>(state: SubscriptionState<Row>): Step<Row> {
  const attempt = state.attempt + 1
  const phase = state.cursor === undefined ? 'starting' : 'following'
  return [{ ...state, phase, attempt }, [{ kind: 'subscribe', attempt, since: state.cursor }]]
}

function changed<Row>(state: SubscriptionState<Row>, change: AnyChange<Row>): Step<Row> {
  const { phase, told } = state
  // While the subscription starts over, a change of the earlier one is still on its way.
  if (phase === 'starting' || told?.includes(change.position)) return [state, []]
  return [told === undefined ? state : { ...state, told: [...told, change.position] }, [{ kind: 'tell', change }]]
}

function answered<Row>(state: SubscriptionState<Row>, answer: Answer): Step<Row> {
  if (answer.status === 'error') {
    const isFinal = !isPassing(answer.message)
    const [next, effects] = failed(state, new RealtimeError(answer.message, { final: isFinal }))
    return [next, isFinal ? effects : [...effects, { kind: 'retry' }]]
  }
  const { cursor } = answer
  // The cursor comes after the rows, or after the changes that were missed.
  return [
    { ...state, phase: 'following', cursor, mustRead: false, told: undefined },
    [{ kind: 'begun' }, { kind: 'save', cursor }, ...(state.mustRead ? [{ kind: 'read' } as const] : [])],
  ]
}

function withPiece<Row>(state: SubscriptionState<Row>, { index, data, more, ...facts }: Piece<Row>): Step<Row> {
  const pieces = index === 0 ? [data] : [...state.pieces, data]
  const known = index === 0 ? factsOf(facts) : state.facts
  if (more) return [{ ...state, pieces, facts: known }, []]
  // The rows are newer than the cursor that was asked for, and their own comes with the answer.
  return [{ ...state, pieces: [], cursor: undefined }, [{ kind: 'show', rows: pieces.flat() as Row[], facts: known }]]
}

const factsOf = ({ key, numbers, orders }: RowFacts): RowFacts => ({ key, numbers, ...(orders && { orders }) })

function failed<Row>(state: SubscriptionState<Row>, error: RealtimeError): Step<Row> {
  if (!error.final) return [state, [{ kind: 'error', error }]]
  return [{ ...state, phase: 'ended' }, [{ kind: 'close' }, { kind: 'error', error }]]
}
