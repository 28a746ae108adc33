import { mkdir, readFile } from 'node:fs/promises'
import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'

/** One for all pages here. */
let started: Promise<Console> | undefined
const openConsole = (): Promise<Console> => {
  started ??= startConsole()
  return started
}

describeWithBrowser('the permissions page', () => {
  let console_: Console
  let user: Awaited<ReturnType<Console['api']['user']>>
  const ids: string[] = []
  beforeAll(async () => {
    console_ = await openConsole()
    const { api } = console_
    const fields = { title: { type: 'String' }, stars: { type: 'Integer' } }
    await api.admin('POST', '/schemas', { collectionName: 'book', schema: { usertrack: true, fields } })
    user = await api.user([
      { collection: 'book', action: 'read', fields: '*' },
      // Opens no field.
      { collection: 'book', action: 'update' },
    ])
    for (let stars = 1; stars <= 5; stars += 1)
      ids.push((await api.admin('POST', '/items/book', { title: `Book ${stars}`, stars })).body.data.id)
  })

  it('narrows a rule after it has shown what that takes away, and explains what is left', async () => {
    const { page, wrong } = await console_.visit('/permissions')
    const cell = page.getByRole('button', { name: 'role1, book: read, update some', exact: true })
    await cell.waitFor()
    await shot(page, 'matrix')
    await expectFits(page)
    await page.setViewportSize({ width: 1280, height: 800 })
    await cell.click()
    await page.getByRole('button', { name: 'Edit as JSON' }).click()
    await page.getByRole('textbox', { name: 'Which items' }).fill('{"stars": {"gte": 4}}')
    await shot(page, 'rule')
    await page.getByRole('button', { name: 'Save…' }).click()
    await page.getByText('1 user loses 3 rows').waitFor()
    await shot(page, 'impact')
    expect((await user.call('GET', '/items/book')).body.totalCount).toBe(5)
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await expect.poll(async () => (await user.call('GET', '/items/book')).body.totalCount).toBe(2)
    await page.getByRole('dialog', { name: 'What this changes' }).waitFor({ state: 'detached' })
    await page.getByRole('dialog', { name: 'role1 · book' }).getByRole('button', { name: 'Close' }).click()
    await page.getByRole('button', { name: 'role1, book: read some, update some', exact: true }).waitFor()

    // Looking at a permission opens nothing that the permission does not.
    await page.getByRole('button', { name: 'role1, book: read some, update some', exact: true }).click()
    await page.getByRole('tab', { name: 'update' }).click()
    expect(await page.getByLabel('Every field').isChecked()).toBe(false)
    await page.getByRole('button', { name: 'Save…' }).click()
    await page.getByText(/^Nothing changes\.|^Nobody gains or loses/).waitFor()
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await page.getByRole('dialog', { name: 'What this changes' }).waitFor({ state: 'detached' })
    expect((await user.call('PATCH', `/items/book/${ids[4]}`, { title: 'taken' })).status).toBe(403)

    // From the record: who sees it, and why another user does not.
    await page.goto(`${console_.address}/console/data/book/${ids[1]}`)
    await page.getByRole('link', { name: 'Who can see this' }).click()
    await page.getByLabel('Who else').getByRole('link', { name: 'admin@example.com' }).waitFor()
    expect(await page.getByLabel('Who else').getByRole('link').count()).toBe(1)
    await page.getByLabel('User', { exact: true }).fill(user.email)
    await page.getByRole('option', { name: user.email }).click()
    await page.getByRole('button', { name: 'Explain' }).click()
    await page.getByText('Refused').waitFor()
    expect(Object.fromEntries(new URL(page.url()).searchParams)).toEqual({
      ...{ user: user.id, collection: 'book', action: 'read' },
      id: `${ids[1]}`,
    })
    await page.getByLabel('Conditions').getByText('gte 4').waitFor()
    await page.getByText('it has 2').waitFor()
    await page.getByLabel('Who else').getByText('administrator').waitFor()
    await shot(page, 'explain')
    await expectFits(page)
    expect(wrong).toEqual([])
  })

  it('is for administrators', async () => {
    const { page } = await console_.visit('/data', { as: { email: user.email, password: 'password of a user' } })
    await page.getByRole('heading', { name: 'Data' }).waitFor()
    expect(await page.getByRole('link', { name: 'Permissions' }).count()).toBe(0)
  })
})

