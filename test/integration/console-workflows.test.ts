import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { openWorkflows } from '../../src/workers/workflows.ts'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'
import { chain, flowOf, node } from '../support/flows.ts'

/** Runs wherever it is taken for HTML. */
const attack = `"><img src=x onerror=alert(1)><svg onload=alert(2)>`

describeWithBrowser('workflows', () => {
  let it_: Console
  let worker: Awaited<ReturnType<typeof openWorkflows>>
  const stored = async (id: string) => (await it_.api.admin('GET', `/items/svc_Workflow/${id}`)).body.data
  const canvas = (page: Page) => page.getByLabel('Canvas', { exact: true })
  const nodeOf = (page: Page, name: RegExp) => canvas(page).getByRole('button', { name })
  const save = async (page: Page) => {
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await expect.poll(() => page.getByText('not saved').count()).toBe(0)
  }

  beforeAll(async () => {
    it_ = await startConsole()
    await it_.api.admin('POST', '/schemas', {
      ...{ collectionName: 'note', schema: { fields: { text: { type: 'String', allowNull: true } } } },
    })
    worker = await openWorkflows(it_.api.runtime)
  })
  afterAll(() => worker?.stop(5000))

  it('makes one from nothing, mends what the server finds, runs it, and looks at what each node did', async () => {
    const { api } = it_
    const { page, wrong } = await it_.visit('/workflows')
    await page.getByRole('button', { name: 'New workflow' }).click()
    const making = page.getByRole('dialog', { name: 'New workflow' })
    await making.getByLabel('Name').fill(`Greet ${attack}`)
    await making.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: attack }).waitFor()
    const id = decodeURIComponent(page.url().split('/').at(-1)!)

    const add = async (title: string) => {
      await page.getByRole('button', { name: 'Add a node' }).click()
      await page.getByRole('menuitem', { name: new RegExp(`^${title} `) }).click()
    }
    await nodeOf(page, /^start Trigger/).click()
    await add('Condition')
    await page.getByLabel('What to fix').getByText('conditions are missing').waitFor()
    const inspector = page.getByLabel('Node condition-1')
    await inspector.getByLabel('Conditions').fill('[{"field": "trigger.name", "operator": "is_not_empty"}]')
    await page.getByText('conditions are missing').waitFor({ state: 'detached' })
    await add('Rows')
    const rows = page.getByLabel(/^Node /)
    await rows.getByLabel('Name', { exact: true }).fill(attack)
    await rows.getByLabel('Operation').selectOption('create')
    const offered = await rows
      .getByLabel('Collection')
      .evaluate((control: any) => [...control.list.options].map(({ value }) => value))
    expect(offered).toContain('note')
    await rows.getByLabel('Collection').fill('note')
    await rows.getByLabel('Values').fill('{"text": "{{trigger.name}}"}')
    await page.getByText('Nothing is connected', { exact: false }).waitFor({ state: 'detached' })
    await expectFits(page)

    // By the keyboard alone: another node, its edge from a handle, its place, and all of it back.
    await add('Variables')
    await page.getByRole('button', { name: 'Undo the change' }).click()
    await page.getByRole('button', { name: 'Redo the change' }).click()
    const last = nodeOf(page, /^variable-1 Variables/)
    await canvas(page).getByRole('button', { name: 'Connect condition-1 from false' }).press('Enter')
    await last.press('Enter')
    await last.press('Enter')
    await last.press('ArrowDown')
    await page.getByLabel('Node variable-1').getByLabel('Variables').fill('{"a": 1}')
    const written = await api.position()
    await save(page)
    const events = await api.log(written)
    expect(events.map(({ entity, action }) => `${entity} ${action}`)).toEqual(['svc_Workflow update'])
    const { flow_data } = await stored(id)
    expect(flow_data.edges.map((edge: any) => [edge.source, edge.sourceHandle ?? '', edge.target])).toEqual([
      ['start', '', 'condition-1'],
      ['condition-1', 'true', 'service-1'],
      ['service-1', '', 'variable-1'],
      ['condition-1', 'false', 'variable-1'],
    ])
    expect(flow_data.nodes.every(({ position }: any) => position.x >= 0)).toBe(true)

    await page.getByRole('button', { name: 'Settings…' }).click()
    const settings = page.getByRole('dialog', { name: 'Settings of the workflow' })
    await expectAccessible(page)
    await settings.getByLabel('State').selectOption('active')
    await settings.getByRole('button', { name: 'Save' }).click()
    await settings.waitFor({ state: 'detached' })
    expect((await stored(id)).status).toBe('active')

    await page.getByRole('button', { name: 'Run…' }).click()
    const run = page.getByRole('dialog', { name: /^Run/ })
    await run.getByLabel('Data of the trigger').fill(JSON.stringify({ name: attack }))
    await run.getByRole('button', { name: 'Run', exact: true }).click()
    await page.waitForURL(/execution=/)
    await page.getByLabel('Execution', { exact: true }).getByText('completed').waitFor()
    await nodeOf(page, /onerror.* Rows, completed/).click()
    await page.getByLabel('What it did').getByText(/"id":/).waitFor()
    expect((await api.admin('GET', '/items/note?fields=text')).body.data).toEqual([{ text: attack }])
    await expectFits(page)
    // Step by step: before the last node had run.
    await page.getByRole('slider').press('Home')
    await expect.poll(() => nodeOf(page, /completed/).count()).toBe(0)
    await page.getByLabel('Execution', { exact: true }).getByRole('button', { name: 'Close' }).click()
    await page.getByLabel('Executions').getByRole('button').click()
    await nodeOf(page, /onerror.* Rows, completed/).waitFor()

    await page
      .getByLabel('Node service-1')
      .or(page.getByLabel(/^Node /))
      .getByText('Test this node')
      .click()
    await page.getByLabel('Context').fill('{"trigger": {"name": "tried"}}')
    await page.getByRole('button', { name: 'Run it, with its effects' }).click()
    await page.getByLabel('Result').last().getByText(/"id":/).waitFor()
    expect((await api.admin('GET', '/items/note?filter={"text":"tried"}')).body.totalCount).toBe(1)

    await page
      .getByRole('button', { name: 'List', exact: true })
      .or(page.getByRole('link', { name: 'List', exact: true }))
      .click()
    await page
      .getByLabel('Nodes', { exact: true })
      .getByText(/false leads to variable-1/)
      .waitFor()
    await expectFits(page)
    await page.getByRole('link', { name: 'Workflows' }).last().click()
    await page.getByRole('row', { name: /Greet/ }).getByText('completed').waitFor()
    await expectFits(page)
    expect(wrong).toEqual([])
  })

  it('moves and connects by the pointer, watches a run live, and goes on from the node that failed', async () => {
    const { api } = it_
    const flow = flowOf(
      [
        node('wait', 'delay', { delay: 1500 }),
        node('fails', 'service', {
          operation: 'update',
          collection: 'note',
          itemId: '{{trigger.note}}',
          data: { text: 'b' },
        }),
        node('free', 'variable', { variables: { a: 1 } }),
      ],
      [
        ['start', 'wait'],
        ['wait', 'fails'],
      ],
    )
    await api.admin('POST', '/workflows', { id: 'watched', name: 'Watched', flow_data: flow })
    const { page, wrong } = await it_.visit('/workflows/watched')
    await page.getByLabel('What to fix').waitFor({ state: 'detached' })
    await page.getByText('1 node has something to fix').waitFor()
    const port = (await canvas(page).getByRole('button', { name: 'Connect fails' }).boundingBox())!
    const free = nodeOf(page, /^free/)
    const target = (await free.boundingBox())!
    await page.mouse.move(port.x + 6, port.y + 6)
    await page.mouse.down()
    await page.mouse.move(target.x + 40, target.y + 20, { steps: 5 })
    await page.mouse.up()
    await page.getByText('1 node has something to fix').waitFor({ state: 'detached' })
    const before = (await free.boundingBox())!
    await page.mouse.move(before.x + 40, before.y + 20)
    await page.mouse.down()
    await page.mouse.move(before.x + 40, before.y + 120, { steps: 5 })
    await page.mouse.up()
    expect((await free.boundingBox())!.y).toBe(before.y + 100)
    await save(page)
    expect((await api.admin('PATCH', '/workflows/watched', { status: 'active' })).status).toBe(200)
    await page.reload()

    await page.getByRole('button', { name: 'Run…' }).click()
    const run = page.getByRole('dialog', { name: /^Run/ })
    await run.getByLabel('Data of the trigger').fill('{"note": "0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44"}')
    await run.getByRole('button', { name: 'Run', exact: true }).click()
    await nodeOf(page, /^wait Delay, running/).waitFor()
    await nodeOf(page, /^fails Rows, failed/).waitFor()
    await page.getByRole('button', { name: 'Retry', exact: true }).waitFor()
    const first = page.url()
    await page.getByRole('button', { name: 'Retry', exact: true }).click()
    await expect.poll(() => page.url()).not.toBe(first)
    await nodeOf(page, /^wait Delay, completed/).waitFor()
    await expect.poll(() => page.getByLabel('Executions').getByText('failed', { exact: true }).count()).toBe(2)

    // Once it is mended, the execution goes on with what the workflow is now.
    const withCurrent = page.getByRole('button', { name: 'Retry with the current version' })
    expect(await withCurrent.count()).toBe(0)
    const { flow_data } = await stored('watched')
    const nodes = flow_data.nodes.map((one: { id: string }) =>
      one.id === 'fails' ? { ...one, type: 'variable', data: { variables: { mended: true } } } : one,
    )
    await api.admin('PATCH', '/workflows/watched', { flow_data: { ...flow_data, nodes } })
    await page.reload()
    await withCurrent.click()
    await nodeOf(page, /^fails Variables, completed/).waitFor()
    await page.getByLabel('Executions').getByText('completed', { exact: true }).waitFor()
    expect(wrong).toEqual([])
  })

  it('shows that another user was first, and does not write over them unasked', async () => {
    const { api } = it_
    const flow = chain(node('a', 'variable', { variables: { a: 1 } }))
    await api.admin('POST', '/workflows', { id: 'shared', name: 'Shared', flow_data: flow })
    const { page, wrong } = await it_.visit('/workflows/shared')
    await nodeOf(page, /^a Variables/).click()
    await page.getByLabel('Node a').getByLabel('Name', { exact: true }).fill('Mine')
    const theirs = chain(node('b', 'variable', { variables: { b: 1 } }))
    await api.admin('PATCH', '/workflows/shared', { flow_data: theirs })
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    const dialog = page.getByRole('dialog', { name: /^Somebody else/ })
    await dialog.getByText('b Variables').waitFor()
    await expectAccessible(page)
    await dialog.getByRole('button', { name: 'Take theirs' }).click()
    await nodeOf(page, /^b Variables/).waitFor()
    expect((await stored('shared')).flow_data.nodes[1].id).toBe('b')
    // The refusal itself is told by the browser.
    expect(wrong.filter((text) => !text.includes('412'))).toEqual([])
  })

  it('keeps an option that is no JSON while another node is looked at, and saves nothing before it is', async () => {
    const { api } = it_
    const flow = chain(node('a', 'variable', { variables: { a: 1 } }), node('b', 'variable'))
    await api.admin('POST', '/workflows', { id: 'broken', name: 'Broken', flow_data: flow })
    const { page, wrong } = await it_.visit('/workflows/broken')
    const save = page.getByRole('button', { name: 'Save', exact: true })
    await nodeOf(page, /^a Variables/).click()
    await page.getByLabel('Node a').getByLabel('Variables').fill('{"a": 2')
    await nodeOf(page, /^b Variables/).click()
    await page.getByLabel('Node b').getByLabel('Name', { exact: true }).fill('Other')
    await page.getByText(/^To save, fix variables of a: This is no JSON/).waitFor()
    await page.getByText('not saved', { exact: true }).waitFor()
    expect(await save.isDisabled()).toBe(true)
    await nodeOf(page, /^a Variables/).click()
    expect(await page.getByLabel('Node a').getByLabel('Variables').inputValue()).toBe('{"a": 2')
    await expectAccessible(page)
    await page.getByLabel('Node a').getByLabel('Variables').fill('{"a": 2}')
    await save.click()
    await page.getByText('not saved', { exact: true }).waitFor({ state: 'detached' })
    const { nodes } = (await stored('broken')).flow_data
    expect(nodes.slice(1).map(({ data }: any) => data)).toEqual([{ variables: { a: 2 } }, { label: 'Other' }])
    expect(wrong).toEqual([])
  })

  it('asks before unsaved changes are left for another page, and comes from the list of operations', async () => {
    const { api } = it_
    await api.admin('POST', '/workflows', { id: 'kept', name: 'Kept', flow_data: chain(node('a', 'variable')) })
    const { page, wrong } = await it_.visit('/operations/workflows?open=kept')
    await page.getByRole('link', { name: 'edit it on the canvas' }).click()
    await nodeOf(page, /^a Variables/).click()
    await page.getByLabel('Node a').getByLabel('Name', { exact: true }).fill('Renamed')
    const question = page.getByRole('dialog', { name: 'Leave without saving?' })
    const leave = () => page.getByRole('navigation', { name: 'You are here' }).getByRole('link').click()
    // Another state of the same page loses nothing.
    await page.getByRole('button', { name: 'List', exact: true }).click()
    await page
      .getByLabel('Nodes')
      .getByRole('button', { name: /^Renamed/ })
      .waitFor()
    expect(await question.count()).toBe(0)
    await leave()
    await question.waitFor()
    await expectAccessible(page)
    await question.getByRole('button', { name: 'Cancel' }).click()
    await page
      .getByLabel('Nodes')
      .getByRole('button', { name: /^Renamed/ })
      .waitFor()
    await leave()
    await question.getByRole('button', { name: 'Leave' }).click()
    await page.getByRole('heading', { name: 'Workflows', exact: true }).waitFor()
    expect((await stored('kept')).flow_data.nodes[1].data.label).not.toBe('Renamed')
    // Nothing is asked where nothing would be lost.
    await page.getByRole('link', { name: 'Kept' }).click()
    await nodeOf(page, /^a Variables/).waitFor()
    await leave()
    await page.getByRole('heading', { name: 'Workflows', exact: true }).waitFor()
    expect(wrong).toEqual([])
  })

  it('lets the user choose where another has changed the settings meanwhile', async () => {
    const { api } = it_
    await api.admin('POST', '/workflows', { id: 'both', name: 'Both', flow_data: chain(node('a', 'variable')) })
    const { page, wrong } = await it_.visit('/workflows/both')
    await nodeOf(page, /^a Variables/).waitFor()
    await page.getByRole('button', { name: 'Settings…' }).click()
    const settings = page.getByRole('dialog', { name: 'Settings of the workflow' })
    await settings.getByLabel('Name').fill('Mine')
    await settings.getByLabel('Description').fill('by me')
    await api.admin('PATCH', '/workflows/both', { name: 'Theirs', trigger_type: 'manual', variables: { a: 1 } })
    await settings.getByRole('button', { name: 'Save' }).click()
    const choice = page.getByRole('dialog', { name: 'Somebody else has changed this meanwhile' })
    await choice.getByRole('radio', { name: /Theirs/ }).check()
    await expectAccessible(page)
    await choice.getByRole('button', { name: 'Save the result' }).click()
    await page.getByRole('heading', { name: 'Theirs' }).waitFor()
    await expect.poll(() => stored('both')).toMatchObject({ name: 'Theirs', description: 'by me', variables: { a: 1 } })
    expect(wrong.filter((text) => !text.includes('412'))).toEqual([])
  })

  it('lets those who may only read look, and nothing else', async () => {
    const { api } = it_
    const reader = await api.user([{ collection: 'svc_Workflow', action: 'read', fields: '*' }])
    await api.admin('POST', '/workflows', { id: 'seen', name: 'Seen', flow_data: chain(node('a', 'variable')) })
    const { page, wrong } = await it_.visit('/workflows/seen', {
      as: { email: reader.email, password: 'password of a user' },
    })
    await nodeOf(page, /^a Variables/).click()
    await page.getByLabel('Node a').getByText('Leads to').waitFor()
    expect(
      await page
        .getByRole('button', { name: /^(Save|Settings…|Add a node|Undo the change|Connect a|Delete this node)$/ })
        .count(),
    ).toBe(0)
    expect(await page.getByLabel('Node a').getByLabel('Name', { exact: true }).isDisabled()).toBe(true)
    expect(wrong.filter((text) => !text.includes('403'))).toEqual([])
  })
})
