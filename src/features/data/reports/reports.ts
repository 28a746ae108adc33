import { admitted } from '../../../admission/lane.ts'
import { type CurrentCatalog, withFreshCatalog } from '../../../catalog/store.ts'
import { AppError } from '../../../errors.ts'
import type { Access } from '../../../query/access.ts'
import { compileListUpTo } from '../../../query/compile.ts'
import type { ListQuery } from '../../../query/parse.ts'
import type { Statement } from '../../../query/sql.ts'
import { type ListRow, largestWhole, listBody } from '../items/items.ts'
import { type ReportReads, reportError, resolveReport } from './report.ts'

export { parseReport, unknownModel } from './report.ts'

/** A report as it is now. */
export type Evaluation = {
  /** `{"data":[…],"totalCount":n}` */
  readonly body: string
  /** Every collection whose changes may change it. */
  readonly reads: ReadonlySet<string>
}

type Evaluator = {
  /**
   * Evaluates a report with what its reader may read now. The errors of a report, and 400 for one that is too long to be
   * sent whole, or that reads a collection whose changes are not recorded.
   */
  evaluate(access: Access, collection: string, query: ListQuery): Promise<Evaluation>
}

/** Statements of a process at a time: live reports leave connections to the requests. */
const atOnce = 2

/** Evaluates reports that are asked for again and again; those that wait and are the same statement are run once. */
export function openEvaluator(deps: ReportReads): Evaluator {
  const run = sharing(atOnce, async (statement: Statement) => {
    // They have a bound of their own, and their readers are no clients that could ask again.
    const entering = { shape: statement.text, presumed: 'heavy', isPatient: true } as const
    const [row] = await admitted(deps.admission, entering, () => deps.db.run<ListRow>(statement.text, statement.values))
    return row!
  })
  const read = async (access: Access, collection: string, query: ListQuery) => {
    const plan = resolveReport(deps, access, collection, query)
    refuseUnrecorded(deps, plan.collections)
    const body = listBody(plan, await run(compileListUpTo(plan, largestWhole(plan))))
    if (body === undefined) throw new AppError(400, 'The report is too long to be followed: set a limit')
    return { body, reads: plan.collections }
  }
  return {
    evaluate: async (access, collection, query) => {
      try {
        return await withFreshCatalog(deps.catalog, () => read(access, collection, query))
      } catch (error) {
        throw reportError(error)
      }
    },
  }
}

function refuseUnrecorded(deps: CurrentCatalog, collections: ReadonlySet<string>): void {
  const unlogged = [...collections].find((name) => deps.catalog.current().collections.get(name)?.logged === false)
  if (unlogged !== undefined) throw new AppError(400, `Changes of ${unlogged} are not recorded`)
}

type WaitingStatement<Row> = { readonly statement: Statement; readonly result: PromiseWithResolvers<Row> }

/**
 * Runs a few statements at a time. One that has not begun yet serves everybody who asks for the same; one that has begun
 * may have missed what the next one asks because of.
 */
function sharing<Row>(most: number, run: (statement: Statement) => Promise<Row>) {
  const waiting = new Map<string, WaitingStatement<Row>>()
  let running = 0
  const drain = () => {
    for (const [key, { statement, result }] of waiting) {
      if (running >= most) return
      waiting.delete(key)
      running += 1
      run(statement)
        .then(result.resolve, result.reject)
        .finally(() => {
          running -= 1
          drain()
        })
    }
  }
  return (statement: Statement): Promise<Row> => {
    const key = `${statement.text}\n${JSON.stringify(statement.values)}`
    const known = waiting.get(key)
    if (known !== undefined) return known.result.promise
    const result = Promise.withResolvers<Row>()
    waiting.set(key, { statement, result })
    // All who are notified of the same change ask within the same turn.
    setImmediate(drain)
    return result.promise
  }
}
