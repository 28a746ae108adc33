import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Reader, Tx } from '../../../db/sql.ts'

/** A script's own view of its transaction, or of its session without one. */
export type HandedOut = {
  readonly db: Tx
  /** Gives the promise on as one that is waited for. */
  keep<T>(promise: Promise<T>): Promise<T>
  /**
   * Does work with it, and waits for every promise that was handed out: a script may have forgotten an `await`. Rejects with
   * the first failure that the script did not look at, since what came after it failed because of it.
   */
  used<T>(work: () => Promise<T>): Promise<T>
}

/** Hands a transaction out to code of users, of which no forgotten promise may end the process or outlive the transaction. */
export function handOut(tx: Tx): HandedOut {
  const all: { readonly promise: Promise<unknown>; readonly handed: Handed<unknown> }[] = []
  const keep = <T>(promise: Promise<T>): Promise<T> => {
    const handed = new Handed<T>((resolve, reject) => void promise.then(resolve, reject))
    handed.silence()
    all.push({ promise, handed })
    return handed
  }
  const reader: Reader = {
    any: (query) => keep(tx.any(query)),
    maybeOne: (query) => keep(tx.maybeOne(query)),
    one: (query) => keep(tx.one(query)),
  }
  const ended = async (): Promise<unknown[]> => {
    const failures: unknown[] = []
    for (let i = 0; i < all.length; i += 1) {
      const { promise, handed } = all[i]!
      const [outcome] = await Promise.allSettled([promise])
      // The script goes on now where it awaits this one, perhaps to the next statement.
      if (i === all.length - 1) await nextTurn()
      if (outcome.status === 'rejected' && !handed.isTaken) failures.push(outcome.reason)
    }
    return failures
  }
  const used = async <T>(work: () => Promise<T>): Promise<T> => {
    const [outcome] = await Promise.allSettled([(async () => work())()])
    const [failure] = await ended()
    if (failure !== undefined) throw failure
    if (outcome.status === 'rejected') throw outcome.reason
    return outcome.value
  }
  return { db: { ...reader, isTransaction: true }, keep, used }
}

/** A promise that knows whether anybody has asked for its outcome; what it is asked by `then` for is a plain one. */
class Handed<T> extends Promise<T> {
  static override get [Symbol.species](): PromiseConstructor {
    return Promise
  }

  isTaken = false

  /** An `await` calls it too. */
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.isTaken = true
    return super.then(onFulfilled, onRejected)
  }

  /** Nobody need ask: Node ends a process for a failure that nobody has asked for. */
  silence(): void {
    super.then(undefined, () => undefined)
  }
}
