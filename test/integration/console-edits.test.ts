import type { Locator, Page } from 'playwright-core'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, holdChanges, startConsole } from '../support/console.ts'
import { plain } from '../support/images.ts'
import { waitFor } from '../support/wait.ts'

describeWithBrowser('rows that several users edit in the console', () => {
  let it_: Console
  const categories: Record<string, string> = {}
  const tags: Record<string, string> = {}
  const key = (row: number) => `00000000-0000-4000-8000-${String(row).padStart(12, '0')}`
  const engine = (row: number) => `/items/engine/${key(row)}`
  const read = async (row: number) => (await it_.api.admin('GET', engine(row))).body.data
  const write = async (row: number, change: object) => {
    const { status, text } = await it_.api.admin('PATCH', engine(row), change)
    expect({ status, text }).toMatchObject({ status: 200 })
  }
  const tagsOf = async (row: number): Promise<string[]> =>
    (await it_.api.admin('GET', `${engine(row)}?fields=tags.name`)).body.data.tags
      .map(({ name }: { name: string }) => name)
      .sort()
  const cell = (page: Page, text: string) => page.getByRole('gridcell', { name: text, exact: true })
  const rowOf = (page: Page, name: string) => page.getByRole('row').filter({ has: cell(page, name) })

  beforeAll(async () => {
    it_ = await startConsole()
    const make = async (collectionName: string, schema: object) => {
      const { status, text } = await it_.api.admin('POST', '/schemas', { collectionName, schema })
      expect({ status, text }).toMatchObject({ status: 201 })
    }
    const add = async (collection: string, name: string) =>
      (await it_.api.admin('POST', `/items/${collection}`, { name })).body.data.id
    await make('category', { fields: { name: { type: 'String', allowNull: false } } })
    await make('tag', { fields: { name: { type: 'String', allowNull: false } } })
    await make('engine', {
      fields: {
        name: { type: 'String', allowNull: false },
        stock: { type: 'Integer' },
        note: { type: 'String' },
        due: { type: 'Date' },
        at: { type: 'DateTime' },
        category: { relType: 'BelongsTo', target: 'category' },
        tags: { relType: 'BelongsToMany', target: 'tag', through: 'engine_tag' },
      },
    })
    await it_.api.admin('POST', '/items/svc_Role', { name: 'visitor' })
    await make('visit', {
      fields: {
        minutes: { type: 'Integer', defaultValue: 60, description: 'How long' },
        state: { type: 'ENUM', values: ['asked', 'done'], allowNull: false, defaultValue: 'asked' },
        isPaid: { type: 'Boolean', defaultValue: false },
        host: { type: 'UUID', defaultValue: { type: 'CURRENT_USER' } },
        at: { type: 'DateTime', defaultValue: { type: 'NOW' } },
        note: { type: 'String' },
      },
    })
    await make('dog', {
      fields: {
        name: { type: 'String' },
        portrait: { relType: 'BelongsTo', target: 'svc_File' },
        photos: { relType: 'BelongsToMany', target: 'svc_File', through: 'dog_photo' },
      },
    })
    await make('follow_up', { fields: { step: { relType: 'BelongsTo', target: 'svc_WorkflowExecutionLog' } } })
    for (const name of ['Steam', 'Diesel']) categories[name] = await add('category', name)
    for (const name of ['heavy', 'new', 'old', 'rare']) tags[name] = await add('tag', name)
    await it_.api.sql(
      `insert into engine (id, name, stock, due, "category_Id")
       select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'Engine ' || n, n, '2026-03-14', $1 from generate_series(1, 2000) n`,
      [categories.Steam],
    )
  })

  it('follows rows with what they refer to, and says when it cannot follow', async () => {
    const { page, wrong } = await it_.visit('/data/engine?columns=name,stock,category_Id&filter={"stock":{"lt":5}}')
    await rowOf(page, 'Engine 1').getByRole('link', { name: 'Steam' }).waitFor()
    await it_.api.sql(`update engine set name = 'By psql' where stock = 2`)
    await cell(page, 'By psql').waitFor()
    await rowOf(page, 'By psql').getByRole('link', { name: 'Steam' }).waitFor()
    await write(1, { category_Id: categories.Diesel })
    await rowOf(page, 'Engine 1').getByRole('link', { name: 'Diesel' }).waitFor()
    await write(1, { category_Id: null })
    await rowOf(page, 'Engine 1').getByRole('link', { name: 'Diesel' }).waitFor({ state: 'detached' })
    expect(await page.getByText(/^Not live/).count()).toBe(0)
    await page.goto(`${it_.address}/console/data/follow_up?filter={"step.status":"failed"}`)
    await page.getByText('Not live: Changes of svc_WorkflowExecutionLog are not recorded').waitFor()
    await expectAccessible(page)
    expect(wrong).toEqual([])
  })

  it('shows what is written after a list was read and before it follows', async () => {
    const { page } = await it_.visit('/data/engine?columns=name,stock')
    onTestFinished(() => page.close())
    const written = Promise.withResolvers<void>()
    await page.routeWebSocket(/./, (socket) => {
      const server = socket.connectToServer()
      socket.onMessage(async (message) => {
        await written.promise
        server.send(message)
      })
    })
    await page.reload()
    await cell(page, 'Engine 10').waitFor()
    await write(10, { name: 'In between' })
    written.resolve()
    await cell(page, 'In between').waitFor()
  })

  it('overwrites nothing that was stored but not shown when the editing began', async () => {
    const { page } = await it_.visit('/data/engine?columns=name,stock')
    onTestFinished(() => page.close())
    // The list does not learn what others write.
    await page.routeWebSocket(/./, (socket) => socket.close())
    await page.reload()
    await cell(page, 'Engine 6').waitFor()
    await page.getByText(/^Not live: /).waitFor()
    await write(6, { name: 'Unseen' })
    await cell(page, 'Engine 6').dblclick()
    await page.getByLabel('name', { exact: true }).fill('Mine')
    await page.keyboard.press('Enter')
    await page.getByRole('radio', { name: 'Theirs Unseen' }).check()
    await page.getByRole('button', { name: 'Save the result' }).click()
    await cell(page, 'Unseen').waitFor()
    expect((await read(6)).name).toBe('Unseen')
  })

  it('saves a cell at another attempt, whatever has failed before', async () => {
    const { page } = await it_.visit('/data/engine?columns=name,stock')
    await cell(page, 'Engine 7').waitFor()
    let fails = true
    await page.route(`**${engine(7)}*`, async (route) =>
      fails && route.request().method() === 'GET'
        ? route.fulfill({ status: 400, json: { message: 'It is not read now' } })
        : route.continue(),
    )
    const editor = page.getByLabel('name', { exact: true })
    await cell(page, 'Engine 7').dblclick()
    await editor.fill('Second attempt')
    await page.keyboard.press('Enter')
    await page.getByText('It is not read now').first().waitFor()
    await waitFor(() => editor.isEnabled())
    fails = false
    await editor.press('Enter')
    await waitFor(async () => (await read(7)).name === 'Second attempt')
    await editor.waitFor({ state: 'detached' })
    // What has met another change cannot be shown at first.
    const version = page.waitForResponse((answer) => answer.url().includes(engine(7)))
    await cell(page, 'Second attempt').dblclick()
    await version
    await write(7, { name: 'Theirs' })
    fails = true
    await editor.fill('Mine')
    await page.keyboard.press('Enter')
    await waitFor(() => editor.isEnabled())
    fails = false
    await editor.press('Enter')
    await page.getByRole('radio', { name: 'Theirs Theirs' }).waitFor()
  })

  it('keeps the links that others make and take away while a record is edited', async () => {
    await write(8, { tags: [tags.old] })
    const { page, wrong } = await it_.visit(`/data/engine/${key(8)}`)
    await page.getByRole('button', { name: 'Remove old' }).click()
    await page.getByLabel(/^tags/).fill('hea')
    await page.getByRole('option', { name: 'heavy' }).click()
    await page.getByText('1 change', { exact: true }).waitFor()
    await write(8, { tags: [tags.old, tags.rare] })
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('1 change', { exact: true }).waitFor({ state: 'detached' })
    expect(await tagsOf(8)).toEqual(['heavy', 'rare'])
    await page.getByRole('button', { name: 'Remove rare' }).waitFor()
    // With fields that both have written, which are shown by names.
    await page.getByLabel(/^tags/).fill('new')
    await page.getByRole('option', { name: 'new' }).click()
    await page.getByLabel(/^category_Id/).fill('Die')
    await page.getByRole('option', { name: 'Diesel' }).click()
    await write(8, { category_Id: null, tags: [tags.heavy] })
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'Somebody else has changed this meanwhile' }).waitFor()
    expect(await page.getByRole('group').count()).toBe(1)
    await page.getByText('It was Steam').waitFor()
    await page.getByRole('radio', { name: 'Yours Diesel' }).check()
    await page.getByRole('button', { name: 'Save the result' }).click()
    await page.getByText('2 changes').waitFor({ state: 'detached' })
    expect(await tagsOf(8)).toEqual(['heavy', 'new'])
    expect((await read(8)).category_Id).toBe(categories.Diesel)
    expect(wrong.filter((text) => !/status of 412/.test(text))).toEqual([])
  })

  it('keeps line breaks of a text, in a cell and in a form', async () => {
    await write(9, { note: 'one\ntwo' })
    const { page, wrong } = await it_.visit('/data/engine?columns=name,note&filter={"stock":9}')
    await page.getByRole('gridcell', { name: /^one/ }).dblclick()
    const editor = page.getByLabel('note', { exact: true })
    expect(await editor.inputValue()).toBe('one\ntwo')
    await editor.fill('one\ntwo\nthree')
    await page.keyboard.press('Control+Enter')
    await waitFor(async () => (await read(9)).note === 'one\ntwo\nthree')
    await page.getByRole('link', { name: 'Open Engine 9' }).click()
    await page.getByLabel(/^note/).fill('one\ntwo')
    await page.getByRole('button', { name: 'Save' }).click()
    await waitFor(async () => (await read(9)).note === 'one\ntwo')
    expect(wrong).toEqual([])
  })

  it('keeps what is typed into a cell that is scrolled out of view, however far, and shows it when more is typed', async () => {
    const fields = { name: { type: 'String', allowNull: false }, place: { type: 'Integer' } }
    const made = await it_.api.admin('POST', '/schemas', { collectionName: 'mile', schema: { fields } })
    expect(made.status).toBe(201)
    await it_.api.sql(
      `insert into mile (id, name, place) select gen_random_uuid(), 'Mile ' || n, n from generate_series(1, 5000) n`,
    )
    const { page, wrong } = await it_.visit('/data/mile?columns=name,place&sort=place')
    const grid = page.getByRole('grid')
    const scroll = (top: number) => grid.evaluate((element, to) => element.scrollTo({ top: to }), top)
    await cell(page, 'Mile 1').waitFor()
    await scroll(150 * 34)
    await cell(page, 'Mile 160').dblclick()
    const editor = page.getByLabel('name', { exact: true })
    await editor.fill('Typed')
    // A little, and so far that its page is forgotten.
    await scroll(180 * 34)
    await cell(page, 'Mile 190').waitFor()
    expect(await editor.inputValue()).toBe('Typed')
    await scroll(5000 * 34)
    await cell(page, 'Mile 5000').waitFor()
    expect(await page.getByRole('row').count()).toBeLessThan(100)
    expect(await editor.inputValue()).toBe('Typed')
    expect(await editor.evaluate((input) => input === input.ownerDocument.activeElement)).toBe(true)
    await page.keyboard.type(' more')
    await expect.poll(() => page.getByText('Mile 161', { exact: true }).count()).toBe(1)
    expect(await editor.inputValue()).toBe('Typed more')
    await page.keyboard.press('Enter')
    const stored = async () => (await it_.api.admin('GET', '/items/mile?filter={"place":160}')).body.data[0].name
    await expect.poll(stored).toBe('Typed more')
    await editor.waitFor({ state: 'detached' })
    expect(wrong).toEqual([])
  })

  it('stores no date that lacks a part, and none where all of it is taken away', async () => {
    const { page, wrong } = await it_.visit('/data/engine?columns=name,due&filter={"stock":10}')
    await cell(page, '2026-03-14').dblclick()
    const editor = page.getByLabel('due', { exact: true })
    await editor.press('Backspace')
    await page.getByText('This must be a date.').waitFor()
    await editor.press('Enter')
    expect(await editor.count()).toBe(1)
    expect((await read(10)).due).toBe('2026-03-14')
    for (const press of ['ArrowRight', 'Backspace', 'ArrowRight', 'Backspace', 'Enter']) await editor.press(press)
    await waitFor(async () => (await read(10)).due === null)
    // In a form, with a time.
    await write(10, { at: '2026-03-14T09:26:53.000Z' })
    await page.goto(`${it_.address}/console/data/engine/${key(10)}`)
    await page.getByLabel(/^at/).press('Backspace')
    await page.getByText('This must be a date and a time.').waitFor()
    expect(await page.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true)
    await page.getByRole('button', { name: 'Discard' }).click()
    await page.getByText('This must be a date and a time.').waitFor({ state: 'detached' })
    expect(await page.getByLabel(/^at/).inputValue()).toMatch(/^2026-03-14T/)
    expect(wrong).toEqual([])
  })

  it('asks before a form with unsaved changes is left, and not after they are saved', async () => {
    const { page, wrong } = await it_.visit(`/data/engine/${key(11)}`)
    const question = page.getByRole('heading', { name: 'Leave without saving?' })
    const stay = async (leave: () => Promise<void>) => {
      await leave()
      await question.waitFor()
      await page.getByRole('button', { name: 'Cancel' }).last().click()
      await question.waitFor({ state: 'detached' })
    }
    const go = (name: string) => () => page.locator('aside').getByRole('link', { name, exact: true }).click()
    const leave = async () => {
      await go('Reports')()
      await page.getByRole('button', { name: 'Leave', exact: true }).click()
      await page.getByRole('heading', { name: 'Reports', level: 1 }).waitFor()
    }
    await page.getByLabel(/^name/).fill('Typed')
    await stay(go('Reports'))
    await expectAccessible(page)
    expect(await page.getByLabel(/^name/).inputValue()).toBe('Typed')
    await leave()
    await page.goto(`${it_.address}/console/data/category/new`)
    await page.getByLabel(/^name/).fill('Electric')
    await stay(go('Reports'))
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Electric' }).waitFor()
    await go('Reports')()
    await page.getByRole('heading', { name: 'Reports', level: 1 }).waitFor()
    await page.goto(`${it_.address}/console/operations/settings`)
    await page.locator('main form input[type=text]').first().fill('x')
    await stay(go('Reports'))
    await leave()
    for (const part of ['settings', 'json']) {
      await page.goto(`${it_.address}/console/schema/category?part=${part}`)
      const control =
        part === 'json' ? page.getByRole('textbox', { name: /^Definition/ }) : page.getByLabel('Description')
      await control.fill('{}')
      // Another part takes it off the page as well.
      await stay(() => page.getByRole('link', { name: 'Indexes' }).click())
      expect(await control.inputValue()).toBe('{}')
      await leave()
    }
    const body = { type: 'custom', subject: 'A subject', body: '<p>A body</p>', isActive: true }
    const template = await it_.api.admin('POST', '/items/svc_Template', body)
    expect(template).toMatchObject({ status: 201 })
    await page.goto(`${it_.address}/console/operations/templates?open=${template.body.data.id}`)
    await page.getByLabel('Subject').fill('Another one')
    await stay(() => page.getByRole('button', { name: 'All templates' }).click())
    await leave()
    expect(wrong).toEqual([])
  })

  it('leads to sign-in where the session has ended meanwhile, and asks before what was typed is lost', async () => {
    const { api } = it_
    const password = 'password of a user'
    const rights = ['read', 'update'].map((action) => ({ collection: 'category', action, fields: '*' }))
    const user = await api.user(rights)
    const { body } = await api.admin('POST', '/items/category', { name: 'Typed on' })
    const { page } = await it_.visit('/data', { as: { email: user.email, password } })
    const end = async () =>
      expect((await api.admin('DELETE', `/auth/admin/users/${user.id}/sessions`)).status).toBe(200)
    await page
      .locator('main')
      .getByRole('link', { name: /categor/i })
      .first()
      .waitFor()
    await end()
    // A stranger is refused as a user without permission is.
    await page
      .locator('main')
      .getByRole('link', { name: /categor/i })
      .first()
      .click()
    await page.getByRole('heading', { name: /^Sign in/ }).waitFor()
    await page.getByLabel('E-mail').fill(user.email)
    await page.getByLabel('Password').fill(password)
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await page.locator('aside').first().waitFor()
    await page.goto(`${it_.address}/console/data/category/${body.data.id}`)
    await page.getByLabel(/^name/).fill('Typed')
    await end()
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'Your session has ended' }).waitFor()
    await page.getByRole('button', { name: 'Cancel' }).last().click()
    expect(await page.getByLabel(/^name/).inputValue()).toBe('Typed')
    // Where nothing is held up, the next page leads there.
    await page.locator('aside').getByRole('link', { name: 'Reports', exact: true }).click()
    await page.getByRole('button', { name: 'Leave', exact: true }).click()
    await page.getByRole('heading', { name: /^Sign in/ }).waitFor()
  })

  it('keeps what was typed when the session ends, says so once, and saves it after a sign-in in another tab', async () => {
    const { api } = it_
    const password = 'password of a user'
    const rights = ['read', 'create'].map((action) => ({ collection: 'category', action, fields: '*' }))
    const [few, other] = [await api.user(rights), await api.user(rights)]
    const [all, another] = [await api.user([]), await api.user([])]
    await api.sql(
      `update "svc_UserRole" set "role_Id" = (select id from "svc_Role" where name = 'administrator') where "user_Id" in ($1, $2)`,
      [all.id, another.id],
    )
    const revoke = async ({ id }: { id: string }) =>
      expect((await api.admin('DELETE', `/auth/admin/users/${id}/sessions`)).status).toBe(200)
    for (const [title, user, end] of [
      ['of an administrator', all, 'revoke'],
      ['of a user with few rights', few, 'revoke'],
      ['without its cookie', other, 'forget'],
    ] as const) {
      const { page } = await it_.visit('/data/category/new', { as: { email: user.email, password } })
      if (end === 'forget') {
        await page.clock.install()
        await page.reload()
      }
      const name = page.getByLabel(/^name/)
      await name.fill(`Typed ${title}`)
      if (end === 'forget') await page.context().clearCookies()
      else await revoke(user)
      const asked: string[] = []
      page.on('request', (request) => asked.push(new URL(request.url()).pathname))
      const create = page.getByRole('button', { name: 'Create' })
      if (end === 'revoke') await create.click()
      else {
        // The page reads again what it shows: strangers are told of no collection.
        const description = page.waitForResponse((answer) => answer.url().endsWith('/openapi'))
        await page.clock.fastForward('10:00')
        await page.evaluate("window.dispatchEvent(new Event('visibilitychange'))")
        await description
      }
      const message = page.getByRole('heading', { name: 'Your session has ended' })
      await message.waitFor()
      await expectAccessible(page)
      const opened = page.context().waitForEvent('page')
      await page.getByRole('link', { name: 'Sign in again in another tab' }).click()
      const tab = await opened
      await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click()
      await message.waitFor({ state: 'detached' })
      if (end === 'forget') await create.click()
      const refusal = page.locator('main').getByRole('alert')
      expect(await refusal.textContent()).toMatch(/^Your session has ended.*what you have typed stays/)
      await create.click()
      await waitFor(() => create.isEnabled())
      await tab.getByLabel('E-mail').fill(user.email)
      await tab.getByLabel('Password').fill(password)
      await tab.getByRole('button', { name: 'Sign in', exact: true }).click()
      await tab.getByRole('heading', { name: 'Data', exact: true }).waitFor()
      expect(await message.count()).toBe(0)
      expect(await name.inputValue()).toBe(`Typed ${title}`)
      await create.click()
      await page.getByRole('heading', { name: `Typed ${title}` }).waitFor()
      const often = asked.filter((path) => asked.filter((one) => one === path).length > 5)
      expect({ title, often: often.filter((path) => path !== '/auth/check') }).toEqual({ title, often: [] })
      expect(often.length).toBeLessThan(15)
    }
    // In a dialog, too.
    const { page } = await it_.visit('/people/roles', { as: { email: another.email, password } })
    await page.getByRole('button', { name: 'New role' }).click()
    const dialog = page.getByRole('dialog', { name: 'New role' })
    await dialog.getByLabel('Name', { exact: true }).fill('keeper')
    await revoke(another)
    await dialog.getByRole('button', { name: 'Create' }).click()
    const message = page.getByRole('dialog', { name: 'Your session has ended' })
    await message.getByRole('button', { name: 'Cancel' }).click()
    await message.waitFor({ state: 'detached' })
    expect(await dialog.getByLabel('Name', { exact: true }).inputValue()).toBe('keeper')
    await dialog.getByText('Your session has ended').waitFor()
  })

  it('asks before what was typed into a profile, an account, a dashboard or a cell is lost', async () => {
    const user = await it_.api.user([])
    const query = { panels: [] }
    const { id } = (await it_.api.admin('POST', '/views', { name: 'Wall', page: 'dashboards', query })).body.data
    const { page, wrong } = await it_.visit('/data')
    const question = page.getByRole('heading', { name: 'Leave without saving?' })
    const answer = async (name: 'Cancel' | 'Leave') => {
      await question.waitFor()
      await page.getByRole('dialog').last().getByRole('button', { name, exact: true }).click()
      await question.waitFor({ state: 'detached' })
    }
    const reports = page.locator('aside').getByRole('link', { name: 'Reports', exact: true })
    const atReports = page.getByRole('heading', { name: 'Reports', level: 1 })
    const forms = [
      { path: `/people/${user.id}`, label: 'First name' },
      { path: '/account', label: 'First name' },
      { path: '/account', label: 'New password' },
      { path: `/reports/dashboards/${id}?edit=true`, label: 'Name of the dashboard' },
    ]
    for (const { path, label } of forms) {
      await page.goto(`${it_.address}/console${path}`)
      const field = page.getByLabel(label, { exact: true })
      const stored = await field.inputValue()
      await field.fill('Typed')
      await reports.click()
      await answer('Cancel')
      expect(await field.inputValue()).toBe('Typed')
      await field.fill(stored)
      await reports.click()
      await atReports.waitFor()
      await page.goBack()
      await field.fill('Typed')
      await reports.click()
      await answer('Leave')
      await atReports.waitFor()
    }
    // What is saved is asked about no more.
    await page.goto(`${it_.address}/console/reports/dashboards/${id}?edit=true`)
    await page.getByLabel('Name of the dashboard').fill('Board')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: 'Board', level: 1 }).waitFor()
    await page.goto(`${it_.address}/console/people/${user.id}`)
    await page.getByLabel('First name', { exact: true }).fill('Grace')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('heading', { name: /^Grace/, level: 1 }).waitFor()
    await reports.click()
    await atReports.waitFor()
    // A cell saves what it can where the pointer goes elsewhere, and not by the browser's own way back.
    await page.goto(`${it_.address}/console/reports`)
    await page.locator('aside').getByRole('link', { name: 'Data', exact: true }).click()
    await page
      .getByRole('link', { name: /^engine/ })
      .first()
      .click()
    await cell(page, 'Engine 20').dblclick()
    const editor = page.getByLabel('name', { exact: true })
    await editor.fill('Typed')
    const before = await it_.api.position()
    await page.goBack()
    await answer('Cancel')
    expect(await editor.inputValue()).toBe('Typed')
    await page.goBack()
    await answer('Leave')
    await page.getByRole('heading', { name: 'Data', level: 1 }).waitFor()
    expect(await it_.api.log(before)).toEqual([])
    expect((await read(20)).name).toBe('Engine 20')
    await page.goto(`${it_.address}/console/data/engine?columns=name,stock&filter={"stock":20}`)
    await cell(page, '20').dblclick()
    await page.getByLabel('stock', { exact: true }).fill('many')
    await reports.click()
    await answer('Cancel')
    await page.getByLabel('stock', { exact: true }).fill('21')
    await page.keyboard.press('Enter')
    await waitFor(async () => (await read(20)).stock === 21)
    await reports.click()
    await atReports.waitFor()
    await write(20, { stock: 20 })
    expect(wrong).toEqual([])
  })

  it('asks before what was entered in a drawer, a dialog or a new collection is lost, and not after it is saved', async () => {
    const { page, wrong } = await it_.visit('/permissions')
    const question = page.getByRole('heading', { name: 'Leave without saving?' })
    const answer = async (name: 'Cancel' | 'Leave') => {
      await question.waitFor()
      await page.getByRole('dialog').last().getByRole('button', { name, exact: true }).click()
      await question.waitFor({ state: 'detached' })
    }
    const dismiss = () => page.keyboard.press('Escape')
    await page.getByRole('button', { name: /^visitor, engine:/ }).click()
    const drawer = page.getByRole('dialog', { name: 'visitor · engine' })
    const may = drawer.getByLabel('May read items')
    await dismiss()
    await drawer.waitFor({ state: 'detached' })
    await page.getByRole('button', { name: /^visitor, engine:/ }).click()
    await may.check()
    await drawer.getByRole('tab', { name: 'read' }).press('ArrowRight')
    await drawer.getByRole('tabpanel', { name: 'create' }).getByLabel('May create items').waitFor()
    await drawer.getByRole('tab', { name: 'create' }).press('ArrowLeft')
    await drawer.getByRole('tabpanel', { name: 'read' }).waitFor()
    await dismiss()
    await answer('Cancel')
    expect(await may.isChecked()).toBe(true)
    await page.goBack()
    await answer('Cancel')
    expect(await may.isChecked()).toBe(true)
    await expectAccessible(page)
    await dismiss()
    await answer('Leave')
    await drawer.waitFor({ state: 'detached' })

    await page.goto(`${it_.address}/console/schema/category?add=true`)
    const field = page.getByRole('dialog', { name: 'New field' })
    await field.getByLabel('Name', { exact: true }).fill('color')
    await dismiss()
    await answer('Cancel')
    await dismiss()
    await answer('Leave')
    await field.waitFor({ state: 'detached' })

    await page.goto(`${it_.address}/console/people`)
    const form = page.getByRole('dialog', { name: 'New user' })
    const open = () => page.getByRole('button', { name: 'New user' }).click()
    await open()
    await dismiss()
    await form.waitFor({ state: 'detached' })
    await open()
    await form.getByLabel('First name').fill('Sue')
    await dismiss()
    await answer('Cancel')
    expect(await form.getByLabel('First name').inputValue()).toBe('Sue')
    await form.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Sue' }).waitFor()

    await page.goto(`${it_.address}/console/schema?open=new`)
    await page.getByLabel('Name', { exact: true }).fill('gadget')
    await page.locator('aside').getByRole('link', { name: 'Reports' }).click()
    await answer('Cancel')
    expect(await page.getByLabel('Name', { exact: true }).inputValue()).toBe('gadget')
    await page.getByRole('button', { name: 'Review…' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Create the collection' }).click()
    await page.getByRole('heading', { name: 'gadget' }).waitFor()
    expect(wrong).toEqual([])
  })

  it('adds and removes links of a record with thousands of them, and shows them by pages', async () => {
    await it_.api.sql(
      `with made as (insert into tag (id, name) select gen_random_uuid(), 'many ' || n from generate_series(1, 1500) n returning id)
       insert into engine_tag ("engine_Id", "tag_Id") select $1, id from made`,
      [key(30)],
    )
    onTestFinished(() => it_.api.sql(`delete from tag where name like 'many %'`).then(() => undefined))
    const { page, wrong } = await it_.visit(`/data/engine/${key(30)}`)
    onTestFinished(() => page.close())
    const chips = page.getByRole('button', { name: /^Remove many/ })
    await page.getByText('100 of 1,500').waitFor()
    expect(await chips.count()).toBe(100)
    await page.getByRole('button', { name: 'More of tags' }).click()
    await page.getByText('200 of 1,500').waitFor()
    const gone = (await chips.first().getAttribute('aria-label'))!.slice('Remove '.length)
    await chips.first().click()
    await page.getByLabel(/^tags/).fill('rare')
    await page.getByRole('option', { name: 'rare', exact: true }).click()
    // What is added is in view.
    await page.getByRole('button', { name: 'Remove rare' }).waitFor()
    const before = await it_.api.position()
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    for (const done of ['1 link removed', '1 link added']) await page.getByText(done, { exact: true }).first().waitFor()
    const now = await tagsOf(30)
    expect(now.length).toBe(1500)
    expect(now).toContain('rare')
    expect(now).not.toContain(gone)
    const log = await it_.api.log(before)
    expect(log.map(({ entity, action }) => `${action} ${entity}`)).toEqual([
      'delete engine_tag',
      'update engine',
      'create engine_tag',
      'update engine',
    ])
    expect(wrong).toEqual([])
  })

  it('uploads several files at once where a record is linked with any number of them, and shows images', async () => {
    const { page, wrong } = await it_.visit('/data/dog/new')
    const image = async (name: string) => ({
      name,
      mimeType: 'image/png',
      buffer: await plain(40, 20).png().toBuffer(),
    })
    await page.getByLabel(/^name/).fill('Rex')
    const uploads = page.getByRole('button', { name: 'Upload files' })
    const choose = async (button: Locator, files: { name: string; mimeType: string; buffer: Buffer }[]) => {
      const chooser = page.waitForEvent('filechooser')
      await button.click()
      await (await chooser).setFiles(files)
    }
    await choose(uploads, [await image('front.png'), await image('side.png')])
    await page.getByRole('button', { name: 'Remove side.png' }).waitFor()
    await choose(page.getByRole('button', { name: 'Upload a file' }), [await image('portrait.png')])
    const drawn = () =>
      page.locator('form img').evaluateAll((all) => all.filter((one: any) => one.naturalWidth > 0).length)
    await waitFor(async () => (await drawn()) === 3)
    await expectAccessible(page)
    // What is refused leaves what has arrived before it.
    let begun = 0
    await page.route('**/files/tus', (route) => {
      begun += 1
      const error = { message: 'It is too large', code: 'PAYLOAD_TOO_LARGE', details: null, statusCode: 413 }
      return begun === 2 ? route.fulfill({ status: 413, json: { error } }) : route.continue()
    })
    await choose(uploads, [await image('back.png'), await image('large.png')])
    await page.getByText('It is too large').first().waitFor()
    await page.getByRole('button', { name: 'Remove back.png' }).waitFor()
    await waitFor(async () => (await drawn()) === 4)
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Rex' }).waitFor()
    await waitFor(async () => (await drawn()) === 4)
    const { body } = await it_.api.admin('GET', '/items/dog?fields=portrait.originalFilename,photos.originalFilename')
    expect(body.data).toEqual([
      {
        portrait: expect.objectContaining({ originalFilename: 'portrait.png' }),
        photos: expect.toSatisfy(
          (photos: { originalFilename: string }[]) =>
            photos
              .map(({ originalFilename }) => originalFilename)
              .sort()
              .join() === 'back.png,front.png,side.png',
        ),
      },
    ])
    expect(wrong.filter((text) => !/status of 413/.test(text))).toEqual([])
  })

  it('shows with a record the rows that refer to it, whether or not its collection declares that', async () => {
    const { id } = (await it_.api.admin('POST', '/items/category', { name: 'Hydraulic' })).body.data
    await it_.api.sql(`update engine set "category_Id" = $1 where stock between 100 and 111`, [id])
    const { page, wrong } = await it_.visit(`/data/category/${id}`)
    const engines = page.getByRole('region', { name: 'engine by category_Id' })
    await engines.getByText('(12)').waitFor()
    expect(await engines.getByRole('listitem').count()).toBe(11)
    await expectAccessible(page)
    await engines.getByRole('link', { name: 'All 12' }).click()
    await cell(page, 'Engine 111').waitFor()
    await page.goto(`${it_.address}/console/data/dog/new`)
    await page.getByLabel(/^name/).fill('Rover')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Rover' }).waitFor()
    // What nothing refers to has no empty lists.
    expect(await page.getByRole('region', { name: / by / }).count()).toBe(0)
    expect(wrong).toEqual([])
  })

  it('shows the records of several collections that a record is linked with, a hundred at a time, by few requests', async () => {
    const { api } = it_
    const make = async (path: string, body: object) => {
      const { status, text, body: answer } = await api.admin('POST', path, body)
      expect({ path, status, text }).toMatchObject({ status: 201 })
      return answer.data
    }
    for (const collectionName of ['leaf', 'plate', 'book'])
      await make('/schemas', { collectionName, schema: { fields: { name: { type: 'String' } } } })
    const relation = { type: 'M2A', name: 'parts', tables: ['leaf', 'plate'], alias: 'books', through: 'book_part' }
    await make('/schemas/book/relationships', relation)
    const { id } = await make('/items/book', { name: 'An atlas' })
    for (const [collection, count] of [
      ['leaf', 120],
      ['plate', 11],
    ] as const) {
      await api.sql(
        `insert into ${collection} (id, name) select gen_random_uuid(), $1 || n from generate_series(1, $2::int) n`,
        [`${collection} no. `, count],
      )
      const rows = await api.sql(`select id from ${collection}`)
      const links = rows.map((row: { id: string }) => ({ book_id: id, collection, item_id: row.id }))
      expect((await api.admin('POST', '/items/book_part/bulk', links)).status).toBe(201)
    }
    const { page, wrong } = await it_.visit('/data')
    const asked: string[] = []
    page.on('request', (request) => asked.push(new URL(request.url()).pathname))
    await page.goto(`${it_.address}/console/data/book/${id}`)
    const parts = page.getByRole('region', { name: 'parts' })
    await parts.getByText('100 of 131', { exact: true }).waitFor()
    expect(await parts.getByRole('listitem').count()).toBe(100)
    await expectAccessible(page)
    await parts.getByRole('button', { name: 'More' }).click()
    await parts.getByText('100 of 131', { exact: true }).waitFor({ state: 'detached' })
    const titles = await parts.getByRole('link').allTextContents()
    expect(titles).toHaveLength(131)
    expect(titles.filter((title) => !/^(leaf: leaf|plate: plate) no\. \d+$/.test(title))).toEqual([])
    expect(new Set(titles).size).toBe(131)
    expect(asked.filter((path) => /^\/items\/(leaf|plate|book_part)\b/.test(path)).length).toBeLessThanOrEqual(6)
    // A link that is removed is gone from all that is shown.
    await parts.getByRole('button', { name: 'Remove the link' }).first().click()
    await expect.poll(() => parts.getByRole('listitem').count()).toBe(130)
    expect(wrong).toEqual([])
  })

  it('goes to the list after a record is created that its creator may not read', async () => {
    const { email } = await it_.api.user([
      { collection: 'category', action: 'read', fields: '*', conditions: { name: 'Steam' } },
      { collection: 'category', action: 'create', fields: '*' },
    ])
    const { page } = await it_.visit('/data/category/new', { as: { email, password: 'password of a user' } })
    await page.getByLabel(/^name/).fill('Unseen')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByText('Created', { exact: true }).first().waitFor()
    await cell(page, 'Steam').waitFor()
    expect(new URL(page.url()).pathname).toBe('/console/data/category')
    expect((await it_.api.sql(`select count(*)::int as n from category where name = 'Unseen'`))[0].n).toBe(1)
  })

  it('says what a new record gets where nothing is given', async () => {
    const { page, wrong } = await it_.visit('/data/visit/new')
    const hintOf = (label: RegExp) =>
      page.getByLabel(label).evaluate((control: any) => {
        const [hint] = (control.getAttribute('aria-describedby') ?? '').split(' ')
        return control.ownerDocument.getElementById(hint)?.textContent
      })
    expect(await hintOf(/^minutes/)).toBe('How long · 60 unless given')
    expect(await hintOf(/^state/)).toBe('asked unless given')
    expect(await hintOf(/^isPaid/)).toBe('no unless given')
    expect(await hintOf(/^host/)).toBe('you unless given')
    expect(await hintOf(/^at/)).toBe('now unless given')
    expect(await hintOf(/^note/)).toBeUndefined()
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { level: 1 }).filter({ hasNotText: 'New in' }).waitFor()
    expect(await hintOf(/^minutes/)).toBe('How long')
    expect(wrong).toEqual([])
  })

  it('keeps messages off the buttons of a form, and offers no undo twice', async () => {
    const { page, wrong } = await it_.visit(`/data/engine/${key(12)}`)
    const [save, undo] = [page.getByRole('button', { name: 'Save' }), page.getByRole('button', { name: 'Undo' })]
    const isFree = () =>
      save.evaluate((button: any) => {
        const { left, right, top, bottom } = button.getBoundingClientRect()
        return [left + 5, (left + right) / 2, right - 5].every((x) =>
          [top + 5, bottom - 5].every((y) => button.contains(button.ownerDocument.elementFromPoint(x, y))),
        )
      })
    const conflict = { message: 'Some rows cannot be undone', code: 'UNDO_CONFLICT', details: {}, statusCode: 409 }
    await page.route('**/log/undo', (route) => route.fulfill({ status: 409, json: { error: conflict } }), { times: 1 })
    await page.getByLabel(/^note/).fill('First')
    await save.click()
    await undo.click()
    // It stays until it is closed.
    const refused = page.getByText(/^Open the request in the log/).first()
    await refused.waitFor()
    await undo.waitFor({ state: 'detached' })
    for (const [width, height, note] of [
      [1280, 800, 'Second'],
      [390, 780, 'Third'],
    ] as const) {
      await page.setViewportSize({ width, height })
      await page.getByLabel(/^note/).fill(note)
      await waitFor(isFree)
      await save.click()
      await waitFor(async () => (await read(12)).note === note)
      await undo.waitFor()
      await refused.waitFor()
      await undo.click()
      // Under the pointer a message stays.
      await page.mouse.move(width / 2, 5)
      await page.getByText('Undone', { exact: true }).waitFor()
      await undo.waitFor({ state: 'detached' })
      expect((await read(12)).note).toBe('First')
      await page.getByText('Undone', { exact: true }).waitFor({ state: 'detached' })
    }
    expect(wrong.filter((text) => !/status of 409/.test(text))).toEqual([])
  })

  it('shows the last three messages, and those before them when there is room again', async () => {
    const { page, wrong } = await it_.visit(`/data/engine/${key(20)}`)
    const conflict = { message: 'Some rows cannot be undone', code: 'UNDO_CONFLICT', details: {}, statusCode: 409 }
    await page.route('**/log/undo', (route) => route.fulfill({ status: 409, json: { error: conflict } }))
    // Refusals stay until they are closed.
    const refused = page.locator('button[aria-label="Close"][data-type="error"]')
    const shown = refused.filter({ visible: true })
    const undo = page.getByRole('button', { name: 'Undo' })
    for (let attempt = 1; attempt <= 4; attempt += 1) {
      await page.getByLabel(/^note/).fill(`Attempt ${attempt}`)
      await page.getByRole('button', { name: 'Save' }).click()
      await undo.click()
      await undo.waitFor({ state: 'detached' })
      await waitFor(async () => (await refused.count()) === attempt)
      await waitFor(async () => (await shown.count()) === Math.min(attempt, 3))
    }
    await shown.first().click()
    await waitFor(async () => (await refused.count()) === 3)
    await waitFor(async () => (await shown.count()) === 3)
    expect(wrong.filter((text) => !/status of 409/.test(text))).toEqual([])
  })

  it('has the keyboard on no control that the bar of buttons covers', async () => {
    const { page, wrong } = await it_.visit(`/data/engine/${key(14)}`, { viewport: { width: 900, height: 360 } })
    await page.getByLabel(/^name/).fill('Typed')
    const bar = page.locator('form [data-bar]')
    for (const label of [/^stock/, /^note/, /^due/, /^at/, /^category/]) {
      const control = page.getByLabel(label).first()
      while (!(await control.evaluate((element: any) => element === element.ownerDocument.activeElement)))
        await page.keyboard.press('Tab')
      const [covering, { y, height }] = [(await bar.boundingBox())!, (await control.boundingBox())!]
      expect(y + height).toBeLessThanOrEqual(covering.y)
    }
    expect(wrong).toEqual([])
  })

  it('shortens a long title in the heading and in the tab', async () => {
    const name = 'Long words '.repeat(20).trim()
    await write(14, { name })
    const { page, wrong } = await it_.visit(`/data/engine/${key(14)}`)
    const heading = page.getByRole('heading', { level: 1 })
    await page.getByTitle(name).waitFor()
    expect(await heading.textContent()).toBe(name)
    const lineHeight = await heading.evaluate((one: any) =>
      Number.parseFloat(one.ownerDocument.defaultView.getComputedStyle(one).lineHeight),
    )
    await page.setViewportSize({ width: 400, height: 800 })
    expect((await heading.boundingBox())!.height).toBeLessThan(lineHeight * 2.5)
    expect(await page.title()).toBe(`${name.slice(0, 99)}… · Console`)
    await expectAccessible(page)
    expect(wrong).toEqual([])
  })

  it('takes an empty text for no value where that is chosen', async () => {
    await write(13, { note: 'Words' })
    const { page, wrong } = await it_.visit(`/data/engine/${key(13)}`)
    const note = page.getByLabel(/^note/)
    await note.fill('')
    await page.getByRole('button', { name: /^No value \(null\)/ }).click()
    expect(await note.evaluate((element: any) => element === element.ownerDocument.activeElement)).toBe(true)
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Saved').waitFor()
    expect((await read(13)).note).toBeNull()
    expect(wrong).toEqual([])
  })

  it('shows what was refused at its fields, and takes the keyboard there', async () => {
    const { page, wrong } = await it_.visit('/data/engine/new')
    const isFocused = (control: Locator) =>
      control.evaluate((element: any) => element === element.ownerDocument.activeElement)
    const isInView = async (control: Locator) => {
      const { y, height } = (await control.boundingBox())!
      return y >= 0 && y + height <= page.viewportSize()!.height
    }
    const name = page.getByLabel(/^name/)
    await page.getByLabel(/^stock/).fill('1')
    await page.getByRole('button', { name: 'Create' }).click()
    await waitFor(() => isFocused(name))
    const shown = async (control: Locator) => ({
      invalid: await control.getAttribute('aria-invalid'),
      isInView: await isInView(control),
      says: await control.evaluate((element: any) => {
        const last = element.getAttribute('aria-describedby').split(' ').at(-1)
        return element.ownerDocument.getElementById(last).textContent
      }),
    })
    expect(await shown(name)).toEqual({ invalid: 'true', isInView: true, says: 'is required' })
    const summary = page.getByRole('alert').filter({ hasText: 'Validation failed' })
    expect(await summary.textContent()).toBe('Validation failedSee name.')
    expect(await isInView(summary)).toBe(true)
    await expectAccessible(page)
    await name.fill('Electric')
    await page.getByText('is required').waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: 'Electric' }).waitFor()

    await page.goto(`${it_.address}/console/operations/settings`)
    await it_.api.sql(`delete from engine where name = 'Electric'`)
    const save = page.getByRole('button', { name: 'Save' })
    const color = page.getByLabel('project_color')
    await color.fill('red')
    const letThrough = await holdChanges(page)
    await save.click()
    await page.locator('button[aria-busy=true]').waitFor()
    expect(await isFocused(save)).toBe(true)
    // Neither a click nor Enter sends it again.
    const sent: string[] = []
    page.on('request', (request) => request.method() === 'PATCH' && sent.push(request.url()))
    await page.keyboard.press('Enter')
    await save.click({ force: true })
    expect(sent).toEqual([])
    letThrough()
    await waitFor(() => isFocused(color))
    expect(await shown(color)).toMatchObject({
      invalid: 'true',
      isInView: true,
      says: expect.stringMatching(/^expected /),
    })
    const alert = page.getByRole('alert').filter({ hasText: 'Invalid settings data' })
    expect(await alert.textContent()).toBe('Invalid settings dataSee project_color.')
    expect(await isInView(alert)).toBe(true)
    await expectAccessible(page)
    await page.getByRole('button', { name: 'As it was' }).click()
    await alert.waitFor({ state: 'detached' })
    expect(wrong.filter((text) => !/status of 400/.test(text))).toEqual([])
  })

  it('changes many rows only to what was given', async () => {
    const { page, wrong } = await it_.visit('/data/engine?columns=name,note&filter={"stock":{"in":[20,21]}}')
    await write(20, { note: 'a note' })
    await cell(page, 'a note').waitFor()
    await page.getByLabel('Select row 1').check()
    await page.getByLabel('Select row 2').check()
    await page.getByRole('button', { name: 'Change…' }).click()
    const change = page.getByRole('button', { name: 'Change 2 rows' })
    expect(await change.isDisabled()).toBe(true)
    await page.getByLabel('Field', { exact: true }).selectOption('name')
    expect(await change.isDisabled()).toBe(true)
    const after = page.getByRole('dialog').getByRole('row').nth(1).getByRole('cell').last()
    expect(await after.textContent()).toBe('')
    await page.getByLabel('Field', { exact: true }).selectOption('note')
    await page.getByLabel('Set it to').selectOption('an empty text')
    expect(await after.textContent()).toBe('“”')
    await page.getByLabel('Set it to').selectOption('no value (null)')
    expect(await after.textContent()).toBe('—')
    await expectAccessible(page)
    await change.click()
    await waitFor(async () => (await read(20)).note === null)
    expect((await read(20)).name).toBe('Engine 20')
    expect(wrong).toEqual([])
  })

  it('selects the loaded rows of a long list, says so, and takes that back', async () => {
    const { page, wrong } = await it_.visit('/data/engine?columns=name')
    await page.getByText('2,000 rows').waitFor()
    const box = page.getByLabel('Select all loaded rows')
    await cell(page, 'Engine 1').waitFor()
    await box.click()
    await page.getByText('100 loaded rows of 2,000 selected').waitFor()
    await page.locator('input:indeterminate').waitFor()
    await expectAccessible(page)
    await box.click()
    await page.getByText('100 loaded rows').waitFor({ state: 'detached' })
    await page.locator('input:indeterminate').waitFor({ state: 'detached' })
    expect(await box.isChecked()).toBe(false)
    // After another row alone, too, and with other rows in the same columns.
    await page.getByLabel('Select row 3', { exact: true }).check()
    await box.click()
    await page.getByText('100 loaded rows of 2,000 selected').waitFor()
    await page.locator('input:indeterminate').waitFor()
    await page.getByLabel('Search in all texts').fill('1999')
    await page.keyboard.press('Enter')
    await page.getByText('1 row', { exact: true }).waitFor()
    await cell(page, 'Engine 1999').waitFor()
    await box.click()
    await page.getByText('1 selected').waitFor()
    expect(await box.isChecked()).toBe(true)
    expect(wrong).toEqual([])
  })

  it('announces new rows only where they match the words that are looked for', async () => {
    const { page, wrong } = await it_.visit('/data/engine?columns=name,stock&search=locomotive')
    await page.getByText('No row matches').waitFor()
    const add = async (name: string, stock: number) =>
      expect((await it_.api.admin('POST', '/items/engine', { name, stock })).status).toBe(201)
    const show = page.getByRole('button', { name: 'Show 1 new row' })
    await add('Locomotive one', 5001)
    // What is written before the list follows is read with it once it does, and needs no announcement.
    await waitFor(async () => {
      if (await show.isVisible()) await show.click({ timeout: 2000 }).catch(() => undefined)
      return cell(page, 'Locomotive one').isVisible()
    })
    const asked = page.waitForResponse((answer) => answer.url().includes('search=') && answer.url().includes('limit=0'))
    await add('Turbine', 5002)
    await asked
    await add('Locomotive two', 5003)
    await show.click()
    await cell(page, 'Locomotive two').waitFor()
    expect(wrong).toEqual([])
  })
})
