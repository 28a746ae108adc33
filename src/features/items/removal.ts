import type { WriteContext } from './context.ts'
import { beforeGone, noteWritten } from './hooking.ts'
import { guardDelete } from './identities.ts'
import { type Run, runWrite } from './run.ts'
import { type Changed, deleteStatement } from './statements.ts'
import { beforeDelete } from './system-rules.ts'
import type { Versions } from './versions.ts'

/** Deletes exactly these rows inside a transaction, with the hooks of their collection around it; 403 otherwise. */
export async function deleteRows(
  run: Run,
  context: WriteContext,
  ids: readonly string[],
  ifMatch?: Versions,
): Promise<readonly Changed[]> {
  const { collection } = context
  const documents = await beforeGone(run, context, ids)
  await beforeDelete(run.rt, collection, ids)
  const after = await guardDelete(run, context, ids)
  const gone = await runWrite<Changed>(run, deleteStatement(context, ids, { ifMatch }))
  await after()
  for (const { id } of gone)
    if (id !== null) noteWritten(run, { collection, action: 'delete', id, previous: documents.get(id) })
  return gone
}
