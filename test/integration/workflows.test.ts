import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { chain, flowOf, node } from '../support/flows.ts'

let api: Api

beforeAll(async () => {
  api = await startApi({ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' })
  const fields = { id: { type: 'Integer', primaryKey: true }, state: { type: 'String', allowNull: true } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'order', schema: { fields } })).status).toBe(201)
})

const grants = ['create', 'read', 'update', 'delete'].map((action) => ({
  collection: 'svc_Workflow',
  action,
  fields: ['*'],
}))
const row = async (id: string) => (await api.sql('select * from "svc_Workflow" where id = $1', [id]))[0]
const making = flowOf(
  [node('make', 'service', { operation: 'create', collection: 'order', data: { id: 1 } })],
  [['start', 'make']],
)
const script = flowOf([node('s', 'script', { script: 'return 1' })], [['start', 's']])

describe('saving', () => {
  it('keeps a draft of any graph, and an active workflow only when every rule holds', async () => {
    const broken = flowOf([node('wait', 'delay'), node('alone', 'email')], [['start', 'wait']])
    const empty = await api.admin('POST', '/workflows', { name: 'empty' })
    expect(empty.status, empty.text).toBe(201)
    const draft = await api.admin('POST', '/workflows', { id: 'broken', name: 'b', flow_data: broken })
    expect([draft.status, draft.body]).toEqual([201, { data: { id: 'broken' } }])
    const before = await api.position()
    const active = await api.admin('PATCH', '/workflows/broken', { status: 'active' })
    expect(active.status).toBe(400)
    expect(active.body.error).toMatchObject({ code: 'WORKFLOW_INVALID' })
    expect(active.body.error.details.errors.map(({ nodeId, message }: any) => [nodeId, message])).toEqual([
      ['alone', 'The node has no incoming edge'],
      ['wait', 'delay is missing'],
      ['alone', 'to is missing'],
      ['alone', 'subject is missing'],
      ['alone', 'body is missing'],
    ])
    expect(await api.log(before)).toEqual([])
    expect((await api.admin('PUT', '/items/svc_Workflow?key=id', { id: 'broken', status: 'active' })).status).toBe(400)
    expect((await api.admin('PATCH', '/items/svc_Workflow/broken', { flow_data: { nodes: 7 } })).status).toBe(400)
    expect((await row('broken')).status).toBe('draft')
    const good = await api.admin('PATCH', '/workflows/broken', { flow_data: making, status: 'active' })
    expect(good.status, good.text).toBe(200)
    expect((await api.log(before)).map(({ entity, action }) => [entity, action])).toEqual([['svc_Workflow', 'update']])
  })

  it('counts a version for each change of what it does, and keeps it', async () => {
    await api.admin('POST', '/items/svc_Workflow', { id: 'versioned', name: 'v', flow_data: making })
    await api.admin('PATCH', '/workflows/versioned', { name: 'renamed', version: 9, authority_Id: null })
    expect(await row('versioned')).toMatchObject({ version: 1, name: 'renamed' })
    await api.sql(`update "svc_Workflow" set variables = '{"a": 1}' where id = 'versioned'`)
    const kept = await api.sql(
      `select version, definition->'variables' as v from "svc_WorkflowVersion" where "workflow_Id" = 'versioned' order by 1`,
    )
    expect(kept).toEqual([
      { version: 1, v: {} },
      { version: 2, v: { a: 1 } },
    ])
    const { headers } = await api.admin('GET', '/workflows/versioned')
    const ifMatch = { 'if-match': String(headers.etag) }
    expect((await api.admin('PATCH', '/workflows/versioned', { options: { record: 'all' } }, ifMatch)).status).toBe(200)
    expect((await api.admin('PATCH', '/workflows/versioned', { options: {} }, ifMatch)).status).toBe(412)
  })

  it('makes the user who changes what it does its author, and leaves to administrators what only they may save', async () => {
    const editor = await api.user(grants)
    const [administrator] = await api.sql(`select id from "svc_User" where email not like 'user%' limit 1`)
    await api.admin('POST', '/workflows', { id: 'theirs', name: 't', flow_data: making })
    expect((await row('theirs')).authority_Id).toBe(administrator.id)
    await editor.call('PATCH', '/workflows/theirs', { name: 'n', status: 'active', flow_data: making })
    expect((await row('theirs')).authority_Id).toBe(administrator.id)
    await editor.call('PATCH', '/workflows/theirs', { variables: { x: 1 } })
    expect((await row('theirs')).authority_Id).toBe(editor.id)

    const raised = (more: object) =>
      flowOf(
        [node('make', 'service', { operation: 'create', collection: 'order', data: {}, ...more })],
        [['start', 'make']],
      )
    const secret = flowOf(
      [node('h', 'http', { url: 'https://x.example', headers: { a: '{{ secrets.key }}' } })],
      [['start', 'h']],
    )
    const hook = { trigger_type: 'hook', trigger_hook_collection: 'order' }
    for (const [what, refused] of Object.entries({
      script: { flow_data: script },
      transform: {
        flow_data: flowOf([node('t', 'transform', { transformType: 'script', script: '1' })], [['start', 't']]),
      },
      bypass: { flow_data: raised({ bypassPermissions: true }) },
      secret: { flow_data: secret },
      before: { ...hook, trigger_hook_action: 'items.create' },
      read: { ...hook, trigger_hook_action: 'items.read.after' },
      notify: { options: { notify: [administrator.id] } },
      signed: { options: { webhookSecret: 'key' } },
    })) {
      const by = (call: typeof editor.call, method: string, path: string, body: unknown) =>
        call(method, path, body).then(({ status }) => status)
      expect(await by(editor.call, 'POST', '/workflows', { name: what, ...refused }), what).toBe(403)
      expect(await by(editor.call, 'PATCH', '/items/svc_Workflow/theirs', refused), what).toBe(403)
      expect(await by(editor.call, 'POST', '/items/svc_Workflow/bulk', [{ name: what, ...refused }]), what).toBe(403)
      expect(
        await by(editor.call, 'PUT', '/items/svc_Workflow?key=id', { id: `u-${what}`, name: what, ...refused }),
        what,
      ).toBe(403)
    }
    expect((await editor.call('PATCH', '/workflows/theirs', { options: { notify: [editor.id] } })).status).toBe(200)
    expect(
      (await api.admin('PATCH', '/workflows/theirs', { flow_data: raised({ bypassPermissions: true }) })).status,
    ).toBe(200)
    expect((await row('theirs')).authority_Id).toBe(administrator.id)
    // A flag that an administrator set falls when another user saves.
    const saved = { flow_data: raised({ bypassPermissions: true, itemId: 1 }) }
    expect((await editor.call('PATCH', '/workflows/theirs', saved)).status).toBe(200)
    expect((await row('theirs')).flow_data.nodes[1].data.bypassPermissions).toBe(false)
    expect((await row('theirs')).authority_Id).toBe(editor.id)
    // An administrator's, too, where none run; what cannot be read is refused before it runs.
    const off = await startApi({ WORKFLOW_SCRIPTS: 'off' }, api.database)
    const saving = async ({ admin }: Api, flow_data: object) => {
      const { body } = await admin('POST', '/workflows', { name: 's', status: 'active', flow_data })
      return body.error?.details.errors
    }
    expect(await saving(off, script)).toEqual([
      { code: 'scripts', nodeId: 's', message: 'No scripts run here: WORKFLOW_SCRIPTS is off' },
    ])
    expect(await saving(api, chain(node('s', 'script', { script: 'return {' })))).toEqual([
      { code: 'script', nodeId: 's', message: expect.any(String) },
    ])
    expect(await saving(api, script)).toBeUndefined()
  })

  it('lets administrators alone bring back what only they may save, and makes the caller its author', async () => {
    const editor = await api.user(grants)
    const [administrator] = await api.sql(`select id from "svc_User" where email not like 'user%' limit 1`)
    const raised = flowOf(
      [node('make', 'service', { operation: 'create', collection: 'order', data: {}, bypassPermissions: true })],
      [['start', 'make']],
    )
    const secret = chain(node('h', 'http', { url: 'https://x.example', headers: { a: '{{ secrets.key }}' } }))
    const privileged: Readonly<Record<string, object>> = {
      script: { flow_data: script },
      bypass: { flow_data: raised },
      secret: { flow_data: secret },
      before: { trigger_type: 'hook', trigger_hook_collection: 'order', trigger_hook_action: 'items.create' },
      notify: { options: { notify: [administrator.id] } },
      signed: { options: { webhookSecret: 'key' } },
    }
    const plain = { flow_data: making, trigger_type: 'manual', trigger_hook_action: null, options: {} }
    const lastEvent = async (id: string) =>
      (
        await api.sql(
          `select position::text, id::text as event from "svc_AuditLog" where entity = 'svc_Workflow' and "entityId" = $1 order by "svc_AuditLog".position desc limit 1`,
          [id],
        )
      )[0]
    const ok = async (answer: ReturnType<Call>) => {
      const { status, text } = await answer
      expect([200, 201], text).toContain(status)
    }
    type Door = readonly [method: string, path: string, body: object]
    const undoing = ({ position }: { position: string }): Door => ['POST', '/log/undo', { position }]
    const restoring = (id: string, { event }: { event: string }): Door => [
      ...(['POST', `/items/svc_Workflow/${id}/restore`, { event }] as const),
    ]
    const outOfTrash = (id: string): readonly Door[] => [
      ['PATCH', `/workflows/${id}`, { deletedAt: null }],
      ['PUT', '/items/svc_Workflow?key=id', { id, name: id }],
    ]
    const refuses = async (id: string, [method, path, body]: Door) => {
      const [was, before] = [await row(id), await api.position()]
      const { status, body: answer } = await editor.call(method, path, body)
      const refusal = [403, 'WORKFLOW_NEEDS_ADMINISTRATOR']
      expect([id, method, path, status, answer.error?.code]).toEqual([id, method, path, ...refusal])
      expect([await row(id), await api.log(before)]).toEqual([was, []])
    }
    for (const [what, more] of Object.entries(privileged)) {
      const id = `back-${what}`
      await ok(api.admin('POST', '/workflows', { id, name: id, ...plain, ...more }))
      const created = await lastEvent(id)
      await ok(editor.call('PATCH', `/workflows/${id}`, plain))
      for (const door of [undoing(await lastEvent(id)), restoring(id, created)]) await refuses(id, door)
      expect((await row(id)).authority_Id).toBe(editor.id)
      await ok(api.admin('PATCH', `/workflows/${id}`, more))
      const raisedAgain = await lastEvent(id)
      await ok(editor.call('DELETE', `/workflows/${id}`))
      const deleted = await lastEvent(id)
      if (what !== 'bypass')
        for (const door of [undoing(deleted), restoring(id, raisedAgain), ...outOfTrash(id)]) await refuses(id, door)
      await api.sql(`delete from "svc_Workflow" where id = $1`, [id])
      await refuses(id, undoing(await lastEvent(id)))
    }

    // The restored version is theirs then, and a flag that an administrator set is struck.
    const byEditor = async (id: string, door: Door) => {
      await ok(editor.call(...door))
      const { authority_Id, deletedAt, flow_data } = await row(id)
      const isRaised = flow_data.nodes[1].data.bypassPermissions === true
      expect([door, authority_Id, deletedAt, isRaised]).toEqual([door, editor.id, null, false])
    }
    let made = 0
    const ofAdministrator = async (more: object) => {
      made += 1
      const id = `again-${made}`
      await ok(api.admin('POST', '/workflows', { id, name: id, flow_data: making, ...more }))
      return { id, created: await lastEvent(id) }
    }
    for (const flow_data of [making, raised]) {
      for (const way of [undoing, restoring] as const) {
        const { id, created } = await ofAdministrator({ flow_data })
        await ok(api.admin('PATCH', `/workflows/${id}`, { variables: { a: 1 } }))
        await byEditor(id, way === undoing ? undoing(await lastEvent(id)) : restoring(id, created))
        expect((await row(id)).variables).toEqual({})
      }
      for (const way of [0, 1, 2, 3]) {
        const { id, created } = await ofAdministrator({ flow_data })
        await ok(api.admin('DELETE', `/workflows/${id}`))
        await byEditor(id, [undoing(await lastEvent(id)), restoring(id, created), ...outOfTrash(id)][way]!)
      }
    }
    const { id, created } = await ofAdministrator({})
    await api.sql(`delete from "svc_Workflow" where id = $1`, [id])
    await byEditor(id, undoing(await lastEvent(id)))
    // An administrator may: it is theirs again.
    await ok(api.admin(...undoing(await lastEvent(id))))
    expect((await row(id)).deletedAt).not.toBeNull()
    await ok(api.admin(...restoring(id, created)))
    expect((await row(id)).authority_Id).toBe(administrator.id)
  })

  it('takes one active workflow for each path of a webhook', async () => {
    const webhook = {
      status: 'active',
      flow_data: making,
      trigger_type: 'webhook',
      trigger_webhook_path: '/in/orders',
      trigger_webhook_method: 'POST',
    }
    expect((await api.admin('POST', '/workflows', { id: 'in1', name: 'in', ...webhook })).status).toBe(201)
    expect((await row('in1')).trigger_webhook_path).toBe('in/orders')
    expect((await api.admin('POST', '/workflows', { name: 'in', ...webhook })).status).toBe(409)
    expect(
      (await api.admin('POST', '/workflows', { name: 'in', ...webhook, trigger_webhook_method: 'PUT' })).status,
    ).toBe(201)
  })

  it('seals secrets, which are never read again', async () => {
    const made = await api.admin('POST', '/items/svc_Secret', {
      name: 'stripe',
      value: 'sk_live_the-secret-of-stripe',
      hosts: ['api.stripe.com'],
    })
    expect(made.status, made.text).toBe(201)
    const shown = [
      (await api.admin('GET', '/items/svc_Secret')).text,
      JSON.stringify(await api.sql('select to_jsonb(s) from "svc_Secret" s')),
      JSON.stringify(await api.sql('select to_jsonb(l) from "svc_AuditLog" l')),
    ].join('\n')
    expect(shown).toContain('stripe')
    expect(shown).not.toContain('the-secret-of-stripe')
    const user = await api.user()
    const permission = { role_Id: user.roleId, collection: 'svc_Secret', action: 'create', fields: ['*'] }
    expect((await api.admin('POST', '/permissions', permission)).status).toBe(400)
    expect((await user.call('POST', '/items/svc_Secret', { name: 'x', value: 'y' })).status).toBe(403)
  })
})

