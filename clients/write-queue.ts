import { DaybookError } from './http.ts'

/**
 * Sends the writes of one row one after the other, as they were made, and those of different rows at the same time. What was
 * made after the creation of a row that fails is not sent.
 */
export type WriteQueue = {
  /** The key that the server has made for a row whose first key was made here; else the key itself. */
  keyOf(key: unknown): unknown
  /** `send` gets the row's key. @throws {DaybookError} `NOT_CREATED` */
  inTurn<Result>(write: QueuedWrite, send: (key: unknown) => Promise<Result>): Promise<Result>
  /** What waits is not sent, for this reason: the session is over. */
  end(error: Error): void
}

type QueuedWrite = {
  readonly key: unknown
  /** It creates the row; its result is the row's key. */
  readonly isNew: boolean
}

type Line = {
  readonly names: Set<string>
  /** Done when all that has been queued is answered. */
  last: Promise<void> | undefined
  /** Why there is no such row. */
  refusal: unknown
}

export function openWriteQueue(): WriteQueue {
  const lines = new Map<string, Line>()
  const made = new Map<string, unknown>()
  let over: Error | undefined
  const keyOf = (key: unknown) => made.get(String(key)) ?? key
  const enter = (line: Line, name: string) => {
    line.names.add(name)
    lines.set(name, line)
  }
  const created = (line: Line, key: unknown, result: unknown) => {
    line.refusal = undefined
    if (String(result) === String(key)) return
    made.set(String(key), result)
    enter(line, String(result))
  }
  return {
    keyOf,
    async inTurn({ key, isNew }, send) {
      const name = String(keyOf(key))
      const line: Line = lines.get(name) ?? { names: new Set(), last: undefined, refusal: undefined }
      enter(line, name)
      const before = line.last
      const { promise, resolve } = Promise.withResolvers<void>()
      line.last = promise
      try {
        if (before !== undefined) {
          await before
          if (over !== undefined) throw over
          if (!isNew && line.refusal !== undefined) throw notCreated(line.refusal)
        }
        const result = await send(keyOf(key))
        if (isNew) created(line, key, result)
        return result
      } catch (error) {
        if (isNew) line.refusal = error
        throw error
      } finally {
        resolve()
        if (line.last === promise) for (const one of line.names) lines.delete(one)
      }
    },
    end(error) {
      over = error
    },
  }
}

const notCreated = (cause: unknown) => {
  const why = cause instanceof Error ? cause.message : String(cause)
  return new DaybookError(`Its row was not created: ${why}`, { status: 0, code: 'NOT_CREATED' }, cause)
}
