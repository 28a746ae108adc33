import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { chain, node } from '../support/flows.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

let api: Api

/** Of each row, of all rows of a transaction (nine tenths of what it has), and of the workflow. */
const budgetMs = 1500
const transactionMs = 4000
const workMs = 600

beforeAll(async () => {
  api = await startApi({
    WORKFLOW_BEFORE_BUDGET_MS: String(budgetMs),
    TRANSACTION_TIMEOUT_MS: String(transactionMs),
  })
  const fields = { title: { type: 'String', allowNull: true } }
  for (const collectionName of ['note', 'entry'])
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
})

const guard = async (id: string, collection: string, script: string) => {
  const { status, text } = await api.admin('POST', '/workflows', {
    ...{ id, name: id, status: 'active', flow_data: chain(node('s', 'script', { script })) },
    ...{ trigger_type: 'hook', trigger_hook_collection: collection, trigger_hook_action: 'items.create' },
  })
  expect(status, text).toBe(201)
}
const resting = (ms: number) => `await new Promise((resolve) => setTimeout(resolve, ${ms}))`
const titles = async (collection: string) =>
  (await api.sql(`select title from "${collection}" order by title`)).map(({ title }) => title)
const list = (length: number) => Array.from({ length }, (_, i) => ({ title: `t${i}` }))

describe('the time of workflows before a change', () => {
  it('grows with the rows, up to what a transaction may take', async () => {
    await guard('slow', 'note', `${resting(workMs)}; return { data: { title: trigger.data.title + '!' } }`)
    const few = await api.admin('POST', '/items/note/bulk', list(3))
    expect(few.status, few.text).toBe(201)
    expect(await titles('note')).toEqual(['t0!', 't1!', 't2!'])

    const position = await api.position()
    const refusal = {
      ...{ code: 'HOOKS_TOO_SLOW', status: 413 },
      message: expect.stringMatching(
        /^The workflow slow took too long: \d\.\d s for \d rows are too much for one transaction \(TRANSACTION_TIMEOUT_MS\)\. Send fewer rows at once\.$/,
      ),
    }
    const many = await api.admin('POST', '/items/note/bulk', list(20))
    expect({ ...many.body.error, status: many.status }).toMatchObject(refusal)
    expect(many.headers['retry-after']).toBeUndefined()
    const content = ['title', ...list(20).map(({ title }) => title)].join('\n')
    const { body } = await api.anonymous('POST', '/auth/login', administrator)
    const file = { name: 'csvFile', filename: 'rows.csv', content }
    const imported = await upload(api, body.token, '/items/note/import-csv', [file])
    expect({ ...imported.body.error, status: imported.status }).toMatchObject(refusal)
    expect(await titles('note')).toHaveLength(3)
    const failed = () =>
      api.sql(`select 1 from "svc_WorkflowExecution" where "workflow_Id" = 'slow' and status = 'failed'`)
    await waitFor(async () => (await failed()).length === 2)
    expect((await api.log(position)).map(({ entity }) => entity)).not.toContain('note')
  })

  it('of one row is its own, also where its workflow writes others that have workflows', async () => {
    await guard(
      'writing',
      'entry',
      `for (let i = 0; i < 5; i += 1) await items.create('note', { title: 'of an entry' })`,
    )
    const { status, body, headers } = await api.admin('POST', '/items/entry', { title: 'x' })
    expect([status, headers['retry-after'], body.error.message]).toEqual([
      ...[503, '1'],
      expect.stringMatching(
        /^The workflow (slow|writing) took too long: row 1 of this change has 1500 ms \(WORKFLOW_BEFORE_BUDGET_MS\)\. Please try again later\.$/,
      ),
    ])
    expect([...(await titles('entry')), ...(await titles('note'))]).toEqual(['t0!', 't1!', 't2!'])
  })
})
