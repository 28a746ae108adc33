/*
 * When a live report is evaluated anew and what is done with the result, decided without socket, clock or database.
 * Times are in milliseconds of one clock that never goes back.
 */

export type ReportState = {
  /** A report that waits is evaluated when its timer ends. */
  readonly phase: 'evaluating' | 'waiting' | 'idle'
  /** Something has happened since the evaluation began. */
  readonly stale: boolean
  /** Of the result that its client has; undefined until the first. */
  readonly tag: string | undefined
  /** The collections that it reads; undefined until the first result: then every change concerns it. */
  readonly reads: ReadonlySet<string> | undefined
  /** Not to be evaluated before. */
  readonly restsUntil: number
}

export type LiveReportInput =
  /** Commits have changed these collections. */
  | { readonly is: 'changed'; readonly collections: ReadonlySet<string>; readonly at: number }
  /** The rights of its reader, or the collections, may have changed. */
  | { readonly is: 'touched'; readonly at: number }
  /** Its timer has ended. `isFree`: its client has taken what was sent before. */
  | { readonly is: 'due'; readonly isFree: boolean; readonly at: number }
  | { readonly is: 'evaluated'; readonly tag: string; readonly reads: ReadonlySet<string>; readonly at: number }

type ReportEffect =
  | { readonly do: 'evaluate' }
  /** Sends the result that was evaluated just now. */
  | { readonly do: 'send' }
  | { readonly do: 'wake'; readonly inMs: number }

/** A report is evaluated at most so often. */
export const leastPauseMs = 250

/** Its first evaluation has begun; the result of that is an answer and is not sent. */
export const beginning: ReportState = {
  phase: 'evaluating',
  stale: false,
  tag: undefined,
  reads: undefined,
  restsUntil: 0,
}

export function step(state: ReportState, input: LiveReportInput): readonly [ReportState, readonly ReportEffect[]] {
  switch (input.is) {
    case 'changed':
      return isConcerned(state, input.collections) ? touch(state, input.at) : [state, []]
    case 'touched':
      return touch(state, input.at)
    case 'due':
      if (input.isFree) return [{ ...state, phase: 'evaluating', stale: false }, [{ do: 'evaluate' }]]
      // Results for a reader who does not take them would only pile up.
      return [{ ...state, restsUntil: input.at + leastPauseMs }, [{ do: 'wake', inMs: leastPauseMs }]]
    case 'evaluated': {
      const { tag, reads, at } = input
      const isNews = state.tag !== undefined && state.tag !== tag
      const rested: ReportState = { phase: 'idle', stale: false, tag, reads, restsUntil: at + leastPauseMs }
      const [next, more] = state.stale ? touch(rested, at) : [rested, []]
      return [next, isNews ? [{ do: 'send' }, ...more] : more]
    }
  }
}

function isConcerned({ reads }: ReportState, collections: ReadonlySet<string>): boolean {
  if (reads === undefined) return true
  for (const name of reads) if (collections.has(name)) return true
  return false
}

function touch(state: ReportState, at: number): readonly [ReportState, readonly ReportEffect[]] {
  if (state.phase === 'evaluating') return [state.stale ? state : { ...state, stale: true }, []]
  if (state.phase === 'waiting') return [state, []]
  const inMs = Math.max(0, state.restsUntil - at)
  return [{ ...state, phase: 'waiting' }, [{ do: 'wake', inMs }]]
}
