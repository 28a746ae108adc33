import type { Page } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { password } from '../support/accounts.ts'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'
import { waitFor } from '../support/wait.ts'

/** Going through the past in the console: lists, records and reports as of a moment. */
describeWithBrowser('the past in the console', () => {
  let console_: Console
  let lamp: string

  beforeAll(async () => {
    console_ = await startConsole()
    const { api } = console_
    const schema = { fields: { name: { type: 'String', allowNull: false }, price: { type: 'Integer' } } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'ware', schema })).status).toBe(201)
    lamp = (await api.admin('POST', '/items/ware', { name: 'Lamp', price: 10 })).body.data.id
    await api.admin('POST', '/items/ware/bulk', [
      { name: 'Chair', price: 5 },
      { name: 'Table', price: 7 },
    ])
    await api.admin('PATCH', `/items/ware/${lamp}`, { price: 12 })
  })

  const moment = (page: Page) => page.getByRole('slider', { name: 'Moment' })
  /** A record's own, which cannot be changed in the past. */
  const price = (page: Page, value: number) =>
    page.locator('dl').getByText(String(value), { exact: true }).first().waitFor()
  const asOf = (page: Page) => new URL(page.url()).searchParams.get('asOf')
  const momentsOf = async () => {
    const { data } = (await console_.api.admin('GET', '/log/moments?collections=ware')).body
    return data as { at: string; before: string; after: string | null }
  }

  it('shows a list at each moment of its changes, by keyboard, by address, and back', async () => {
    const { page, wrong } = await console_.visit('/data/ware')
    const cell = (text: string) => page.getByRole('gridcell', { name: text, exact: true })
    await page.getByText('3 rows').waitFor()
    await page.getByRole('button', { name: 'As of' }).click()
    await page.getByText(/^As of .*, read-only\.$/).waitFor()
    await cell('12').waitFor()
    await moment(page).focus()
    // To the newest change, which is what is seen already, and to the one before it.
    await page.keyboard.press('ArrowLeft')
    const newest = await momentsOf()
    await waitFor(() => asOf(page) === newest.at)
    await page.keyboard.press('ArrowLeft')
    await cell('10').waitFor()
    await page.getByText('3 rows').waitFor()
    expect(asOf(page)! < newest.at).toBe(true)
    // Two rows were one change.
    await page.keyboard.press('ArrowLeft')
    await page.getByText('1 row', { exact: true }).waitFor()
    const first = asOf(page)
    await expectFits(page, 'as-of-list')
    expect(await page.getByRole('link', { name: 'New' }).count()).toBe(0)
    await cell('Lamp').dblclick()
    expect(await page.getByRole('textbox', { name: 'name' }).count()).toBe(0)
    await page.getByRole('button', { name: 'The change after' }).click()
    await page.getByText('3 rows').waitFor()
    await page.getByRole('button', { name: 'The change before' }).click()
    await page.getByText('1 row', { exact: true }).waitFor()
    // The address shows the same to another user, and the record that is opened is of the same moment.
    await page.reload()
    await page.getByText('1 row', { exact: true }).waitFor()
    expect(asOf(page)).toBe(first)
    await page.getByRole('grid').focus()
    await page.keyboard.press('Enter')
    await page.getByText(/^As of .*, read-only\.$/).waitFor()
    expect(asOf(page)).toBe(first)
    await page.goBack()
    await page.getByText('1 row', { exact: true }).waitFor()
    await page.getByRole('button', { name: 'Back to now' }).click()
    await page.getByText('3 rows').waitFor()
    expect(asOf(page)).toBeNull()
    expect(wrong).toEqual([])
  })

  it('ends at the oldest moment that is kept, and at now; presets beyond it are off', async () => {
    const { page, wrong } = await console_.visit('/data/ware')
    await page.getByText('3 rows').waitFor()
    await page.getByRole('button', { name: 'As of' }).click()
    await moment(page).focus()
    await page.keyboard.press('Home')
    await page.getByText('No rows yet').waitFor()
    const { oldest } = (await console_.api.admin('GET', '/history/now')).body.data
    expect(Date.parse(asOf(page)!)).toBeLessThanOrEqual(Date.parse(oldest))
    for (const name of ['An hour ago', 'Yesterday', 'Last week'])
      expect([name, await page.getByRole('button', { name }).isDisabled()]).toEqual([name, true])
    await page.keyboard.press('End')
    await page.getByText('3 rows').waitFor()
    // By pointer: what is between two changes is what the one before it left.
    const box = (await moment(page).boundingBox())!
    await page.mouse.click(box.x + 2, box.y + box.height / 2)
    await page.getByText('No rows yet').waitFor()
    // By a time, in the zone that stands beside it.
    const field = page.getByLabel('Date and time')
    await page.getByText(/UTC/).waitFor()
    const soon = new Date(Date.now() + 1000 - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 19)
    await field.fill(soon)
    expect(await page.evaluate("document.querySelector('input[type=datetime-local]').validity.rangeOverflow")).toBe(
      true,
    )
    expect(wrong).toEqual([])
  })

  it('shows a record as of each change of it, with the changes of that record alone', async () => {
    const { page, wrong } = await console_.visit(`/data/ware/${lamp}`)
    const timeline = page.locator('[data-timeline]')
    await timeline
      .getByRole('listitem')
      .filter({ hasText: 'Created' })
      .getByRole('button', { name: 'As of here' })
      .click()
    await page.getByText(/^As of .*, read-only\.$/).waitFor()
    await price(page, 10)
    expect(await page.getByRole('button', { name: 'As of here', pressed: true }).count()).toBe(1)
    await expectFits(page, 'as-of-record')
    await moment(page).focus()
    await page.keyboard.press('ArrowRight')
    await price(page, 12)
    // The two other rows came between, and are no step of this record.
    await page.keyboard.press('ArrowLeft')
    await price(page, 10)
    const before = await console_.api.position()
    await page.getByRole('button', { name: 'Bring this version back' }).click()
    await page.getByText('Brought back as it was').waitFor()
    expect(await console_.api.log(before)).toMatchObject([{ entity: 'ware', action: 'update', entityId: lamp }])
    await console_.api.admin('PATCH', `/items/ware/${lamp}`, { price: 12 })
    expect(wrong).toEqual([])
  })

  it('goes from change to change without the permission to read the log, where there is a history to read', async () => {
    const reader = await console_.api.user([{ collection: 'ware', action: 'read', fields: '*' }])
    const as = { email: reader.email, password }
    const { page, wrong } = await console_.visit(`/data/ware/${lamp}`, { as })
    await page.getByRole('button', { name: 'As of', exact: true }).click()
    await moment(page).focus()
    await page.keyboard.press('ArrowLeft')
    await waitFor(() => /999Z$/.test(asOf(page) ?? ''))
    await page.keyboard.press('ArrowLeft')
    await price(page, 10)
    await page.goto(`${console_.address}/console/data/ware`)
    await page.getByRole('button', { name: 'As of' }).click()
    await page.getByText('Arrows go through time').waitFor()
    await moment(page).focus()
    const start = asOf(page)!
    await page.keyboard.press('ArrowLeft')
    await waitFor(() => asOf(page)! < start)
    await expectAccessible(page)
    expect(wrong.filter((text) => !/status of 403/.test(text))).toEqual([])
  })

  it('shows a report, and a dashboard of them, as of a moment', async () => {
    const report = {
      collection: 'ware',
      aggregate: { total: { function: 'sum', field: 'price' } },
      groupBy: [],
      form: 'figure',
    }
    const address = new URLSearchParams({
      collection: 'ware',
      aggregate: JSON.stringify(report.aggregate),
      form: 'figure',
    })
    const { page, wrong } = await console_.visit(`/reports/build?${address}`)
    const figure = (total: number) =>
      page.getByRole('region', { name: 'Report' }).getByText(String(total), { exact: true }).first()
    await figure(24).waitFor()
    await page.getByRole('button', { name: 'As of' }).click()
    await moment(page).focus()
    const oldest = async () => {
      await page.keyboard.press('Home')
      await page.keyboard.press('ArrowRight')
      await figure(10).waitFor()
    }
    await page.keyboard.press('Home')
    await waitFor(async () => (await figure(24).count()) === 0)
    await oldest()
    await expectFits(page, 'as-of-report')
    await page.getByRole('button', { name: 'Back to now' }).click()
    await figure(24).waitFor()
    const content = { panels: [{ id: 'a', name: 'Worth', report, width: 'half' }] }
    const saved = await console_.api.admin('POST', '/views', { name: 'Shop', page: 'dashboards', query: content })
    expect(saved.status).toBe(201)
    const past = (await console_.api.admin('GET', `/items/ware/${lamp}/history?limit=100`)).body.data.at(-1).createdAt
    await page.goto(
      `${console_.address}/console/reports/dashboards/${saved.body.data.id}?asOf=${past.replace('Z', '999Z')}`,
    )
    await page.getByText(/^As of .*, read-only\.$/).waitFor()
    await page.getByRole('region', { name: 'Worth' }).getByText('10', { exact: true }).first().waitFor()
    await expectFits(page, 'as-of-dashboard')
    expect(wrong).toEqual([])
  })
})
