import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectFits, startConsole } from '../support/console.ts'

/** How many rows large collections have: about, at once, and exactly on request. */

const rows = 120_000

async function fill(api: Api): Promise<void> {
  const schema = { paranoid: true, fields: { name: { type: 'String' }, owner: { type: 'String' } } }
  for (const collectionName of ['large', 'small'])
    expect((await api.admin('POST', '/schemas', { collectionName, schema })).status).toBe(201)
  await api.sql(`alter table large disable trigger user`)
  await api.sql(
    `insert into large (id, name, "createdAt", "updatedAt") select gen_random_uuid(), 'n' || n, now(), now() from generate_series(1, ${rows}) n`,
  )
  await api.sql(`alter table large enable trigger user`)
  await api.sql(
    `insert into small (id, name, "createdAt", "updatedAt") values (gen_random_uuid(), 'one', now(), now())`,
  )
  await api.sql('analyze large, small')
}

describe('GET /estimates', () => {
  let api: Api
  beforeAll(async () => {
    api = await startApi()
    await fill(api)
  })

  it('tells about how many rows large collections have, to users who may read all of them', async () => {
    const about = async (call: Api['admin'], query = '') => (await call('GET', `/estimates${query}`)).body.data
    const [large, ...others] = await about(api.admin)
    expect(large).toMatchObject({ collection: 'large' })
    expect(Math.abs(large.rows - rows)).toBeLessThan(rows / 20)
    expect(others).toEqual([])
    expect(await about(api.admin, '?collections=small')).toEqual([])
    expect(await about(api.admin, '?collections=small,large')).toEqual([large])
    const all = await api.user([{ collection: 'large', action: 'read', fields: ['name'] }])
    expect(await about(all.call)).toEqual([large])
    const own = await api.user([{ collection: 'large', action: 'read', fields: '*', conditions: { owner: 'me' } }])
    expect(await about(own.call)).toEqual([])
    expect(await about((await api.user()).call)).toEqual([])
    expect((await api.anonymous('GET', '/estimates')).body).toEqual({ data: [] })
  })

  it('leaves out what is marked as deleted', async () => {
    await api.sql(`alter table large disable trigger user`)
    await api.sql(`update large set "deletedAt" = now() where name < 'n5'`)
    await api.sql(`alter table large enable trigger user`)
    await api.sql('vacuum analyze large')
    expect((await api.admin('GET', '/estimates')).body.data).toEqual([])
  })
})

describeWithBrowser('counts in the console', () => {
  let console_: Console
  beforeAll(async () => {
    console_ = await startConsole()
    await fill(console_.api)
  })

  it('are estimated where there are many, and exact on demand', async () => {
    const { page, wrong } = await console_.visit('/data')
    const main = page.locator('main')
    await main.getByText('~120,000').waitFor()
    await main.getByRole('link', { name: /small.*1$/ }).waitFor()
    await expectFits(page, 'counts')
    await main.getByRole('button', { name: 'Count exactly: large' }).click()
    await main.getByText('120,000', { exact: true }).waitFor()
    await main.getByRole('link', { name: /large/ }).click()
    await page.getByText('~120,000 rows').waitFor()
    await page.getByRole('grid').focus()
    await page.keyboard.press('Control+End')
    await page
      .getByRole('row')
      .last()
      .getByRole('gridcell')
      .filter({ hasText: /^n\d+$/ })
      .waitFor()
    await expectFits(page, 'count-estimated')
    const exactly = page.getByRole('button', { name: 'Count exactly' })
    if (await exactly.isVisible()) await exactly.click()
    await page.getByText('120,000 rows', { exact: true }).waitFor()
    await exactly.waitFor({ state: 'detached' })
    expect(wrong).toEqual([])
  })
})
