import type { Page } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectFits, startConsole } from '../support/console.ts'
import { waitFor } from '../support/wait.ts'

/** Times in a browser that is in another zone than the server. */
describeWithBrowser('times in the console, in the zone of the browser', () => {
  let console_: Console

  beforeAll(async () => {
    console_ = await startConsole()
    const schema = { fields: { name: { type: 'String', allowNull: false }, at: { type: 'DateTime' } } }
    expect((await console_.api.admin('POST', '/schemas', { collectionName: 'visit', schema })).status).toBe(201)
    await console_.api.admin('POST', '/items/visit/bulk', [
      { name: 'Before', at: '2026-04-01T03:59:00Z' },
      { name: 'After', at: '2026-04-01T04:01:00Z' },
    ])
  })

  const cell = (page: Page, text: string) => page.getByRole('gridcell', { name: text, exact: true })
  const filterOf = (page: Page) => JSON.parse(new URL(page.url()).searchParams.get('filter') ?? '{}') as unknown
  const openFilter = (page: Page) => page.getByRole('button', { name: /^Filter/ }).click()
  const choose = async (page: Page, operator: string) => {
    await openFilter(page)
    await page.getByLabel('Field', { exact: true }).selectOption('at')
    await page.getByLabel('Operator').selectOption(operator)
  }
  const apply = (page: Page) => page.getByRole('button', { name: 'Apply' }).click()

  it('has the times of conditions as its user types them, and names the zone', async () => {
    const { page, wrong } = await console_.visit('/data/visit', { timezoneId: 'America/New_York', locale: 'de-DE' })
    await page.getByText('2 rows').waitFor()
    await choose(page, 'gte')
    const value = page.getByLabel('Value', { exact: true })
    expect(await value.getAttribute('type')).toBe('datetime-local')
    await value.fill('2026-04-01T00:00')
    await page.getByText('America/New_York, UTC−4').waitFor()
    await apply(page)
    await page.getByText('1 row', { exact: true }).waitFor()
    await cell(page, 'After').waitFor()
    expect(filterOf(page)).toEqual({ at: { gte: '2026-04-01T04:00:00.000Z' } })
    await openFilter(page)
    expect(await value.inputValue()).toMatch(/^2026-04-01T00:00/)
    // A moment that the server reckons is typed once it is chosen.
    await page.getByRole('button', { name: 'Use a variable' }).click()
    await page.getByRole('menuitem', { name: /^\$NOW-DAYS_7/ }).click()
    await value.fill('$NOW-DAYS_100000')
    await apply(page)
    await page.getByText('2 rows').waitFor()
    expect(filterOf(page)).toEqual({ at: { gte: '$NOW-DAYS_100000' } })
    await openFilter(page)
    await page.getByLabel('Operator').selectOption('between')
    await page.getByLabel('To', { exact: true }).fill('2026-04-01T00:00')
    await expectFits(page, 'filter-times')
    expect(wrong).toEqual([])
  })

  it('keeps the hour of a time that clocks show twice, in the form and in the grid', async () => {
    const at = '2026-10-25T01:30:00.000Z'
    const { id } = (await console_.api.admin('POST', '/items/visit', { name: 'Autumn', at })).body.data
    const stored = async () => (await console_.api.admin('GET', `/items/visit/${id}`)).body.data.at
    const { page, wrong } = await console_.visit(`/data/visit/${id}`, { timezoneId: 'Europe/Berlin' })
    const field = page.getByLabel(/^at/)
    expect(await field.inputValue()).toMatch(/^2026-10-25T02:30/)
    await field.fill('2026-10-25T02:45')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Saved').waitFor()
    expect(await stored()).toBe('2026-10-25T01:45:00.000Z')
    await page.goto(`${console_.address}/console/data/visit?filter={"name":"Autumn"}`)
    await cell(page, '2026-10-25 02:45:00').dblclick()
    await page.getByLabel('at', { exact: true }).fill('2026-10-25T02:50')
    await page.keyboard.press('Enter')
    await waitFor(async () => (await stored()) === '2026-10-25T01:50:00.000Z')
    await console_.api.admin('DELETE', `/items/visit/${id}`)
    expect(wrong).toEqual([])
  })

  it('reads times of an imported file without an offset in its own zone, and says so where one is imported', async () => {
    const { page, wrong } = await console_.visit('/data/visit', { timezoneId: 'Europe/Berlin' })
    await page.getByText('2 rows').waitFor()
    await page.getByRole('button', { name: 'Import, export' }).click()
    await page.getByRole('menuitem', { name: /^Import/ }).click()
    const buffer = Buffer.from('name,at\nSummer,2026-07-01 09:00\n')
    await page.getByLabel('File').setInputFiles({ name: 'rows.csv', mimeType: 'text/csv', buffer })
    const zone = page.getByLabel('Times without an offset')
    expect(await zone.inputValue()).toBe('Europe/Berlin')
    await page.getByLabel('Field for at').selectOption('')
    await zone.waitFor({ state: 'detached' })
    expect(wrong).toEqual([])
  })

  it('refuses a list of times of which one is not written as ISO 8601 has it', async () => {
    const { page, wrong } = await console_.visit('/data/visit', { timezoneId: 'America/New_York', locale: 'de-DE' })
    await page.getByText('2 rows').waitFor()
    await choose(page, 'in')
    const values = page.getByLabel('Values', { exact: true })
    for (const text of ['01.02.2026', '2026-03-31 23:59, 2026-04-01']) {
      await values.fill(text)
      await page.getByText('This must be a date and a time, such as 2026-01-31 09:00.').waitFor()
      await apply(page)
      expect(filterOf(page)).toEqual({})
    }
    await values.fill('2026-03-31 23:59')
    await apply(page)
    await cell(page, 'Before').waitFor()
    expect(filterOf(page)).toEqual({ at: { in: ['2026-04-01T03:59:00.000Z'] } })
    await openFilter(page)
    expect(await values.inputValue()).toBe('2026-03-31 23:59:00')
    await waitFor(async () => (await page.getByText('1 row', { exact: true }).count()) === 1)
    expect(wrong).toEqual([])
  })
})
