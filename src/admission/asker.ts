import { AsyncLocalStorage } from 'node:async_hooks'
import { AppError } from '../errors.ts'

/** The answer to a client that is gone, which will not read it; proxies log 499 for such a request. */
export const clientGone = (cause?: unknown): AppError =>
  new AppError(499, 'The client has closed the request', { cause })

/** The caller for whom work is done, known however deep it is called. */
export type Asker = {
  /** The key by which callers take turns where work waits: a user, or the network of an address. */
  readonly caller: string
  /** Aborts when the client is gone before its answer was whole; undefined for work that ends by itself. */
  readonly gone: AbortSignal | undefined
  /** How many places of the admission its work holds. */
  places: number
  /** Whether it asks for what is presumed heavy. */
  asksMuch?: boolean
}

/**
 * Does work, and all that follows from it, for an asker. Statements of the routes' pool and transactions of `commit`
 * end when that one is gone. Shared work must not run there: see `ends` in db/pools.ts.
 */
export function workFor<T>(asker: Asker, work: () => T): T {
  asked += 1
  return askers.run(asker, work)
}

/** Notes that this one, where there is one, asks for what is presumed heavy. */
export function noteMuch(who: Asker | undefined): void {
  if (who === undefined || who.asksMuch) return
  who.asksMuch = true
  askedMuch += 1
}

/** How often something light was asked for since the process began; a caller refused before all work has asked for nothing. */
export const lightAskedSoFar = (): number => asked - askedMuch

let asked = 0
let askedMuch = 0

/** Lets work that is called from elsewhere, such as by a stream, be done for the same caller. */
export function forSameAsker(): <T>(work: () => T) => T {
  const who = askers.getStore()
  return (work) => (who === undefined ? work() : askers.run(who, work))
}

/** The caller for whom this is done; undefined outside of requests. */
export const asker = (): Asker | undefined => askers.getStore()

/** Aborts when the client no longer waits for this work. */
export const goneSignal = (): AbortSignal | undefined => askers.getStore()?.gone

const askers = new AsyncLocalStorage<Asker>()
