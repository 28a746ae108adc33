import { expect, it } from 'vitest'
import { openCatalog } from '../../src/catalog/store.ts'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { startApi } from '../support/api.ts'
import { chain, node } from '../support/flows.ts'
import { waitFor } from '../support/wait.ts'

it('triggers by changes of a collection, and of a field, that another process has made just now', async () => {
  const api = await startApi()
  // This worker is told of no definition: only the changes themselves can have it look.
  const catalog = await openCatalog(api.runtime.db, undefined, api.runtime.log)
  const service = await openWorkflows({ ...api.runtime, catalog })
  const triggers = () =>
    api.sql(
      `select trigger_data->'document' as row from "svc_WorkflowExecution" where status = 'completed' order by "createdAt"`,
    )
  try {
    const fields = { title: { type: 'String' } }
    await api.admin('POST', '/schemas', { collectionName: 'parcel', schema: { fields } })
    const hook = { trigger_type: 'hook', trigger_hook_collection: 'parcel', trigger_hook_action: 'items.create.after' }
    const workflow = {
      id: 'parcels',
      name: 'Parcels',
      status: 'active',
      ...hook,
      flow_data: chain(node('a', 'variable', { variables: { a: 1 } })),
    }
    expect((await api.admin('POST', '/workflows', workflow)).status).toBe(201)
    expect((await api.admin('POST', '/items/parcel', { title: 'first' })).status).toBe(201)
    const [first] = await waitFor(async () => ((found) => (found.length === 1 ? found : undefined))(await triggers()))
    expect(first.row).toMatchObject({ title: 'first' })

    await api.admin('PATCH', '/schemas/parcel', {
      schema: { fields: { weight: { type: 'Integer', allowNull: true } } },
    })
    expect((await api.admin('POST', '/items/parcel', { title: 'second', weight: 7 })).status).toBe(201)
    const [, second] = await waitFor(async () =>
      ((found) => (found.length === 2 ? found : undefined))(await triggers()),
    )
    expect(second.row).toMatchObject({ title: 'second', weight: 7 })
  } finally {
    await service.stop(5000)
  }
})
