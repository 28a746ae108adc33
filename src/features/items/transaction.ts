import { commit } from '../../events/commit.ts'
import type { Runtime } from '../../runtime.ts'
import type { Writer } from './context.ts'
import { afterwards } from './hooking.ts'
import type { Run, Scope } from './run.ts'

/**
 * Runs `work` in the transaction that the writer takes part in, or in one of its own; after the commit of that the hooks
 * hear of what was written. `work` may be run again after a serialization conflict, and so may the hooks before it.
 */
export async function inTransaction<Result>(
  rt: Runtime,
  writer: Writer,
  work: (run: Run) => Promise<Result>,
): Promise<Result> {
  const { scope } = writer
  if (scope !== undefined) return work({ rt, writer, tx: scope.tx, scope })
  let then: readonly (() => Promise<void>)[] = []
  const result = await commit(rt, writer.actor, async (tx) => {
    const own: Scope = { tx, actor: writer.actor, written: [], events: [], isOver: false }
    try {
      const done = await work({ rt, writer, tx, scope: own })
      then = await afterwards(rt, own)
      return { result: done, events: own.events }
    } finally {
      own.isOver = true
    }
  })
  for (const tell of then) await tell()
  return result
}
