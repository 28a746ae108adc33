import { breather } from '../../breather.ts'
import { rawQuery } from '../../db/sql.ts'
import { errors } from '../../errors.ts'
import { commitRow } from '../../events/commit.ts'
import { isObject, member } from '../../query/guards.ts'
import { readStrings } from '../../query/parse.ts'
import type { Runtime } from '../../runtime.ts'
import { type AnswerQuery, type Written, wantsRows, writtenRows } from './answers.ts'
import { openWrite, type Writer } from './context.ts'
import { passwordChanged, setPasswords } from './credentials.ts'
import { rowFromLog } from './from-log.ts'
import { beforeRow, meetsHooks, noteWritten } from './hooking.ts'
import { guardInserts, guardRows, isGuarded } from './identities.ts'
import { freshOutside } from './reads.ts'
import { type Place, placed, type Run, runWrite } from './run.ts'
import type { Write } from './statements.ts'
import { inTransaction } from './transaction.ts'
import { learnNames } from './unknown-names.ts'
import {
  type Contexts,
  type Key,
  type Outcome,
  type Plan,
  planOf,
  presentQuery,
  uniqueKey,
  upsertStatement,
} from './upsert-plan.ts'

/** What was written, and whether the first row is new. */
export type Upserted = Written & { readonly created: boolean }

/**
 * `PUT /items/{collection}?key=field[,field]`: each item is created, or changes the one with the same key; all or none.
 * The key is a unique field or index, and the decision is the database's (`on conflict`), so of any number of writers at
 * the same moment one creates and the others change. Needs the create and the update permission: a new row must satisfy
 * the one rule, an existing row the other, before and after. A soft-deleted item comes back.
 *
 * An item must be complete enough to be created, and relations in it are named by id. 400 for a key that is not unique.
 */
export async function upsertItems(
  rt: Runtime,
  writer: Writer,
  name: string,
  payloads: readonly unknown[],
  { answer: query, asList }: { readonly answer: AnswerQuery; readonly asList: boolean },
): Promise<Upserted> {
  return freshOutside(rt, writer.scope?.tx, async () => {
    await learnNames(rt, name, payloads)
    const contexts = { create: openWrite(rt, writer, name, 'create'), update: openWrite(rt, writer, name, 'update') }
    const key = uniqueKey(contexts.create.collection, readStrings('key', query.key) ?? [])
    const hasRows = wantsRows(rt, writer.access, name, query)
    const items = payloads.map((payload, index) => ({ payload, label: asList ? `${index}.` : '' }))
    const inOne = (outcomesOf: (run: Run) => Promise<readonly Outcome[]>) =>
      inTransaction(rt, writer, async (run) => {
        const outcomes = await outcomesOf(run)
        const ids = outcomes.map(({ id }) => id)
        return answered(outcomes, hasRows ? await writtenRows(rt, writer, run.tx, name, ids, query) : undefined)
      })
    if (meetsHooks(rt, contexts.create) || meetsHooks(rt, contexts.update))
      return untilForeseen(writer, () => inOne((run) => inTurn(items, (item) => upsertTold(run, contexts, key, item))))
    const plans = await inTurn(items, ({ payload, label }) => planOf(rt, contexts, key, payload, label))
    const { collection } = contexts.update
    if (plans.some(({ change }) => isGuarded(collection, 'update', change)))
      return untilForeseen(writer, () =>
        inOne((run) =>
          inTurn(payloads, async (payload, index) => {
            const id = await presentId(run, contexts, key, payload)
            const outcome = await upsertGuarded(run, contexts, key, plans[index]!, id)
            if (outcome.created !== (id === undefined)) throw new Unforeseen()
            return outcome
          }),
        ),
      )
    const writes = plans.map((plan) => ({ plan, write: upsertStatement(contexts, key, plan) }))
    const [first] = writes
    const isAlone = writes.length === 1 && !hasRows && writer.scope === undefined
    if (isAlone) return answered([await runAlone(rt, writer, contexts, first!)], undefined)
    return inOne((run) => inTurn(writes, ({ plan, write }) => upsert(run, contexts, plan, write)))
  })
}

async function upsert(run: Run, { update }: Contexts, plan: Plan, write: Write): Promise<Outcome> {
  const outcome = outcomeOf(await runWrite<Outcome>(run, write, placeIn(plan)))
  if (!outcome.created && setPasswords(update.collection, plan.change)) await passwordChanged(run, outcome.id)
  return outcome
}

