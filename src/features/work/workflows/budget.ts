import type { Configuration } from '../../../config/config.ts'
import { type AppError, errors } from '../../../errors.ts'
import { tooManyForHooks } from '../../data/hooks/hooks.ts'

/**
 * How long workflows may take before a change: each row has a time of its own, and all rows of a transaction have most of the time
 * that the transaction may take.
 */
export type HookBudget = {
  /** When it is used up, on the clock of `performance`. */
  readonly deadline: number
  /** The answer then, which no node catches: it names the workflow that was running. */
  readonly over: (workflowId: string) => AppError
}

type Spending = { readonly startedAt: number; rows: number; readonly open: Set<HookBudget> }

const spent = new WeakMap<object, Spending>()

/** The rest is for writing the rows. */
const shareOfHooks = 0.9

/**
 * Runs the workflows of one row within its budget. `key`: the transaction, or what else is changed or read at once. The workflows of
 * rows that a workflow writes have no more time than it has.
 */
export async function withinBudget<Result>(
  { config }: Configuration,
  key: object,
  what: 'row' | 'read',
  work: (budget: HookBudget) => Promise<Result>,
): Promise<Result> {
  const spending = spent.get(key) ?? { startedAt: performance.now(), rows: 0, open: new Set<HookBudget>() }
  spent.set(key, spending)
  if (spending.open.size === 0) spending.rows += 1
  const { startedAt, rows } = spending
  const { beforeBudgetMs } = config.workflows
  const own: HookBudget = {
    deadline: performance.now() + beforeBudgetMs,
    over: (id) => slowRow(id, beforeBudgetMs, what === 'read' ? 'this read' : `row ${rows} of this change`),
  }
  const all: HookBudget = {
    deadline: startedAt + config.database.transactionTimeoutMs * shareOfHooks,
    over: (id) => tooManyRows(id, rows, performance.now() - startedAt),
  }
  const budget = [own, all, ...spending.open].reduce((a, b) => (b.deadline < a.deadline ? b : a))
  // A budget of its own, as several may end at the same time.
  const entry = { ...budget }
  spending.open.add(entry)
  try {
    return await work(entry)
  } finally {
    spending.open.delete(entry)
  }
}

const slowRow = (id: string, ms: number, where: string): AppError =>
  errors.unavailable(
    `The workflow ${id} took too long: ${where} has ${ms} ms (WORKFLOW_BEFORE_BUDGET_MS). Please try again later.`,
  )

/** The same rows would take as long again, so the client is not told to repeat. */
const tooManyRows = (id: string, rows: number, ms: number): AppError =>
  tooManyForHooks(
    `The workflow ${id} took too long: ${(ms / 1000).toFixed(1)} s for ${rows} rows are too much for one transaction ` +
      '(TRANSACTION_TIMEOUT_MS). Send fewer rows at once.',
  )
