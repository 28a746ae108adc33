import type { Page } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'

/** Runs wherever it is taken for HTML. */
const attack = `"><img src=x onerror=alert(1)><svg onload=alert(2)>`

describeWithBrowser('the editor of permissions', () => {
  let console_: Console
  let author: Awaited<ReturnType<Console['api']['user']>>
  let reader: typeof author
  beforeAll(async () => {
    console_ = await startConsole()
    const { api } = console_
    const book = {
      usertrack: true,
      fields: {
        title: { type: 'String' },
        stars: { type: 'Integer' },
        state: { type: 'ENUM', values: ['draft', 'out'] },
        secret: { type: 'String' },
        review: { type: 'Text' },
      },
    }
    expect((await api.admin('POST', '/schemas', { collectionName: 'book', schema: book })).status).toBe(201)
    const shelf = { fields: { name: { type: 'String' }, book: { relType: 'BelongsTo', target: 'book' } } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'shelf', schema: shelf })).status).toBe(201)
    author = await api.user([
      { collection: 'book', action: 'read', fields: ['*', '-secret', 'userCreated.firstName'] },
      { collection: 'book', action: 'create', fields: ['*'] },
      { collection: 'book', action: 'update' },
    ])
    reader = await api.user([])
    for (let stars = 1; stars <= 5; stars += 1)
      await author.call('POST', '/items/book', { title: `Book ${stars}`, stars, state: stars % 2 ? 'out' : 'draft' })
    await api.admin('POST', '/items/book', { title: 'Of another', stars: 5, state: 'out', secret: 'no' })
  })

  const editor = async (who: typeof author, action: string, options: object = {}) => {
    const path = `/permissions?role=${who.roleId}&collection=book`
    const { page, wrong } = await console_.visit(path, { viewport: { width: 1280, height: 1200 }, ...options })
    await page.getByRole('tab', { name: action }).click()
    return { page, wrong }
  }
  const stored = async (who: typeof author, action: string, collection = 'book') => {
    const filter = encodeURIComponent(JSON.stringify({ role_Id: who.roleId, collection, action }))
    return (await console_.api.admin('GET', `/permissions?filter=${filter}`)).body.data[0]
  }
  const press = (page: Page, name: string | RegExp) => page.getByRole('button', { name, exact: true }).click()
  const save = async (page: Page) => {
    await press(page, 'Save')
    await page.getByRole('dialog', { name: 'What this changes' }).waitFor({ state: 'detached' })
  }

  it('builds a rule of two conditions and a choice of fields, and shows what they take away', async () => {
    const { page, wrong } = await editor(author, 'read')
    // The form shows a stored rule as it acts.
    expect(await page.getByLabel('Every field').isChecked()).toBe(true)
    expect(await page.getByLabel('secret', { exact: true }).isChecked()).toBe(false)
    await page.getByText('userCreated.firstName').waitFor()

    await press(page, 'Add a condition')
    expect(await page.getByRole('button', { name: 'Save…' }).isDisabled()).toBe(true)
    await page.getByLabel('Field', { exact: true }).selectOption('stars')
    await page.getByLabel('Operator').selectOption('gte')
    await page.getByLabel('Value', { exact: true }).fill('3')
    await press(page, 'Condition')
    await page.getByLabel('Field', { exact: true }).nth(1).selectOption('userCreated_Id')
    await page.getByRole('button', { name: 'Use a variable' }).nth(1).click()
    const offered = await page.getByRole('menuitem').locator('code').allTextContents()
    await page.getByRole('menuitem', { name: /^\$CURRENT_USER who asks/ }).click()
    expect(await page.getByLabel('Value', { exact: true }).nth(1).inputValue()).toBe('$CURRENT_USER')

    expect(offered.length).toBeGreaterThan(5)
    for (const variable of offered) {
      const conditions = { [variable.startsWith('$NOW') ? 'createdAt' : 'title']: { ne: variable } }
      const change = { role: author.roleId, collection: 'book', action: 'read', permission: { conditions } }
      const { status } = await console_.api.admin('POST', '/permissions/impact', { changes: [change] })
      expect([variable, status]).toEqual([variable, 200])
    }

    // As JSON and back: one state.
    await press(page, 'Edit as JSON')
    const json = page.getByRole('textbox', { name: 'Which items' })
    expect(JSON.parse(await json.inputValue())).toEqual({ stars: { gte: 3 }, userCreated_Id: '$CURRENT_USER' })
    await json.fill('{"stars": {"gte": 3}')
    await page.getByText('This is no JSON object').waitFor()
    expect(await page.getByRole('button', { name: 'Save…' }).isDisabled()).toBe(true)
    await json.fill('{"stars": {"gte": 4}, "userCreated_Id": "$CURRENT_USER"}')
    await press(page, 'Edit as conditions')
    expect(await page.getByLabel('Value', { exact: true }).first().inputValue()).toBe('4')

    // Some fields instead of all; what leads through relations and what is left out stays.
    await page.getByLabel('Every field').uncheck()
    await page.getByLabel('title', { exact: true }).check()
    await page.getByLabel('Every field').check()
    await page.getByLabel('Every field').uncheck()
    await page.getByLabel('stars', { exact: true }).check()
    await page.getByLabel('Through a relation', { exact: true }).fill('userCreated.lastName')
    await page.keyboard.press('Enter')
    await page.getByRole('button', { name: 'Remove userCreated.lastName' }).waitFor()
    // A look at another action loses nothing.
    await page.getByRole('tab', { name: 'update' }).click()
    expect(await page.getByLabel('Every field').isChecked()).toBe(false)
    await page.getByRole('tab', { name: 'read not saved' }).click()
    await expectFits(page, 'permission-editor')
    await press(page, 'Save…')
    await page.getByText('1 user loses 4 rows').waitFor()
    await page.getByText(/^Fields that are no longer shown or written: .*state/).waitFor()
    await page.getByText('Fields that are opened: userCreated.lastName').waitFor()
    await expectFits(page, 'permission-impact')
    expect((await author.call('GET', '/items/book')).body.totalCount).toBe(6)
    await save(page)

    await page.getByRole('tab', { name: 'read', exact: true }).waitFor()
    expect(await stored(author, 'read')).toMatchObject({
      fields: ['-secret', 'userCreated.firstName', 'title', 'stars', 'userCreated.lastName'],
      conditions: { stars: { gte: 4 }, userCreated_Id: '$CURRENT_USER' },
      acl_Ids: null,
    })
    const { body } = await author.call('GET', '/items/book?sort=stars')
    expect(body.data.map(({ id: _, ...row }: { id: string }) => row)).toEqual([
      { title: 'Book 4', stars: 4 },
      { title: 'Book 5', stars: 5 },
    ])
    expect(wrong).toEqual([])
  })

  it('opens to writers nothing that was not chosen', async () => {
    const { page } = await editor(author, 'update')
    // Null is the default of the action, and stays null.
    expect(await page.getByLabel('Every field').isChecked()).toBe(false)
    await press(page, 'Save…')
    await page.getByText('Nobody gains or loses rows or fields.').waitFor()
    await save(page)
    expect(await stored(author, 'update')).toMatchObject({ fields: null })

    await page.getByRole('tab', { name: 'create' }).click()
    expect(await page.getByLabel('Every field').isChecked()).toBe(true)
    expect(await page.getByLabel(/^userCreated_Id/).isChecked()).toBe(false)
    await page.getByLabel('Every field').uncheck()
    for (const name of ['title', 'stars']) await page.getByLabel(name, { exact: true }).check()
    await press(page, 'Save…')
    await page.getByText(/^Fields that are no longer shown or written/).waitFor()
    await save(page)
    expect((await stored(author, 'create')).fields).toEqual(['title', 'stars'])
    expect((await author.call('POST', '/items/book', { title: 'x', review: 'y' })).status).toBe(403)

    // A reader of no field would be one of every field.
    await page.getByRole('tab', { name: 'read' }).click()
    for (const name of ['title', 'stars']) await page.getByLabel(name, { exact: true }).uncheck()
    for (const name of ['userCreated.firstName', 'userCreated.lastName']) await press(page, `Remove ${name}`)
    await page.getByText('Choose a field.').waitFor()
    expect(await page.getByRole('button', { name: 'Save…' }).isDisabled()).toBe(true)
    await page.getByRole('tab', { name: 'create' }).click()
    await page.getByRole('tab', { name: 'read' }).click()
    expect(await page.getByLabel('title', { exact: true }).isChecked()).toBe(true)

    // The page says what it has not counted.
    await page.getByLabel('Which related items').fill('{"userCreated": {"firstName": "Ada"}}')
    await press(page, 'Save…')
    await page.getByText('Which related items are shown changes. These are not counted.').waitFor()
    await press(page, 'Cancel')
  })

  it('makes a named rule, follows it in two permissions, and changes both by it', async () => {
    const { api } = console_
    const { page, wrong } = await console_.visit('/permissions', { viewport: { width: 1280, height: 1200 } })
    await page.getByRole('link', { name: 'Named rules' }).click()
    await page.getByRole('link', { name: 'Read_Own', exact: true }).click()
    await page.getByText('nobody changes it').waitFor()
    await press(page, 'Close')
    await page.getByRole('link', { name: 'New rule' }).click()
    await page.getByLabel('Name', { exact: true }).fill(attack)
    await page.getByLabel('What it is for').fill(attack)
    await page.getByLabel('With the names of').selectOption('book')
    await press(page, 'Add a condition')
    await page.getByLabel('Field', { exact: true }).selectOption('state')
    await page.getByLabel('Operator').selectOption('eq')
    await page.getByLabel('Value', { exact: true }).selectOption('out')
    await expectFits(page, 'named-rule')
    await press(page, 'Save…')
    await page.getByText('No permission follows it, so nobody gains or loses anything.').waitFor()
    await press(page, 'Create')
    await page.getByRole('link', { name: attack, exact: true }).waitFor()
    const find = async () =>
      (await api.admin('GET', '/acls')).body.data.find(({ name }: { name: string }) => name === attack)
    // Of fields nothing was said.
    expect(await find()).toMatchObject({
      description: attack,
      fields: null,
      conditions: { state: 'out' },
      system: false,
    })
    const { id } = await find()

    // Followed by two: one has no permission yet, the other has one of its own.
    for (const [who, title] of [
      [reader, '1 user gains 4 rows'],
      [author, '1 user gains 3 rows'],
    ] as const) {
      await page.goto(`${console_.address}/console/permissions?role=${who.roleId}&collection=book`)
      await page.getByLabel('May read items').check()
      await page.getByLabel('Named rules').check()
      await page.getByText('Choose a rule.').waitFor()
      expect(await page.getByRole('button', { name: 'Save…' }).isDisabled()).toBe(true)
      await page.getByLabel(attack).check()
      await press(page, 'Save…')
      await page.getByText(title).waitFor()
      await save(page)
      expect(await stored(who, 'read')).toMatchObject({ acl_Ids: [id], fields: null, conditions: null })
      expect((await who.call('GET', '/items/book')).body.totalCount).toBe(4)
    }
    await expectAccessible(page)

    // A rule of one's own goes on from what the named one gives.
    await page.getByLabel('A rule of its own').check()
    expect(await page.getByLabel('Value', { exact: true }).inputValue()).toBe('out')
    await press(page, 'Save…')
    await page.getByText('Nobody gains or loses rows or fields.').waitFor()
    await press(page, 'Cancel')
    await press(page, 'Close')
    await press(page, 'Leave')

    // A change of the rule, with what it does to both.
    await page.goto(`${console_.address}/console/permissions/rules`)
    await page.getByRole('row').filter({ hasText: 'onerror' }).getByText('2', { exact: true }).waitFor()
    await expectFits(page, 'named-rules')
    await page.getByRole('link', { name: attack, exact: true }).click()
    await page.getByText('2 permissions follow it.').waitFor()
    await page.getByLabel('Value', { exact: true }).selectOption('draft')
    await press(page, 'Save…')
    const asked = page.getByRole('dialog', { name: 'What this changes' })
    await expect.poll(() => asked.getByText('1 user loses 4 rows').count()).toBe(2)
    await expect.poll(() => asked.getByText('1 user gains 2 rows').count()).toBe(2)
    await expectFits(page, 'named-rule-impact')
    expect((await reader.call('GET', '/items/book')).body.totalCount).toBe(4)
    await save(page)
    for (const who of [reader, author])
      expect((await who.call('GET', '/items/book?fields=state')).body.data).toEqual([
        expect.objectContaining({ state: 'draft' }),
        expect.objectContaining({ state: 'draft' }),
      ])
    expect(await find()).toMatchObject({ fields: null, conditions: { state: 'draft' } })

    // The palette knows the page by its name.
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox', { name: 'Search or go to' }).fill('Named rul')
    await page.getByRole('option', { name: /Named rules/ }).waitFor()
    await page.keyboard.press('Escape')

    // A rule in use is not deleted.
    await page.getByRole('button', { name: `Delete ${attack}` }).click()
    await page.getByText('Give them another rule first.').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Close', exact: true }).last().click()
    for (const who of [reader, author]) await api.admin('DELETE', `/permissions/${(await stored(who, 'read')).id}`)
    await page.reload()
    await page.getByRole('button', { name: `Delete ${attack}` }).click()
    await press(page, 'Delete')
    await expect.poll(find).toBeUndefined()
    expect(wrong).toEqual([])
  })

  it('opens nothing where the named rules of a permission are gone, or what is stored makes no sense', async () => {
    const { api } = console_
    const rule = { name: 'Soon gone', fields: ['title'] }
    const { id } = (await api.admin('POST', '/acls', rule)).body
    const user = await api.user([
      { collection: 'book', action: 'read', acl_Ids: [id] },
      { collection: 'book', action: 'delete', conditions: { stars: { lt: 0 } } },
    ])
    await api.sql('delete from "svc_ACL" where id = $1', [id])
    await api.sql(
      `update "svc_Permission" set fields = $2, conditions = $3 where "role_Id" = $1 and action = 'delete'`,
      [user.roleId, JSON.stringify({ [attack]: 1 }), JSON.stringify({ OR: attack, [attack]: {} })],
    )
    await api.admin('POST', '/permissions/reload')
    const { page, wrong } = await editor(user, 'read')
    await page.getByText('A rule that is gone. It grants nothing.').waitFor()
    await page.getByLabel('A rule of its own').check()
    await press(page, 'Save…')
    await page.getByText('Fields that are opened: id').waitFor()
    await save(page)
    expect((await user.call('GET', '/items/book')).body).toEqual({ data: [], totalCount: 0 })
    // A rule that the form cannot show is text, and the server says what is wrong with it.
    await page.getByRole('tab', { name: 'delete' }).click()
    expect(JSON.parse(await page.getByRole('textbox', { name: 'Which items' }).inputValue())).toMatchObject({
      OR: attack,
    })
    await press(page, 'Edit as conditions')
    await page.getByText('These conditions cannot be shown as a form').waitFor()
    await press(page, 'Save…')
    await page.getByRole('dialog', { name: 'What this changes' }).getByRole('alert').waitFor()
    expect(await page.getByRole('button', { name: 'Save', exact: true }).isDisabled()).toBe(true)
    expect(wrong.filter((text) => !/status of 400/.test(text))).toEqual([])
  })
})
