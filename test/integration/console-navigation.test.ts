import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, startConsole } from '../support/console.ts'

describeWithBrowser('the way through the console', () => {
  let console_: Console

  beforeAll(async () => {
    console_ = await startConsole()
    const { status } = await console_.api.admin('POST', '/schemas', {
      collectionName: 'book',
      schema: { name: 'Books', fields: { title: { type: 'String', allowNull: false } } },
    })
    expect(status).toBe(201)
    await console_.api.admin('POST', '/items/book/bulk', [{ title: 'Ada' }, { title: 'Emil' }, { title: 'Ida' }])
  })

  it('stays, and offers another try, where a page cannot be loaded for the lack of a connection', async () => {
    const { page } = await console_.visit('/data')
    await page.getByRole('heading', { name: 'Data', exact: true }).waitFor()
    await page.evaluate('globalThis.isSame = true')
    const isSame = () => page.evaluate('globalThis.isSame === true')
    await page.route(
      () => true,
      (route) => route.abort('internetdisconnected'),
    )
    const menu = page.getByRole('complementary', { name: 'Console' })
    await menu.getByRole('link', { name: 'Log', exact: true }).click()
    const problem = page.getByRole('alert').filter({ hasText: 'the server does not answer' })
    await problem.waitFor()
    expect(page.url()).toContain('/console/log')
    await problem.getByRole('button', { name: 'Try again' }).click()
    await problem.waitFor()
    // Another page that has been shown can be shown.
    await menu.getByRole('link', { name: 'Data', exact: true }).click()
    await page.getByRole('heading', { name: 'Data', exact: true }).waitFor()
    await menu.getByRole('link', { name: 'Log', exact: true }).click()
    await problem.waitFor()
    await page.unrouteAll()
    await problem.getByRole('button', { name: 'Try again' }).click()
    await page.getByRole('heading', { name: 'Log', exact: true }).waitFor()
    // With its style, without which it could not be used.
    const sheets = await page.evaluate("[...document.styleSheets].map(({ href }) => href?.split('/').at(-1))")
    expect(sheets).toContainEqual(expect.stringMatching(/^explorer-.*\.css$/))
    expect(await isSame()).toBe(true)
  })

  it('loads itself anew, once, for a page that another build of the server has replaced', async () => {
    const { page } = await console_.visit('/data')
    await page.getByRole('heading', { name: 'Data', exact: true }).waitFor()
    await page.route(/\/assets\/workflows-/, (route) => route.fulfill({ status: 404 }))
    const another = '<script type="module" crossorigin src="/console/assets/index-another.js"></script>'
    await page.route(/\/console\/$/, (route) => route.fulfill({ contentType: 'text/html', body: another }))
    const loads: string[] = []
    page.on('load', () => loads.push(page.url()))
    await page.getByRole('link', { name: 'Workflows', exact: true }).first().click()
    await expect.poll(() => loads.length).toBe(1)
    const problem = page.getByRole('alert').filter({ hasText: 'another version of the console' })
    await problem.waitFor()
    expect(loads).toEqual([expect.stringContaining('/console/workflows')])
    await page.unrouteAll()
    await problem.getByRole('button', { name: 'Try again' }).click()
    await page.getByRole('heading', { name: 'Workflows', exact: true }).waitFor()
  })
})