/** For people to look at, where CONSOLE_SHOTS names a folder. */
async function shot(page: { screenshot(options: { path: string }): Promise<unknown> }, name: string): Promise<void> {
  const folder = process.env.CONSOLE_SHOTS
  if (folder === undefined) return
  await mkdir(folder, { recursive: true })
  await page.screenshot({ path: `${folder}/administration-${name}.png` })
}

describeWithBrowser('the log explorer', () => {
  it('leads from counts to one request, and undoes it', async () => {
    const console_ = await openConsole()
    const { api } = console_
    await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { title: { type: 'String' } } } })
    const { body } = await api.admin('POST', '/items/note', { title: '<img src=x onerror=alert(1)>' })
    await api.admin('PATCH', `/items/note/${body.data.id}`, { title: 'changed' }, { 'x-svc-agent': 'explorer' })
    const { page, wrong } = await console_.visit('/log')
    await page.getByLabel('Collection').getByRole('button', { name: 'note' }).click()
    await page.waitForURL(/collection=note/)
    await expect.poll(() => page.getByLabel('Requests').getByRole('listitem').count()).toBe(2)
    await shot(page, 'log')
    await expectFits(page)
    await page.setViewportSize({ width: 1280, height: 800 })
    await page.getByRole('button', { name: /update note.*explorer/ }).click()
    await page.waitForURL(/request=/)
    await page.getByRole('dialog').getByText('update note').click()
    await shot(page, 'request')
    await page.getByRole('button', { name: 'Undo…' }).click()
    await page.getByText('0 brought back, 1 set back, 0 deleted').waitFor()
    await page.getByRole('button', { name: 'Undo', exact: true }).click()
    const title = async () => (await api.admin('GET', `/items/note/${body.data.id}`)).body.data.title
    await expect.poll(title).toBe('<img src=x onerror=alert(1)>')
    await page.getByText('This request was undone.').waitFor()
    expect(wrong).toEqual([])
  })
})

/** Runs wherever it is taken for HTML. */
const attack = `"><img src=x onerror=alert(1)><svg onload=alert(2)>`

