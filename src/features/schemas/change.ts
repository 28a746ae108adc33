import type { Catalog } from '../../catalog/catalog.ts'
import type { Definitions } from '../../catalog/definitions.ts'
import { type ChangeGuard, type CollectionChange, changeDefinitions, lockCatalog } from '../../catalog/manager.ts'
import { sqlState } from '../../db/errors.ts'
import { sql, type Tx } from '../../db/sql.ts'
import { AppError, errors } from '../../errors.ts'
import { commit, type Outcome } from '../../events/commit.ts'
import type { Actor, DomainEvent } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { checkChanges } from './guards.ts'
import { checkObjects, checkTexts } from './sql-guard.ts'

/**
 * Changes definitions and tables in one transaction, with an event per collection touched. What cannot be done answers
 * 400 or 409 under the operation's message, its reason in `details` (spec/schemas.md §1); 503 with Retry-After when a
 * table is in use for longer than a second.
 */
export async function changeSchemas(rt: Runtime, actor: Actor, message: string, edit: Edit): Promise<void> {
  await explained(message, () =>
    applyChanges(rt, actor, (catalog) => {
      const next = edit(catalog)
      checkChanges(rt.config, catalog, next)
      return next
    }),
  )
}

/** The next definitions from the catalog as it is inside the transaction. */
export type Edit = (catalog: Catalog) => Definitions

/** As {@link changeSchemas}, for callers that check the definitions and word the errors themselves. SQL is checked here. */
export function applyChanges(rt: Runtime, actor: Actor, edit: Edit): Promise<readonly CollectionChange[]> {
  return commitDdl(rt, actor, async (tx) => {
    const guard: ChangeGuard = { before: checkTexts, afterwards: (after, touched) => checkObjects(tx, after, touched) }
    const changes = await changeDefinitions(tx, edit, { multiTenant: rt.config.tenancy.enabled }, guard)
    return { result: changes, events: changes.map(changed) }
  })
}

/** A commit whose DDL the database may refuse; all such refusals are answers to the schema, not faults of ours. */
export async function commitDdl<Result>(
  rt: Runtime,
  actor: Actor,
  work: (tx: Tx) => Promise<Outcome<Result>>,
): Promise<Result> {
  try {
    return await commit(rt, actor, async (tx) => {
      await lockCatalog(tx)
      await tx.any(sql.unsafe`select set_config('lock_timeout', ${longestLockWait}, true)`)
      return work(tx)
    })
  } catch (error) {
    throw refusal(error)
  }
}

export function changed({ collection, change }: CollectionChange): DomainEvent {
  return { type: 'schema.changed', data: { collection, change } }
}

/**
 * While a change waits for a table behind a long reader, all others wait behind the change. Set only once the change has
 * its turn: nobody waits behind those that wait for it.
 */
const longestLockWait = '1s'

/** Puts the operation's message over the reason, which moves into `details`. */
async function explained<Result>(message: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof AppError) || error.message === notFound || ![400, 404, 409].includes(error.status))
      throw error
    const { status, code, cause } = error
    throw new AppError(status, message, { details: reasonOf(error), cause, ...(code !== undefined && { code }) })
  }
}

const notFound = 'Schema not found'

/** The whole reason as one text. */
export function reasonOf({ message, details }: AppError): string {
  if (typeof details === 'string') return `${message}: ${details}`
  return Array.isArray(details) ? `${message}: ${details.join(', ')}` : message
}

function refusal(error: unknown): unknown {
  const state = sqlState(error) ?? ''
  if (state === '55P03')
    return Object.assign(errors.unavailable('The collection is in use, try again'), { cause: error })
  if (!/^(42|22|23|54|58|0A|2B)/.test(state)) return error
  return new AppError(conflicts.has(state) ? 409 : 400, 'The schema cannot be applied', {
    code: 'SCHEMA_NOT_APPLICABLE',
    details: refusals[state] ?? refusals[state.slice(0, 2)] ?? null,
    cause: error,
  })
}

const conflicts: ReadonlySet<string> = new Set(['42P07', '42710'])

const refusals: Readonly<Record<string, string>> = {
  '22': 'stored values do not fit the new type',
  '22P02': 'stored values cannot be converted to the new type',
  '42804': 'an SQL expression or the stored values have another type',
  '42846': 'stored values cannot be converted to the new type',
  '23502': 'stored rows have no value for a required field',
  '23503': 'stored rows refer to items that do not exist',
  '23505': 'stored rows have the same value in a unique field',
  '23514': 'stored values break a constraint or are not among the listed ones',
  '2B': 'something else in the database depends on it',
  '42501': 'the database role may not do this',
  '42601': 'an SQL expression is malformed',
  '42703': 'an SQL expression names an unknown field',
  '42710': 'an index or constraint of this name exists already',
  '42883': 'an SQL expression calls an unknown function or operator',
  '42P07': 'a table or index of this name exists already',
  '42P17': 'an SQL expression is not immutable',
  '54': 'there are too many fields, or values are too long for an index',
  '0A': 'PostgreSQL cannot do this',
}
