import type { AnswerLost } from '../db/errors.ts'
import { untilKnown } from '../db/outcome.ts'
import { rawQuery } from '../db/sql.ts'
import type { Runtime } from '../runtime.ts'
import { logTable } from './log.ts'

/** What the log says of a row that was written. */
export type RowEvent = { readonly entity: string; readonly entityId: string | null; readonly action: string }

/**
 * The events of a statement whose answer was lost, found by its request; to be asked of a request that wrote by nothing
 * else. They are there when it has committed. None says nothing: what is not logged may have been written all the same,
 * and the statement may still be running where its process cannot be found, behind a pooler.
 */
export async function eventsOfLost(rt: Runtime, lost: AnswerLost, requestId: string): Promise<readonly RowEvent[]> {
  const { transactionTimeoutMs } = rt.config.database
  let looks = 0
  const found = await untilKnown(rt.log, async () => {
    const { running } = await rt.reserved.one<{ running: boolean }>(rawQuery(runningSql, [lost.processId]))
    // After it has ended: what it wrote is seen by now.
    const events = await rt.reserved.any<RowEvent & { xid: string }>(
      rawQuery(eventsSql, [requestId, transactionTimeoutMs + marginMs]),
    )
    looks += 1
    return events.length > 0 || (!running && looks >= leastLooks) ? events : undefined
  })
  // Two transactions: which event is whose cannot be known.
  return new Set(found?.map(({ xid }) => xid)).size === 1 ? found! : []
}

/** Where its process cannot be found, a statement gets a moment to end. */
const leastLooks = 4
/** Of clocks, and of what came before the statement. */
const marginMs = 30_000

const runningSql = `
  select exists(select from pg_stat_activity where pid = $1 and state not like 'idle%') as running`

/** By the time of the events, since requests have no index. */
const eventsSql = `
  select entity, "entityId", action, xid::text from "${logTable}"
  where "createdAt" > clock_timestamp() - make_interval(secs => $2::float8 / 1000) and "requestId" = $1
  order by position limit 1000`