describeWithBrowser('the schema page', () => {
  const fieldsOf = async (console_: Console, collection: string) =>
    (await console_.api.admin('GET', `/schemas/${collection}`)).body.data.schema.fields

  it('makes and changes a collection after it has shown what that executes, stops and loses', async () => {
    const console_ = await openConsole()
    const { api } = console_
    const customer = { name: attack, description: attack, fields: { name: { type: 'String' } } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'customer', schema: customer })).status).toBe(201)
    // Wide, so that what is told covers no button.
    const { page, wrong } = await console_.visit('/schema', { viewport: { width: 1600, height: 1000 } })
    const review = page.locator('[data-review]')
    const run = (action: string) => page.getByRole('button', { name: action, exact: true }).click()
    const saved = async (press: () => Promise<void>) => {
      const [file] = await Promise.all([page.waitForEvent('download'), press()])
      return { name: file.suggestedFilename(), text: await readFile(await file.path(), 'utf8') }
    }

    // A collection with fields and a relation.
    await page.getByRole('link', { name: 'New collection' }).click()
    await page.getByLabel('Name', { exact: true }).fill('invoice')
    await page.getByLabel('Name for people').fill(attack)
    const add = async (name: string, type: string, more: () => Promise<void>) => {
      await page.getByRole('button', { name: 'Add a field' }).click()
      const form = page.getByRole('dialog', { name: 'New field' })
      await form.getByLabel('Name', { exact: true }).fill(name)
      await form.getByLabel('Type').selectOption(type)
      await more()
      await form.getByRole('button', { name: 'Add', exact: true }).click()
    }
    await add('number', 'String', async () => {
      await page.getByLabel('A value is required').check()
      await page.getByLabel('No two rows have the same value').check()
      await page.getByText('Rules for values').click()
      await page.getByLabel('Longest', { exact: true }).fill('20')
    })
    await add('total', 'Decimal', async () => {
      await page.getByLabel('Digits', { exact: true }).fill('10')
      await page.getByLabel('Digits after the point').fill('2')
    })
    await add('state', 'ENUM', async () => {
      await page.getByLabel('Values', { exact: true }).fill(`open\n${attack}`)
      await page.getByLabel('Default', { exact: true }).selectOption('value')
      await shot(page, 'schema-field')
      await expectAccessible(page)
    })
    await add('note', 'Text', async () => undefined)
    await add('tags', 'Array_String', async () => {
      await page.getByLabel('Default', { exact: true }).selectOption('value')
      await page.getByLabel('Default value').fill(`new\n${attack}`)
    })
    await page.getByRole('button', { name: 'Add a relation' }).click()
    await page.getByRole('dialog', { name: 'New relation' }).getByLabel('Name', { exact: true }).fill('customer')
    await page.getByLabel('Leads to', { exact: true }).selectOption('customer')
    await run('Add')
    await run('Review…')
    await review.getByText('create table "invoice"').waitFor()
    await shot(page, 'schema-create')
    await expectFits(page)
    expect((await api.admin('GET', '/schemas/invoice')).status).toBe(404)
    await run('Create the collection')
    await page.waitForURL(/\/schema\/invoice$/)
    expect(await fieldsOf(console_, 'invoice')).toMatchObject({
      number: { type: 'String', allowNull: false, unique: true, validate: { len: [0, 20] } },
      total: { type: 'Decimal', values: { precision: 10, scale: 2 } },
      state: { type: 'ENUM', values: ['open', attack], defaultValue: 'open' },
      tags: { type: 'Array_String', defaultValue: { value: ['new', attack] } },
      customer: { relType: 'BelongsTo', target: 'customer' },
    })
    await page.getByRole('heading', { name: attack }).waitFor()
    await shot(page, 'schema-fields')
    await expectFits(page)

    // Another type: the warning names the lock.
    for (const [number, total] of [
      ['1', '12.5'],
      ['2', '13'],
    ])
      expect((await api.admin('POST', '/items/invoice', { number, total, note: attack })).status).toBe(201)
    await page.getByRole('link', { name: 'total' }).click()
    await page.waitForURL(/edit=total/)
    await page.getByLabel('Type').selectOption('Integer')
    await run('Review…')
    await review.getByText('The table and its indexes are rewritten').waitFor()
    await review.getByText('lock: ACCESS EXCLUSIVE').waitFor()
    await review.getByText('What 1 value of invoice.total cannot keep').waitFor()
    await page.getByLabel('I know that this is lost for good').check()
    await shot(page, 'schema-type')
    await run('Make the change')
    await expect.poll(async () => (await fieldsOf(console_, 'invoice')).total.type).toBe('Integer')

    // A required field that loses its default: said before the change, and after it until it is read.
    await page.getByRole('link', { name: 'state', exact: true }).click()
    await page.waitForURL(/edit=state/)
    await page.getByLabel('A value is required').check()
    await run('Review…')
    await review.getByText('Statements', { exact: true }).waitFor()
    expect(await review.getByRole('region', { name: 'Warnings' }).count()).toBe(0)
    await run('Make the change')
    await expect.poll(async () => (await fieldsOf(console_, 'invoice')).state.allowNull).toBe(false)
    await page.getByRole('link', { name: 'state', exact: true }).click()
    await page.waitForURL(/edit=state/)
    await page.getByLabel('Default', { exact: true }).selectOption('none')
    await run('Review…')
    const warning = 'invoice.state has no default any more, so every new item must have a value for it'
    await review.getByRole('region', { name: 'Warnings' }).getByText(warning).waitFor()
    await shot(page, 'schema-warning')
    await run('Make the change')
    await expect.poll(async () => 'defaultValue' in (await fieldsOf(console_, 'invoice')).state).toBe(false)
    // A notice is read out on its own: it and its button have no role until the focus or the pointer is on them.
    const notice = page.getByRole('alertdialog', { includeHidden: true }).filter({ hasText: warning })
    await notice.waitFor()
    await notice.getByRole('button', { name: 'Close', includeHidden: true }).click()
    await notice.waitFor({ state: 'detached' })

    // A field that goes: what it holds is named, a migration says the same, and it goes only when that is meant.
    await page.getByRole('button', { name: 'Drop note' }).click()
    await review.getByText('Field invoice.note with 2 values').waitFor()
    await review.getByText('Write it as a migration instead').click()
    await page.getByLabel('Name of the migration').fill('drop the note')
    const migration = await saved(() => run('Download'))
    expect(migration.name).toMatch(/^\d{14}_drop_the_note\.ts$/)
    expect(migration.text).toContain("export const type = 'schema'")
    expect(await fieldsOf(console_, 'invoice')).toHaveProperty('note')
    expect(await page.getByRole('button', { name: 'Drop the field' }).isDisabled()).toBe(true)
    await page.getByLabel('I know that this is lost for good').check()
    await shot(page, 'schema-drop')
    await run('Drop the field')
    await expect.poll(async () => Object.keys(await fieldsOf(console_, 'invoice'))).not.toContain('note')

    // An index, and the definition as a whole.
    await page.getByRole('link', { name: 'Indexes' }).click()
    await run('Add an index')
    await page.getByRole('dialog').getByLabel('total').check()
    await run('Review…')
    await review.getByText('Writes wait until the whole table is indexed').waitFor()
    await run('Add the index')
    await page.getByText('invoice_total_idx').waitFor()
    await page.getByRole('link', { name: 'JSON' }).click()
    const whole = JSON.parse(await page.getByRole('textbox', { name: 'Definition' }).inputValue())
    const { state: _, ...kept } = whole.fields
    await page
      .getByRole('textbox', { name: 'Definition' })
      .fill(JSON.stringify({ ...whole, fields: { due: { type: 'Date' }, ...kept } }))
    await run('Review…')
    await review.getByText('Field invoice.state with 2 values').waitFor()
    await review.getByText('add column "due"').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()

    // Out, and in again with more.
    await page.getByRole('link', { name: 'Schema' }).first().click()
    await page.getByRole('button', { name: 'Leave', exact: true }).click()
    const exported = await saved(() => run('Export'))
    const file = JSON.parse(exported.text)
    const one = file.schemas.find(({ collectionName }: { collectionName: string }) => collectionName === 'invoice')
    const load = (fields: object) =>
      page.getByLabel('File', { exact: true }).setInputFiles({
        name: exported.name,
        mimeType: 'application/json',
        buffer: Buffer.from(JSON.stringify({ ...file, schemas: [{ ...one, schema: { ...one.schema, fields } }] })),
      })
    await page.getByRole('link', { name: 'Import…' }).click()
    await load({ ...one.schema.fields, paidOn: { type: 'Dat' } })
    await run('Review…')
    await review.getByText('paidOn').waitFor()
    await page.getByRole('button', { name: 'Cancel' }).last().click()
    await load({ ...one.schema.fields, paidOn: { type: 'Date' } })
    await run('Review…')
    await review.getByText('add column "paidOn"').waitFor()
    await expectAccessible(page)
    await run('Import')
    await expect.poll(async () => Object.keys(await fieldsOf(console_, 'invoice'))).toContain('paidOn')

    // The diagram, by keyboard.
    await page.getByRole('link', { name: 'As a diagram' }).click()
    const box = page.getByRole('link', { name: /total *Integer/ })
    await box.waitFor()
    await shot(page, 'schema-diagram')
    await expectFits(page)
    await box.focus()
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/schema\/invoice$/)

    // The end of it.
    await page.getByRole('link', { name: 'Settings' }).click()
    await page.getByRole('button', { name: 'Delete invoice…' }).click()
    await review.getByText('Collection invoice with 2 rows').waitFor()
    await page.getByLabel('I know that this is lost for good').check()
    await run('Delete the collection')
    await page.waitForURL(/\/schema$/)
    expect((await api.admin('GET', '/schemas/invoice')).status).toBe(404)
    await page.goto(`${console_.address}/console/schema/invoice?part=relations`)
    await page.getByText('There is no collection invoice').waitFor()
    expect(wrong.filter((text) => !/status of 400/.test(text))).toEqual([])
  })
})