describe('the rest of the routes', () => {
  it('checks a graph for every signed-in user', async () => {
    const user = await api.user()
    const { status, body } = await user.call('POST', '/workflows/validate', { flow_data: chain(node('wait', 'delay')) })
    expect([status, body.valid]).toEqual([200, false])
    expect((await user.call('POST', '/workflows/validate', { flow_data: making })).body).toEqual({
      valid: true,
      errors: [],
      warnings: [],
    })
    await api.admin('POST', '/workflows', { id: 'called', name: 'c' })
    const naming = chain(
      ...['called', 'nowhere', '{{trigger.id}}'].map((workflowId, i) => node(`w${i}`, 'workflow', { workflowId })),
      ...[user.id, `nobody,${user.id}`, '{{trigger.id}}'].map((userId, i) =>
        node(`n${i}`, 'notification', { userId, title: 't' }),
      ),
      node('read', 'service', { operation: 'read', collection: 'nothing' }),
    )
    const warnings = [
      { code: 'unknown_collection', message: 'There is no collection nothing', nodeId: 'read' },
      { code: 'unknown_workflow', message: 'There is no workflow nowhere', nodeId: 'w1' },
    ]
    // Which users there are is for those to know who may read them.
    const readers = await api.user([{ collection: 'svc_User', action: 'read', fields: ['id'] }])
    for (const [call, told] of [
      [user.call, warnings],
      [readers.call, [...warnings, { code: 'unknown_user', message: 'There is no user nobody', nodeId: 'n1' }]],
    ] as const)
      expect((await call('POST', '/workflows/validate', { flow_data: naming })).body).toEqual({
        valid: true,
        errors: [],
        warnings: told,
      })
    const missing = await user.call('POST', '/workflows/validate', {})
    expect([missing.status, missing.body.error.message]).toEqual([400, 'Invalid workflow data'])
    expect((await api.anonymous('POST', '/workflows/validate', { flow_data: making })).status).toBe(401)
  })

  it('warns of a query that its author could not run', async () => {
    const read = { operation: 'read', collection: 'order' }
    const lists = [
      node('a', 'service', { ...read, filter: { stat: { eq: '{{trigger.id}}' } } }),
      node('b', 'service', { ...read, filter: { state: { is: 'new' } } }),
      node('c', 'service', { ...read, sort: '-stat' }),
      node('d', 'stats', { collection: 'order', operation: 'sum', field: 'state' }),
      node('e', 'service', {
        ...read,
        filter: {
          state: { in: ['new', '{{trigger.state}}'] },
          OR: [{ state: { eq: '$CURRENT_USER.email' } }, { id: { eq: '{{trigger.id}}' } }],
        },
        sort: '-id',
        fields: ['id'],
      }),
      node('f', 'stats', { collection: 'order', operation: 'count', groupBy: 'state' }),
      node('g', 'file', { operation: 'list', filter: { sizes: 1 } }),
    ]
    const flow_data = chain(...lists)
    const told = async (call: Call) => {
      const { status, body, text } = await call('POST', '/workflows/validate', { flow_data })
      expect([status, body.valid], text).toEqual([200, true])
      return body.warnings.map(({ code, message, nodeId }: any) => [nodeId, code, message])
    }
    const bad = 'Invalid query parameters'
    expect(await told(api.admin)).toEqual([
      ['a', 'query', `${bad}: filter: unknown field "stat": did you mean state?`],
      ['b', 'query', `${bad}: filter.state.is: expected null, true or false`],
      ['c', 'query', `${bad}: sort: unknown field "stat": did you mean state?`],
      ['d', 'query', `${bad}: aggregate: sum does not apply to "state"`],
      ['g', 'query', `${bad}: filter: unknown field "sizes": did you mean size?`],
    ])
    // It says no more than a list that the author asks for themselves.
    const reader = await api.user([{ collection: 'order', action: 'read', fields: ['id'] }])
    const isState = "You don't have permission to read field: state"
    expect(await told(reader.call)).toEqual([
      ['a', 'query', `${bad}: filter: unknown field "stat"`],
      ['b', 'query', isState],
      ['c', 'query', `${bad}: sort: unknown field "stat"`],
      ...['d', 'e', 'f'].map((id) => [id, 'query', isState]),
      ['g', 'query', "You don't have permission to read items in 'svc_File'"],
    ])
  })

  it('carries workflows from one installation to another', async () => {
    const flow = flowOf(
      [node('make', 'service', { operation: 'create', collection: 'order', data: {}, bypassPermissions: true })],
      [['start', 'make']],
    )
    await api.admin('POST', '/workflows', { id: 'carried', name: 'c', flow_data: flow, variables: { a: 1 } })
    const { body: file } = await api.admin('POST', '/workflows/export', { workflowIds: ['carried'] })
    expect(file).toMatchObject({
      message: 'Exported 1 workflow(s)',
      version: '1.0',
      workflows: [{ id: 'carried', version: 1 }],
    })
    expect((await api.admin('GET', '/workflows/carried/export')).body.workflows).toEqual(file.workflows)
    expect((await api.admin('POST', '/workflows/import', file)).body).toEqual({
      message: 'Import completed',
      summary: { total: 1, created: 0, updated: 0, skipped: 1, errors: 0 },
      results: [{ id: 'carried', name: 'c', status: 'skipped', message: 'There is one already' }],
    })
    await api.admin('DELETE', '/workflows/carried')
    const preview = await api.admin('POST', '/workflows/import/preview', file)
    expect(preview.body.workflows).toMatchObject([{ id: 'carried', action: 'update' }])
    const bad = { id: 'bad', name: 'bad', flow_data: { nodes: [node('x', 'wat')], edges: [] } }
    const { body } = await api.admin('POST', '/workflows/import', {
      workflows: [...file.workflows, { id: 'new', name: 'new' }, bad],
    })
    expect(body.summary).toEqual({ total: 3, created: 1, updated: 1, skipped: 0, errors: 1 })
    expect(await row('carried')).toMatchObject({ deletedAt: null, variables: { a: 1 } })
    expect((await row('carried')).flow_data.nodes[1].data.bypassPermissions).toBe(false)
    const texts = async (path: string, sent: unknown, call = api.admin) => {
      const { status, body: answer } = await call('POST', path, sent)
      return [status, answer.error.message]
    }
    expect(await texts('/workflows/export', {})).toEqual([400, 'workflowIds array is required'])
    expect(await texts('/workflows/export', { workflowIds: ['none'] })).toEqual([404, 'Workflow not found'])
    expect(await texts('/workflows/import', {})).toEqual([400, 'workflows array is required'])
    expect(await texts('/workflows/import', { workflows: [7] })).toEqual([400, 'Invalid import file format'])
    const user = await api.user(grants)
    expect(await texts('/workflows/import', { workflows: [] }, user.call)).toEqual([
      403,
      'Only administrators can import workflows',
    ])
    // Whatever they send: nothing of it is read.
    const json = 'application/json'
    const broken = [
      ['{"', json],
      ['[]', json],
      ['no form', 'multipart/form-data; boundary=x'],
    ] as const
    for (const path of ['/workflows/export', '/workflows/import', '/workflows/import/preview'])
      for (const [sent, type] of [['{"workflowIds":["new"],"workflows":[]}', json] as const, ...broken]) {
        const answers = [user.call, api.admin].map((call) => call('POST', path, sent, { 'content-type': type }))
        const [refused, read] = await Promise.all(answers)
        const message = `Only administrators can ${path.includes('import') ? 'import' : 'export'} workflows`
        expect([path, sent, refused!.status, refused!.body.error.message]).toEqual([path, sent, 403, message])
        expect([path, sent, read!.status < 300]).toEqual([path, sent, !broken.some(([one]) => one === sent)])
      }
  })

  it('is not there where workflows are off', async () => {
    const off = await startApi({ WORKFLOWS_ENABLED: 'false' }, api.database)
    for (const [method, path] of [
      ['GET', '/workflows'],
      ['POST', '/workflows/validate'],
      ['POST', '/webhook/x'],
    ] as const)
      expect([path, (await off.admin(method, path, method === 'GET' ? undefined : {})).status]).toEqual([path, 404])
    // Rows are still rows, and may be no more than where they run.
    const editor = await api.user(grants)
    const byEditor = off.as(editor.token)
    const made = (call: Call, row: object) => call('POST', '/items/svc_Workflow', { name: 'off', ...row })
    expect((await made(byEditor, { flow_data: script })).status).toBe(403)
    expect((await made(off.admin, { status: 'active', flow_data: chain(node('w', 'delay')) })).status).toBe(400)
    const kept = await made(byEditor, { id: 'while-off', status: 'active', flow_data: making })
    expect(kept.status, kept.text).toBe(201)
    expect(await row('while-off')).toMatchObject({ authority_Id: editor.id, version: 1 })
  })
})
