import type { Page } from 'playwright-core'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { createAccount, plant } from '../support/accounts.ts'
import { startApi } from '../support/api.ts'
import { describeWithBrowser } from '../support/browser.ts'
import {
  buildConsole,
  type Console,
  expectAccessible,
  expectFits,
  holdChanges,
  startConsole,
} from '../support/console.ts'
import { unseenFocus } from '../support/layout.ts'
import { administrator } from '../support/prepare.ts'
import { appCode } from '../support/totp.ts'
import { waitFor } from '../support/wait.ts'

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; font-src 'self'; img-src 'self' blob: data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

describe('GET /console', () => {
  it('is one page at each of its addresses, with a policy that runs nothing stored', async () => {
    await buildConsole()
    const api = await startApi()
    const page = await api.anonymous('GET', '/console')
    for (const path of ['/console', '/console/', '/console/data/country', '/console/log?from=2026-01-01']) {
      const { status, text, headers } = await api.anonymous('GET', path)
      expect({ path, status, text }).toEqual({ path, status: 200, text: page.text })
      expect(headers).toMatchObject({
        'content-security-policy': policy,
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cache-control': 'no-cache',
      })
    }
    const [script] = /\/console\/assets\/[\w.-]+\.js/.exec(page.text)!
    const compressed = await api.anonymous('GET', script, undefined, { 'accept-encoding': 'gzip' })
    expect(compressed.headers).toMatchObject({
      'content-encoding': 'gzip',
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': 'public, max-age=31536000, immutable',
      'content-security-policy': policy,
    })
    for (const path of ['mail-view', 'mail-view.js']) {
      const { headers } = await api.anonymous('GET', `/console/${path}`)
      expect(headers['content-security-policy']).toMatch(/^default-src 'none'; .* sandbox allow-scripts allow-popups; /)
      expect(headers['content-security-policy']).not.toContain('allow-same-origin')
    }
    for (const path of ['none.js', '..%2findex.html', '..%2f..%2fpackage.json', 'index.html', '.js'])
      expect({ path, status: (await api.anonymous('GET', `/console/assets/${path}`)).status }).toEqual({
        path,
        status: 404,
      })
  })
})

/** Runs wherever it is taken for HTML. */
const attack = `"><img src=x onerror=alert(1)><svg onload=alert(2)>{{7*7}}`

