import { mkdir, writeFile } from 'node:fs/promises'
import type { Page } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectFits, startConsole } from '../support/console.ts'

/** Runs wherever it is taken for HTML. */
const attack = `"><img src=x onerror=alert(1)><svg onload=alert(2)>`

describeWithBrowser('reports and dashboards', () => {
  let console_: Console
  let user: Awaited<ReturnType<Console['api']['user']>>
  const sell = (amount: number, at: string, state: string, customer?: object) =>
    console_.api.admin('POST', '/items/sale', { amount, at, state, ...(customer && { customer }) })

  beforeAll(async () => {
    console_ = await startConsole()
    const { api } = console_
    const make = async (collectionName: string, fields: object) =>
      expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).status).toBe(201)
    await make('customer', { name: { type: 'String' } })
    const customer = { relType: 'BelongsTo', target: 'customer' }
    await make('sale', { amount: { type: 'Decimal' }, at: { type: 'DateTime' }, state: { type: 'String' }, customer })
    user = await api.user([
      // Otherwise nobody may read their own account, which the console asks for.
      { collection: 'svc_User', action: 'read', fields: ['id', 'email'] },
      { collection: 'sale', action: 'read', fields: ['id', 'amount', 'at', 'state'], conditions: { state: 'paid' } },
    ])
    await sell(100, '2026-01-10T10:00:00Z', 'paid', { name: attack })
    await sell(20, '2026-02-10T10:00:00Z', 'open', { name: 'Ada' })
    await sell(3, '2026-02-11T10:00:00Z', attack)
  })

  it('leaves out of an address what makes no sense, on every page, and keeps to its zone', async () => {
    const { page, wrong } = await console_.visit('/data/sale?columns=5&sort=5&search=5&filter=x&asOf=5')
    await page.getByText('3 rows', { exact: true }).waitFor()
    const [{ id }] = await console_.api.sql(`select id from sale where amount = 100`)
    await page.goto(`${console_.address}/console/data/sale/${id}?asOf=5`)
    await page.getByRole('textbox', { name: /^amount/ }).waitFor()
    const table = page.getByRole('region', { name: 'Result' })
    const build = `${console_.address}/console/reports/build?collection=sale&form=table`
    for (const unfit of ['&aggregate=5&limit=x', '&having=5&sort=5&fields=5', '&timezone=5&groupBy=5']) {
      await page.goto(build + unfit)
      await table.getByRole('cell', { name: '3', exact: true }).waitFor()
    }
    // What the API takes as a list may be one text here.
    const rows = encodeURIComponent('{"n":{"function":"count","field":"*"}}')
    await page.goto(`${build}&groupBy=state&sort=-state&aggregate=${rows}`)
    await expect.poll(() => texts(table)).toEqual(['paid', '1', 'open', '1', attack, '1'])
    const last = encodeURIComponent('{"last":{"function":"max","field":"at"}}')
    await page.goto(`${build}&groupBy=at&limit=1&sort=at&timezone=Europe%2FZurich&aggregate=${last}`)
    await expect.poll(() => texts(table)).toEqual(['2026-01-10 11:00:00', '2026-01-10 11:00:00'])
    await page.goto(`${console_.address}/console/reports/dashboards/5?asOf=5&edit=5`)
    await page.locator('main h1').waitFor()
    expect(wrong).toEqual([])
  })

  it('builds a report in every form, saves it, and shares it with a role that sees its own figures', async () => {
    const { page, wrong } = await console_.visit('/reports')
    await page.getByText('Nothing is saved yet').waitFor()
    await page.getByRole('link', { name: 'New report' }).click()
    await page.getByLabel('Collection', { exact: true }).selectOption('sale')
    const table = page.getByRole('region', { name: 'Result' })
    await table.getByRole('cell', { name: '3', exact: true }).waitFor()
    const measures = page.getByRole('region', { name: 'Measures' })
    await measures.getByRole('button', { name: 'Measure' }).click()
    await table.getByRole('columnheader', { name: 'sum_amount' }).waitFor()
    await page.getByRole('button', { name: 'Remove count' }).click()
    await page.getByLabel('Name of sum_amount').fill('revenue')
    await page.getByLabel('Name of sum_amount').press('Enter')
    await table.getByRole('cell', { name: '123', exact: true }).waitFor()

    await page.getByRole('button', { name: 'Group', exact: true }).click()
    await page.getByLabel('Group 1').selectOption('at')
    await page.waitForURL(/date%3Ayearmonth%3Aat/)
    await expect.poll(() => texts(table)).toEqual(['2026-01', '100', '2026-02', '23'])
    for (const form of ['Bars', 'Lines', 'Area']) {
      await page.getByRole('button', { name: form, exact: true }).click()
      await page.getByRole('img', { name: new RegExp(`^${form.toLowerCase()} of revenue over 2 groups`) }).waitFor()
      await expect.poll(() => paints(page)).toBe(true)
      await shot(page, form)
    }
    await page.getByRole('button', { name: 'Group', exact: true }).click()
    await page.getByLabel('Group 2').selectOption('state')
    await page.getByRole('button', { name: 'Bars', exact: true }).click()
    const legend = page.getByRole('region', { name: 'Report' }).getByRole('listitem')
    await expect.poll(async () => (await legend.allTextContents()).sort()).toEqual([attack, 'open', 'paid'].sort())
    await shot(page, 'builder')
    await expectFits(page)
    await page.getByLabel('Remove the group state').click()

    await page.getByRole('button', { name: 'Groups…' }).click()
    await page.getByRole('dialog', { name: 'Groups' }).getByLabel('Operator').selectOption('gt')
    await page.getByRole('dialog', { name: 'Groups' }).getByLabel('Value').fill('50')
    await page.getByRole('button', { name: 'Apply' }).click()
    await page.getByRole('img', { name: /over 1 group\./ }).waitFor()
    await page.getByRole('button', { name: 'Groups (1)' }).click()
    await page.getByRole('button', { name: 'Clear' }).click()
    await page.getByLabel('Sort by').selectOption('-revenue')
    await page.getByRole('button', { name: 'Table', exact: true }).click()
    await expect.poll(() => texts(table)).toEqual(['2026-01', '100', '2026-02', '23'])

    const csv = await page.request.get(
      new URL((await page.getByRole('link', { name: 'CSV' }).getAttribute('href'))!, console_.address).href,
    )
    expect(await csv.text()).toContain('2026-01')
    await page.getByRole('button', { name: 'API' }).click()
    const [address] = await page.getByRole('dialog', { name: 'Ask for the same' }).locator('pre').allTextContents()
    expect((await (await page.request.get(address!)).json()).data).toMatchObject([{ revenue: 100 }, { revenue: 23 }])
    await page.keyboard.press('Escape')

    await page.getByRole('button', { name: 'Save…' }).click()
    await page.getByLabel('Name', { exact: true }).fill(attack)
    await page.getByRole('dialog').getByRole('button', { name: 'Save', exact: true }).click()
    await page.waitForURL(/saved=/)
    await page.getByRole('button', { name: 'Share…' }).click()
    await page.getByLabel('With the role').selectOption(user.roleId)
    await page.getByRole('button', { name: 'Share', exact: true }).click()
    await page.getByRole('button', { name: 'Shared…' }).waitFor()
    expect(wrong).toEqual([])

    const theirs = await console_.visit('/reports', { as: { email: user.email, password: 'password of a user' } })
    await theirs.page.getByText('shared with you').waitFor()
    await theirs.page.getByRole('link', { name: attack }).click()
    await expect.poll(() => texts(theirs.page.getByRole('region', { name: 'Result' }))).toEqual(['2026-01', '100'])
    expect(await theirs.page.getByRole('button', { name: /^(Save|Shared…)$/ }).count()).toBe(0)
    const offered = theirs.page.getByLabel('Group 1').locator('option')
    await expect.poll(() => offered.allTextContents()).toEqual(['id', 'amount', 'at', 'state', 'another path…'])
    const view = (await user.call('GET', '/views?page=reports')).body.data[0]
    expect((await user.call('PATCH', `/views/${view.id}`, { name: 'mine' })).status).toBe(403)
    expect(theirs.wrong).toEqual([])
  })

  it.each(['light', 'dark'] as const)(
    'prints all of a dashboard and nothing to click, in a %s theme',
    async (colorScheme) => {
      const aggregate = { revenue: { function: 'sum', field: 'amount' } }
      const report = { collection: 'sale', aggregate, groupBy: ['state'], form: 'bars' }
      const panels = Array.from({ length: 12 }, (_, i) => ({ id: `p${i}`, name: `Panel ${i}`, width: 'full', report }))
      const view = { name: 'On paper', page: 'dashboards', collection: 'sale', query: { panels } }
      const { id } = (await console_.api.admin('POST', '/views', view)).body.data
      const { page, wrong } = await console_.visit(`/reports/dashboards/${id}`, { colorScheme })
      const charts = page.getByRole('img', { name: /over 3 groups/ })
      await expect.poll(() => charts.count()).toBe(12)
      await page.emulateMedia({ media: 'print' })
      await page.getByRole('complementary', { name: 'Console' }).waitFor({ state: 'hidden' })
      expect(await page.getByRole('heading', { name: 'On paper' }).isVisible()).toBe(true)
      expect(await page.locator('main').getByRole('button').count()).toBe(0)
      const paper = await page.evaluate(`getComputedStyle(document.body).backgroundColor`)
      expect(paper).toBe('rgb(251, 251, 250)')
      // A sheet has two charts at most.
      const pdf = await page.pdf({ format: 'A4' })
      expect(pdf.toString('latin1').match(/\/Type \/Page\b/g)?.length).toBeGreaterThanOrEqual(4)
      await keep(pdf, `printed-${colorScheme}.pdf`)
      expect(wrong).toEqual([])
      await console_.api.admin('DELETE', `/views/${id}`)
    },
  )

  it('shows a dashboard that changes as a row is written, and as it was', async () => {
    const aggregate = { revenue: { function: 'sum', field: 'amount' } }
    const figure = { collection: 'sale', aggregate, groupBy: [], form: 'figure' }
    const bars = { collection: 'sale', aggregate, groupBy: ['customer.name'], form: 'bars' }
    await console_.api.admin('POST', '/views', { name: 'Revenue', page: 'reports', collection: 'sale', query: figure })
    const { page, wrong } = await console_.visit('/reports')
    await page.getByRole('button', { name: 'New dashboard' }).click()
    await page.getByLabel('Name', { exact: true }).fill('Sales')
    await page.getByRole('button', { name: 'Make it' }).click()
    await page.getByRole('button', { name: 'Add a report' }).click()
    await page.getByRole('menuitem', { name: 'Revenue' }).click()
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    const revenue = page.getByRole('region', { name: 'Revenue' })
    await revenue.getByText('live', { exact: true }).waitFor()
    await expect.poll(() => revenue.locator('dd').textContent()).toBe('123')

    await page.goto(`${console_.address}/console/reports/build?${parametersOf(bars)}`)
    await page.getByRole('button', { name: 'Add to a dashboard' }).click()
    await page.getByRole('menuitem', { name: 'Sales' }).click()
    const second = page.getByRole('region', { name: 'Report on sale' })
    await second.getByText('live', { exact: true }).waitFor()
    await second.getByText('As a table').click()
    await second.getByRole('cell', { name: attack, exact: true }).waitFor()
    const before = new Date()
    await sell(1000, '2026-03-01T10:00:00Z', 'paid', { name: 'Bo' })
    await expect.poll(() => revenue.locator('dd').textContent()).toBe((1123).toLocaleString())
    await second.getByRole('cell', { name: 'Bo', exact: true }).waitFor()
    await shot(page, 'dashboard')
    await expectFits(page)

    await page.getByRole('link', { name: 'Open Report on sale' }).click()
    await page.getByLabel('Most groups').fill('2')
    await page.getByLabel('Most groups').press('Enter')
    await page.waitForURL(/limit=2/)
    await page.getByLabel('Live').check()
    await page.getByText('live', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Put back into Sales' }).click()
    await second.getByRole('img', { name: /over 2 groups/ }).waitFor()

    await page.getByRole('link', { name: 'Edit' }).click()
    await page.getByRole('button', { name: 'Move Report on sale up' }).click()
    await page.getByLabel('Width of Report on sale').selectOption('full')
    await page.getByRole('button', { name: 'Save', exact: true }).click()
    await second.waitFor()
    const headings = page.getByRole('main').getByRole('heading', { level: 2 })
    await expect.poll(() => headings.allTextContents()).toEqual(['Report on sale', 'Revenue'])

    await page.goto(`${page.url().split('?')[0]}?asOf=${before.toISOString()}`)
    await revenue.locator('dd').filter({ hasText: /^123$/ }).waitFor()
    expect(await page.getByText('live', { exact: true }).count()).toBe(0)
    await page.getByRole('navigation', { name: 'You are here' }).getByRole('link').click()
    await page.getByRole('link', { name: 'Sales' }).waitFor()
    await shot(page, 'list')
    await expectFits(page)
    await page.getByRole('button', { name: 'Delete Sales' }).click()
    await page.getByRole('button', { name: 'Delete', exact: true }).click()
    await page.getByRole('link', { name: 'Sales' }).waitFor({ state: 'detached' })
    expect(wrong).toEqual([])
  })
})

const texts = (place: { locator(selector: string): { allTextContents(): Promise<string[]> } }) =>
  place.locator('td').allTextContents()

const parametersOf = (report: object) =>
  new URLSearchParams(
    Object.entries(report).map(([name, value]): [string, string] => [
      name,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )

/** Whether anything is drawn: a canvas says nothing of what is on it. */
const paints = (page: Page) =>
  page.evaluate(`(() => {
    const canvas = document.querySelector('canvas')
    if (canvas === null) return false
    return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte !== 0)
  })()`)

async function keep(pdf: Buffer, name: string): Promise<void> {
  const folder = process.env.CONSOLE_SHOTS
  if (folder === undefined) return
  await mkdir(folder, { recursive: true })
  await writeFile(`${folder}/reports-${name}`, pdf)
}

/** For people to look at, where CONSOLE_SHOTS names a folder. */
async function shot(page: Page, name: string): Promise<void> {
  const folder = process.env.CONSOLE_SHOTS
  if (folder === undefined) return
  await mkdir(folder, { recursive: true })
  await page.screenshot({ path: `${folder}/reports-${name.toLowerCase()}.png` })
}