/** One upsert of which it is known beforehand, as far as can be told, which item it will change. */
async function upsertGuarded(
  run: Run,
  contexts: Contexts,
  key: Key,
  plan: Plan,
  id: string | undefined,
): Promise<Outcome> {
  if (id === undefined) guardInserts(run, contexts.create, [plan.create.cells])
  const guarded = id === undefined ? undefined : await guardRows(run, contexts.update, [id], plan.change)
  const whole = { ...plan, change: guarded?.cells ?? plan.change }
  const outcome = await upsert(run, contexts, plan, upsertStatement(contexts, key, whole))
  await guarded?.after()
  return outcome
}

/** One item of the request, and what is put before the names of its fields in problems. */
type Item = { readonly payload: unknown; readonly label: string }

const placeIn = ({ create: { aliases }, label }: Plan): Place => ({ aliases, label })

async function inTurn<From, To>(list: readonly From[], work: (one: From, index: number) => Promise<To>): Promise<To[]> {
  const done: To[] = []
  const breathe = breather()
  for (const [index, one] of list.entries()) {
    done.push(await work(one, index))
    await breathe()
  }
  return done
}

/** The item that the caller would change, as far as can be told before the statement. */
async function presentId(run: Run, contexts: Contexts, key: Key, payload: unknown): Promise<string | undefined> {
  const query = presentQuery(contexts, key, payload)
  const present = query && (await run.tx.maybeOne<{ id: string }>(rawQuery(query.text, query.values)))
  return present && String(JSON.parse(present.id))
}

/**
 * One upsert with hooks around it. Which of them are asked is what the row's presence lets expect; the database decides,
 * and if another writer came in between, everything is tried again.
 */
async function upsertTold(run: Run, contexts: Contexts, key: Key, { payload, label }: Item): Promise<Outcome> {
  const { rt } = run
  const { collection } = contexts.create
  const id = await presentId(run, contexts, key, payload)
  const context = id === undefined ? contexts.create : contexts.update
  const told = await beforeRow({ rt, run }, context, payload, id)
  const plan = await planOf(rt, contexts, key, withKey(key, told.payload, payload), label)
  const outcome = await upsertGuarded(run, contexts, key, plan, id)
  if (outcome.created !== (id === undefined)) throw new Unforeseen()
  const { previous } = told
  noteWritten(run, { collection, action: outcome.created ? 'create' : 'update', id: outcome.id, previous })
  return outcome
}

/** Which item is meant is the request's to say, not a hook's. */
function withKey({ fields }: Key, payload: unknown, given: unknown): unknown {
  if (!isObject(payload) || !isObject(given)) return payload
  return { ...payload, ...Object.fromEntries(fields.map((name) => [name, member(given, name)])) }
}

class Unforeseen extends Error {}

const attempts = 5

/** What is part of a transaction can only be tried again together with it. */
async function untilForeseen<Result>({ scope }: Writer, work: () => Promise<Result>): Promise<Result> {
  for (let attempt = 1; ; attempt += 1)
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof Unforeseen)) throw error
      if (attempt === attempts || scope !== undefined) throw errors.unavailable()
    }
}

async function runAlone(
  rt: Runtime,
  { actor }: Writer,
  contexts: Contexts,
  { plan, write }: { readonly plan: Plan; readonly write: Write },
): Promise<Outcome> {
  const { text, values } = write
  const fromLog = rowFromLog(contexts.create, 'upsert')
  try {
    return outcomeOf(await commitRow<Outcome>(rt, actor, { text, values, sending: 'prepared' }, fromLog))
  } catch (error) {
    throw placed(error, placeIn(plan))
  }
}

/** No row came back: there is an item with this key that the caller may not update. */
function outcomeOf([outcome]: readonly Outcome[]): Outcome {
  if (outcome === undefined) throw errors.itemDenied('update')
  return outcome
}

function answered(outcomes: readonly Outcome[], rows: readonly string[] | undefined): Upserted {
  return { ids: outcomes.map(({ id }) => id), rows, created: outcomes[0]?.created === true }
}

/** The items of a request: an array is many, an object is one. */
export function upsertPayloads(body: unknown): { readonly payloads: readonly unknown[]; readonly isList: boolean } {
  if (Array.isArray(body)) return { payloads: body, isList: true }
  if (!isObject(body)) throw errors.badBody('Request body must be an object or an array of objects')
  return { payloads: [body], isList: false }
}