describeWithBrowser('the console', () => {
  let it_: Console
  const key = (row: number) => `00000000-0000-4000-8000-${String(row).padStart(12, '0')}`
  const product = (row: number) => `/items/product/${key(row)}`
  const read = async (row: number) => (await it_.api.admin('GET', product(row))).body.data

  beforeAll(async () => {
    it_ = await startConsole({
      AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY',
      PASSKEY_RP_ID: 'localhost',
      PASSKEY_RP_NAME: 'Acme',
    })
    const make = async (collectionName: string, schema: object) => {
      const { status, text } = await it_.api.admin('POST', '/schemas', { collectionName, schema })
      expect({ status, text }).toMatchObject({ status: 201 })
    }
    await make('category', { name: 'Categories', fields: { name: { type: 'String', allowNull: false } } })
    await make('tag', { name: 'Tags', fields: { name: { type: 'String', allowNull: false } } })
    await make('product', {
      name: 'Products',
      description: attack,
      fields: {
        name: { type: 'String', allowNull: false, description: attack },
        stock: { type: 'Integer' },
        state: { type: 'ENUM', values: ['draft', 'on sale', attack] },
        attributes: { type: 'JSON' },
        category: { relType: 'BelongsTo', target: 'category' },
        tags: { relType: 'BelongsToMany', target: 'tag', through: 'product_tag' },
      },
    })
    const { body } = await it_.api.admin('POST', '/items/category', { name: 'Engines' })
    await it_.api.admin('POST', '/items/tag/bulk', [{ name: 'heavy' }, { name: 'new' }])
    await it_.api.sql(
      `insert into product (id, name, stock, state, attributes, "category_Id")
       select ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid, 'Engine ' || n, n, 'draft', $1::jsonb, $2 from generate_series(1, 1200) n`,
      [JSON.stringify({ note: attack }), body.data.id],
    )
    await it_.api.sql('update product set name = $1, state = $1 where stock = 3', [attack])
  })

  const cell = (page: Page, text: string) => page.getByRole('gridcell', { name: text, exact: true })

  it('signs a user in by password, leads to where they wanted to go, and out again', async () => {
    const { page, wrong } = await it_.visit('/data?x=1', { as: null })
    await page.getByLabel('E-mail').fill(administrator.email)
    await page.getByLabel('Password').fill('not the password')
    await page.getByLabel('Password').press('Enter')
    await page.getByRole('alert').waitFor()
    await expectFits(page)
    await page.getByLabel('Password').fill(administrator.password)
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await page.getByRole('heading', { name: 'Data' }).waitFor()
    await page.locator('main').getByText('Products').waitFor()
    await page.locator('main').getByText('1,200').waitFor()
    // The session is nothing that a script could take.
    expect(await page.evaluate('[Object.keys(localStorage), document.cookie]')).toEqual([[], ''])
    await expectFits(page)
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox').fill('sign out')
    await expectAccessible(page)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: /^Sign in/ }).waitFor()
    expect((await page.request.get(`${it_.address}/auth/check`)).status()).toBe(401)
    expect(wrong.filter((text) => !/status of 40[01]/.test(text))).toEqual([])
  })

  it('signs a user in by the first link, a mailed code, a second factor and a passkey', async () => {
    const { api } = it_
    const { email } = await createAccount(api)
    const welcome = await it_.visit(`/welcome#${await plant(api, 'first-sign-in', email)}`, { as: null })
    await welcome.page.getByLabel('New password').fill('a password of their own')
    expect(welcome.page.url()).not.toContain('#')
    await expectFits(welcome.page)
    await welcome.page.getByRole('button', { name: 'Set it and sign in' }).click()
    await welcome.page.getByText('Your role does not grant any collection.').waitFor()
    // The second factor, by the app.
    const { body } = await api.anonymous('POST', '/auth/login', { email, password: 'a password of their own' })
    const call = api.as(body.token)
    const enabled = await call('POST', '/auth/2fa/enable', { currentPassword: 'a password of their own' })
    const code = () => appCode(enabled.body.secret, 1)
    expect((await call('POST', '/auth/2fa/verify-setup', { code: appCode(enabled.body.secret) })).status).toBe(200)
    const { page, wrong } = await it_.visit('/data', { as: null })
    await page.getByLabel('E-mail').fill(email)
    await page.getByRole('button', { name: 'Mail me a code' }).click()
    await page.getByLabel('Code').fill(await plant(api, 'magic-link', email, { form: 'code' }))
    await page.getByRole('button', { name: 'Sign in', exact: true }).click()
    await page.getByRole('heading', { name: 'One more step' }).waitFor()
    await page.getByLabel('Code').fill(code())
    await page.getByRole('button', { name: 'Continue' }).click()
    await page.getByRole('heading', { name: 'Data' }).waitFor()
    // A passkey, made by the client and asked for by the console.
    // The authenticator stays with the page.
    onTestFinished(() => page.close())
    const devtools = await page.context().newCDPSession(page)
    await devtools.send('WebAuthn.enable')
    await devtools.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        ...{ protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true },
        ...{ isUserVerified: true, automaticPresenceSimulation: true },
      },
    })
    await page.evaluate(`import('/client.js').then(({ createClient }) =>
      createClient({ auth: { mode: 'cookie' } }).auth.addPasskey('browser', { currentPassword: 'a password of their own' }))`)
    await page
      .getByRole('button', { name: /^. ?U/ })
      .or(page.locator('aside button[aria-haspopup=menu]'))
      .first()
      .click()
    await page.getByRole('menuitem', { name: 'Sign out' }).click()
    await page.getByRole('button', { name: 'Sign in with a passkey' }).click()
    await page.getByRole('heading', { name: 'Data' }).waitFor()
    expect([...wrong, ...welcome.wrong].filter((text) => !/status of 40[13]/.test(text))).toEqual([])
  })

  it('shows what another user sees, changes nothing meanwhile, and says so', async () => {
    const { email } = await it_.api.user([{ collection: 'tag', action: 'read' }])
    const { page, wrong } = await it_.visit('/data')
    await page.locator('aside button[aria-haspopup=menu]').click()
    await page.getByRole('menuitem', { name: 'See as somebody else…' }).click()
    await page.getByLabel('User', { exact: true }).fill(email.slice(0, 5))
    await page.getByRole('option').first().click()
    await expectAccessible(page)
    await page.getByRole('button', { name: /^See as/ }).click()
    await page.getByText('Nothing can be changed.').waitFor()
    await page.locator('main').getByText('Tags').waitFor()
    expect(await page.locator('main').getByText('Products').count()).toBe(0)
    await expectFits(page)
    await page.getByRole('button', { name: 'Be yourself again' }).click()
    await page.locator('main').getByText('Products').waitFor()
    // The other may not read accounts, not even their own.
    expect(wrong.filter((text) => !/status of 403/.test(text))).toEqual([])
  })

  it('shows a user with few grants what these open, and offers nothing else', async () => {
    const few = await it_.api.user([
      { collection: 'product', action: 'read', fields: ['id', 'name', 'stock'], conditions: { stock: { gt: 1195 } } },
      { collection: 'product', action: 'update', fields: ['stock'] },
      { collection: 'tag', action: 'create', fields: '*' },
      { collection: 'tag', action: 'read', fields: '*' },
    ])
    const as = { email: few.email, password: 'password of a user' }
    const { page, wrong } = await it_.visit('/data/product', { as })
    await cell(page, 'Engine 1200').waitFor()
    await page.getByText('5 rows').waitFor()
    const heads = page.getByRole('columnheader').getByRole('button').filter({ hasText: /./ })
    expect(await heads.allTextContents()).toEqual(['name', 'stock', 'id'])
    expect(await page.getByRole('link', { name: 'New', exact: true }).count()).toBe(0)
    await page.getByRole('button', { name: 'Import, export' }).click()
    await page
      .getByRole('menuitem', { name: /^Export/ })
      .first()
      .waitFor()
    expect(await page.getByRole('menuitem', { name: /^Import/ }).count()).toBe(0)
    await page.keyboard.press('Escape')
    await cell(page, 'Engine 1200').dblclick()
    await page.getByText('Your role does not change name.').waitFor()
    // The pointer opens a record by its own link, and by its key.
    await page.getByRole('link', { name: key(1199) }).waitFor()
    await page.getByRole('link', { name: 'Open Engine 1199' }).click()
    await page.waitForURL(`**/data/product/${key(1199)}`)
    await page.getByRole('textbox', { name: /^stock/ }).fill('7000')
    expect(await page.getByRole('textbox', { name: /^name/ }).count()).toBe(0)
    expect(await page.getByRole('button', { name: 'Delete' }).count()).toBe(0)
    expect(await page.getByRole('link', { name: 'Who can see this' }).count()).toBe(0)
    await expectFits(page)
    await page.getByRole('button', { name: 'Save' }).click()
    await waitFor(async () => (await read(1199)).stock === 7000)
    // Until then leaving the page would be asked about.
    await page.getByText('1 change', { exact: true }).waitFor({ state: 'detached' })
    await it_.api.sql('update product set stock = 1199 where stock = 7000')
    await page.goto(`${it_.address}/console/data/tag`)
    await page.getByRole('link', { name: 'New', exact: true }).waitFor()
    // Collections without a grant look as if they were not there.
    for (const path of ['/data/category', '/data/nothing', '/data/nothing/1', '/trash/nothing']) {
      await page.goto(`${it_.address}/console${path}`)
      await page.getByText('There is no collection').waitFor()
    }
    await page.getByRole('link', { name: 'All collections' }).click()
    await page.getByRole('heading', { name: 'Data' }).waitFor()
    // The other may not read accounts, not even their own.
    expect(wrong.filter((text) => !/status of 403/.test(text))).toEqual([])
  })

  it('imports a file whose columns have other names, and brings deleted rows back from the trash', async () => {
    const { page, wrong } = await it_.visit('/data/tag')
    await page.getByText('2 rows').waitFor()
    await page.getByRole('button', { name: 'Import, export' }).click()
    await page.getByRole('menuitem', { name: /^Import/ }).click()
    const choose = (rows: string) =>
      page.getByLabel('File').setInputFiles({ name: 'tags.csv', mimeType: 'text/csv', buffer: Buffer.from(rows) })
    await choose('Label,other\nfragile,1\n,2\n')
    await page.getByText('No column goes to name').waitFor()
    await page.getByLabel('Field for Label').selectOption('name')
    expect(await page.getByRole('button', { name: 'Import', exact: true }).isDisabled()).toBe(true)
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('1 of 2 rows cannot be imported').waitFor()
    await page.getByRole('row', { name: '2 3 name' }).waitFor()
    await expectAccessible(page)
    expect(await page.getByRole('button', { name: 'Import', exact: true }).isDisabled()).toBe(true)
    expect((await it_.api.admin('GET', '/items/tag')).body.totalCount).toBe(2)
    await choose('Label,other\nfragile,1\n')
    await page.getByLabel('Field for Label').selectOption('name')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('1 row can be imported: 1 new in tag.').waitFor()
    await page.getByRole('button', { name: 'Import 1 row' }).click()
    await page.getByText('3 rows').waitFor()
    const { body } = await it_.api.admin('GET', '/items/tag?filter={"name":"fragile"}')
    await it_.api.admin('DELETE', `/items/tag/${body.data[0].id}`)
    await page.getByRole('button', { name: 'Import, export' }).click()
    await page.getByRole('menuitem', { name: 'Trash' }).click()
    await page.getByRole('link', { name: 'fragile' }).waitFor()
    await expectFits(page)
    await page.getByRole('button', { name: 'Bring it back' }).click()
    await page.getByText('Nothing was deleted').waitFor()
    expect((await it_.api.admin('GET', '/items/tag')).body.totalCount).toBe(3)
    expect(wrong.filter((text) => !/status of 400/.test(text))).toEqual([])
  })

  it('goes through rows by keyboard, narrows them, and says how to ask for the same', async () => {
    const { page, wrong } = await it_.visit('/')
    await page.getByRole('heading', { name: 'Data' }).waitFor()
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox').fill('produ')
    await page.keyboard.press('Enter')
    await page.getByText('1,200 rows').waitFor()
    const grid = page.getByRole('grid')
    await cell(page, 'Engine 1').waitFor()
    await grid.focus()
    await page.keyboard.press('Control+End')
    await cell(page, 'Engine 1200').waitFor()
    await page.keyboard.press('Control+Home')
    await cell(page, 'Engine 1').waitFor()
    // Without a jump: from page to page.
    for (let screen = 0; screen < 6; screen += 1) await page.keyboard.press('PageDown')
    await waitFor(
      async () => Number(/\d+/.exec((await grid.getAttribute('aria-activedescendant')) ?? '')?.[0] ?? 0) >= 0,
    )
    await page.getByRole('button', { name: 'Filter' }).click()
    await page.getByLabel('Field', { exact: true }).selectOption('stock')
    await page.getByLabel('Operator').selectOption('gt')
    await page.getByLabel('Value').fill('1190')
    await expectAccessible(page)
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByText('10 rows').waitFor()
    expect(new URL(page.url()).searchParams.get('filter')).toBe('{"stock":{"gt":1190}}')
    await page.getByRole('columnheader', { name: 'stock' }).getByRole('button', { name: 'stock', exact: true }).click()
    await page.getByRole('columnheader', { name: 'stock' }).getByRole('button', { name: 'stock', exact: true }).click()
    await waitFor(async () => (await page.getByRole('row').nth(1).textContent())!.includes('Engine 1200'))
    await page.getByRole('button', { name: 'API' }).click()
    await page.getByText('curl -g').waitFor()
    await expectAccessible(page)
    await page.keyboard.press('Escape')
    // Saved, and opened again from somewhere else.
    await page.getByRole('button', { name: 'Views' }).click()
    await page.getByLabel('Save what is shown as').fill('The last ten')
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await page.getByRole('button', { name: 'The last ten', exact: true }).waitFor()
    await expectAccessible(page)
    await page.goto(`${it_.address}/console/data/product`)
    await page.getByText('1,200 rows').waitFor()
    await page.getByRole('button', { name: 'Views' }).click()
    await page.getByRole('button', { name: 'The last ten', exact: true }).click()
    await page.getByText('10 rows').waitFor()
    expect(new URL(page.url()).searchParams.get('sort')).toBe('-stock')
    // The address alone shows the same to another user.
    await page.reload()
    await page.getByText('10 rows').waitFor()
    await expectFits(page)
    expect(wrong).toEqual([])
  })

  it('edits cells where they stand, shows what others write, and merges what both have written', async () => {
    const { page, wrong } = await it_.visit('/data/product?columns=name,stock')
    await cell(page, 'Engine 2').waitFor()
    const before = await it_.api.position()
    const mails = await it_.api.jobs('mail')
    await cell(page, 'Engine 2').dblclick()
    await page.getByLabel('name', { exact: true }).fill('Steam engine')
    await page.keyboard.press('Enter')
    await cell(page, 'Steam engine').waitFor()
    await waitFor(async () => (await read(2)).name === 'Steam engine')
    expect(await it_.api.log(before)).toMatchObject([
      { type: 'data', entity: 'product', entityId: key(2), action: 'update' },
    ])
    expect(await it_.api.jobs('mail')).toEqual(mails)
    await it_.api.sql(`update product set name = 'By psql' where stock = 4`)
    await cell(page, 'By psql').waitFor()
    // Somebody writes the field while it is edited.
    await cell(page, 'Engine 5').click()
    const version = page.waitForResponse((answer) => answer.url().includes(product(5)))
    await page.keyboard.press('F2')
    await page.getByLabel('name', { exact: true }).waitFor()
    await version
    await it_.api.admin('PATCH', product(5), { name: 'Theirs' })
    await page.getByLabel('name', { exact: true }).fill('Mine')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Somebody else has changed this meanwhile' }).waitFor()
    await expectAccessible(page)
    await page.getByRole('radio', { name: /Yours/ }).check()
    await page.getByRole('button', { name: 'Save the result' }).click()
    await waitFor(async () => (await read(5)).name === 'Mine')
    expect(wrong.filter((text) => !/status of 412/.test(text))).toEqual([])
  })

  it('edits lists as lines, and as JSON where lines would lose something', async () => {
    const fields = { name: { type: 'String' }, tags: { type: 'Array_String' }, sizes: { type: 'Array_Integer' } }
    await it_.api.admin('POST', '/schemas', { collectionName: 'parcel', schema: { fields } })
    await it_.api.admin('POST', '/items/parcel', { name: 'First', tags: ['red', 'very large'], sizes: [3, 5] })
    await it_.api.admin('POST', '/items/parcel', { name: 'Second', tags: ['two\nlines'], sizes: null })
    const stored = async (name: string) =>
      (await it_.api.sql(`select tags, sizes from parcel where name = '${name}'`))[0]
    const { page, wrong } = await it_.visit('/data/parcel?columns=name,tags,sizes')
    const before = await it_.api.position()
    await page.getByRole('gridcell', { name: /very large/ }).dblclick()
    const editor = page.getByLabel('tags', { exact: true })
    expect(await editor.inputValue()).toBe('red\nvery large')
    await editor.fill('red\n\n  very large\n"3"')
    await page.keyboard.press('Control+Enter')
    await waitFor(async () => (await stored('First')).tags.length === 3)
    expect((await stored('First')).tags).toEqual(['red', 'very large', '"3"'])
    expect(await it_.api.log(before)).toMatchObject([{ type: 'data', entity: 'parcel', action: 'update' }])
    await page.getByRole('gridcell', { name: /two lines/ }).dblclick()
    expect(await editor.inputValue()).toBe('["two\\nlines"]')
    await page.keyboard.press('Escape')
    // In a form.
    await page.getByRole('link', { name: 'Open First' }).click()
    await page.getByRole('textbox', { name: /^sizes/ }).fill('3\nfive')
    await page.getByText('This must be a whole number.').waitFor()
    await page.getByRole('textbox', { name: /^sizes/ }).fill('3\n5\n8')
    await expectAccessible(page)
    await page.getByRole('button', { name: 'Save' }).click()
    await waitFor(async () => (await stored('First')).sizes.length === 3)
    expect(wrong).toEqual([])
  })

  it('changes and deletes many rows after showing what that does, and takes it back', async () => {
    const { page, wrong } = await it_.visit('/data/product?filter={"stock":{"between":[20,22]}}&columns=name,stock')
    await cell(page, 'Engine 20').click()
    for (const press of ['Space', 'ArrowDown', 'Space']) await page.keyboard.press(press)
    await page.getByText('2 selected').waitFor()
    await page.getByRole('button', { name: 'Change…' }).click()
    await page.getByLabel('Field', { exact: true }).selectOption('state')
    await page.getByLabel(/^New value/).selectOption('on sale')
    await page.getByRole('button', { name: 'Change 2 rows' }).click()
    await waitFor(async () => (await read(20)).state === 'on sale' && (await read(21)).state === 'on sale')
    expect((await read(22)).state).toBe('draft')
    await cell(page, 'Engine 22').click()
    await page.keyboard.press('Space')
    await page.keyboard.press('Delete')
    await page.getByText('Nothing else refers to it.').waitFor()
    await expectAccessible(page)
    await page.getByRole('button', { name: 'Delete 1 row' }).click()
    await page.getByText('2 rows', { exact: true }).waitFor()
    expect((await it_.api.admin('GET', product(22))).status).toBe(403)
    await page.getByRole('dialog', { name: 'Deleted' }).getByRole('button', { name: 'Undo' }).click()
    await waitFor(async () => (await it_.api.admin('GET', product(22))).status === 200)
    expect(wrong).toEqual([])
  })

  it('shows a record with everything that has happened to it, and brings it back', async () => {
    const { page, wrong } = await it_.visit(`/data/product/${key(30)}`)
    const timeline = page.locator('[data-timeline]')
    await timeline.getByText('SQL or a job').waitFor()
    await page.getByLabel(/^name/).fill('Renamed')
    await page.getByLabel(/^tags/).fill('hea')
    await page.getByRole('option', { name: 'heavy' }).click()
    await page.getByRole('button', { name: 'Save' }).click()
    await timeline.getByText('by Admin User').waitFor()
    expect(await read(30)).toMatchObject({ name: 'Renamed' })
    const { body } = await it_.api.admin('GET', `${product(30)}?fields=tags.name`)
    expect(body.data.tags).toMatchObject([{ name: 'heavy' }])
    await expectFits(page)
    // The typed text stays while others write, and does not overwrite theirs unasked.
    await page.getByLabel(/^stock/).fill('7')
    await it_.api.admin('PATCH', product(30), { stock: 8, state: 'on sale' })
    await timeline.getByText('on sale').waitFor()
    expect(await page.getByLabel(/^stock/).inputValue()).toBe('7')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByRole('radio', { name: /Theirs/ }).check()
    await page.getByRole('button', { name: 'Save the result' }).click()
    await page.getByRole('heading', { name: 'Somebody else' }).waitFor({ state: 'detached' })
    expect(await read(30)).toMatchObject({ stock: 8, state: 'on sale' })
    // One field.
    await timeline.getByRole('button', { name: 'Bring name back' }).click()
    await page.getByRole('button', { name: 'Change 1 field' }).click()
    await waitFor(async () => (await read(30)).name === 'Engine 30')
    // A moment.
    await timeline
      .getByRole('listitem')
      .filter({ hasText: 'Created' })
      .getByRole('button', { name: 'As of here' })
      .click()
    await page.getByText(/^As of .*, read-only\.$/).waitFor()
    await page.getByRole('button', { name: 'Back to now' }).first().click()
    // The whole record.
    await page.getByRole('button', { name: 'Delete', exact: true }).click()
    await page.getByRole('button', { name: 'Delete 1 row' }).click()
    await page.getByRole('grid').waitFor()
    expect((await it_.api.admin('GET', product(30))).status).toBe(403)
    await page.goto(`${it_.address}/console/data/product/${key(30)}`)
    await page.getByText('This record is not here').waitFor()
    await timeline.getByRole('button', { name: 'The whole request' }).first().click()
    await timeline.getByText('In the same request').waitFor()
    await timeline.getByRole('button', { name: 'Bring it back' }).first().click()
    await page.getByRole('dialog').getByRole('button', { name: 'Bring it back' }).click()
    await waitFor(async () => (await it_.api.admin('GET', product(30))).status === 200)
    expect(wrong.filter((text) => !/status of (403|412)/.test(text))).toEqual([])
  })

  it('keeps what is typed while a record is being saved, as a change of what was saved', async () => {
    const { page, wrong } = await it_.visit(`/data/product/${key(31)}`)
    await page.getByLabel(/^name/).fill('First')
    const letThrough = await holdChanges(page)
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByLabel(/^name/).fill('Second')
    await page.getByLabel(/^stock/).fill('77')
    letThrough()
    await page.getByText('Saved').waitFor()
    expect(await read(31)).toMatchObject({ name: 'First' })
    await page.getByText('2 changes').waitFor()
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('2 changes').waitFor({ state: 'detached' })
    expect(await read(31)).toMatchObject({ name: 'Second', stock: 77 })
    expect(wrong).toEqual([])
  })

  it('runs nothing of what is stored', async () => {
    const { page, wrong } = await it_.visit('/data/product?filter={"stock":3}')
    await page.getByRole('gridcell', { name: attack }).first().waitFor()
    await page.getByRole('grid').focus()
    await page.keyboard.press('Enter')
    await page.locator('[data-timeline]').getByText(attack).first().waitFor()
    await page.goto(`${it_.address}/console/data`)
    await page.getByText(attack).waitFor()
    expect(wrong).toEqual([])
  })

  it('goes to every page by its address, runs none of the names there, and shows where the keyboard is', async () => {
    const make = async (path: string, body: object, headers = {}) => {
      const { status, body: answer } = await it_.api.admin('POST', path, body, headers)
      expect({ path, status, answer }).toMatchObject({ status: 201 })
      return answer.data?.id ?? answer.id
    }
    const role = await make('/items/svc_Role', { name: attack, description: attack })
    const user = await make('/items/svc_User', {
      ...{ email: 'attack@example.com', password: 'password of a user', firstName: attack, lastName: attack },
    })
    await make('/items/svc_UserRole', { user_Id: user, role_Id: role })
    await make('/permissions', { role_Id: role, collection: 'product', action: 'read', conditions: { name: attack } })
    const report = {
      collection: 'product',
      aggregate: { rows: { function: 'count', field: '*' } },
      groupBy: ['name'],
    }
    await make('/views', { name: attack, page: 'data', collection: 'product', query: { search: attack } })
    await make('/views', { name: attack, page: 'reports', collection: 'product', query: report })
    const panels = [{ id: 'a', name: attack, width: 'full', report }]
    const dashboard = await make('/views', { name: attack, page: 'dashboards', query: { panels } })
    await make('/items/svc_Workflow', { name: attack, description: attack })
    await make('/items/tag', { name: attack }, { 'x-svc-agent': 'an agent' })
    const { page, wrong } = await it_.visit('/data')
    const unseen: string[] = []
    for (const path of [
      ...['/data', '/data/product', `/data/product/${key(3)}`, '/data/product/new', '/trash/product'],
      ...['/reports', `/reports/dashboards/${dashboard}`, '/reports/build?collection=product', '/log'],
      ...['/schema', '/schema?view=diagram', '/schema/product', '/schema?open=new'],
      ...['/permissions', `/permissions?role=${role}&collection=product`, '/permissions/rules'],
      `/permissions/explain?user=${user}&collection=product&action=read&id=${key(3)}`,
      ...['/people', `/people/${user}`, '/people/roles', '/workflows', '/account'],
      ...['health', 'jobs', 'mails', 'templates', 'webhooks', 'files', 'settings', 'consumers'].map(
        (section) => `/operations/${section}`,
      ),
    ]) {
      await page.goto(`${it_.address}/console${path}`)
      await page.locator('main h1').waitFor()
      await expect.poll(() => page.locator('main [role=status][aria-label*=oading]').count()).toBe(0)
      for (const element of await unseenFocus(page, 4)) unseen.push(`${path}: ${element}`)
    }
    for (const path of ['/nowhere', '/data/product/x/y', '/operations/nowhere']) {
      await page.goto(`${it_.address}/console${path}`)
      await page.getByText('There is no such page').waitFor()
      expect({ path, ways: await page.locator('nav').getByRole('link', { name: 'Permissions' }).count() }).toEqual({
        path,
        ways: 1,
      })
    }
    expect(unseen).toEqual([])
    expect(wrong).toEqual([])
  })
})
