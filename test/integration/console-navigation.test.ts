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

  it('leads the keyboard to each page that is shown, and tells its title', async () => {
    const { page, wrong } = await console_.visit('/data/book?sort=title')
    /** What has the keyboard, and what is told. */
    const expectAt = (role: string, title: string) =>
      expect
        .poll(() =>
          page.evaluate(`[
            document.activeElement.getAttribute('role') ?? document.activeElement.localName,
            document.querySelector('#root [aria-live=polite]').textContent,
          ]`),
        )
        .toEqual([role, title])
    const grid = page.getByRole('grid')
    await grid.focus()
    await page.getByText('3 rows').first().waitFor()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Ada' }).waitFor()
    await expectAt('main', 'Ada · Console')
    await page.goBack()
    await expectAt('main', 'Books · Console')
    await grid.focus()
    await page.keyboard.press('g')
    await page.keyboard.press('r')
    await expectAt('main', 'Reports · Console')
    await page.getByRole('complementary').getByRole('link', { name: 'Data', exact: true }).press('Enter')
    await expectAt('main', 'Data · Console')
    await page.keyboard.press('Control+k')
    await page.getByRole('combobox').fill('Books')
    await page.keyboard.press('Enter')
    await page.getByRole('combobox').waitFor({ state: 'detached' })
    await expectAt('main', 'Books · Console')
    // The field is made anew for what is searched for now; the rows that it found have the keyboard.
    const search = page.getByPlaceholder('Search, then Enter')
    await search.fill('Ida')
    await search.press('Enter')
    await expect.poll(() => page.url()).toContain('search=Ida')
    await expect.poll(() => page.getByRole('gridcell', { name: 'Emil', exact: true }).count()).toBe(0)
    await expectAt('grid', 'Books · Console')
    expect(wrong).toEqual([])
  })

  it('keeps the keyboard on the grid after rows are deleted, and in the page after that is undone', async () => {
    const { page, wrong } = await console_.visit('/data/book?sort=title')
    const at = () => page.evaluate("document.activeElement.getAttribute('role') ?? document.activeElement.localName")
    const grid = page.getByRole('grid')
    await page.getByRole('gridcell', { name: 'Emil', exact: true }).waitFor()
    await grid.focus()
    await page.keyboard.press('ArrowDown')
    await page.keyboard.press('Space')
    await page.getByRole('button', { name: /^Delete/ }).press('Enter')
    const question = page.locator('[role=dialog]:not([aria-modal=false])')
    await question.getByRole('button', { name: /^Delete/ }).press('Enter')
    await question.waitFor({ state: 'detached' })
    await expect.poll(at).toBe('grid')
    await page.getByRole('button', { name: 'Undo' }).press('Enter')
    await page.getByRole('button', { name: 'Undo' }).waitFor({ state: 'detached' })
    // The next message has it, and then the grid.
    await expect.poll(at).toBe('dialog')
    await page.keyboard.press('Escape')
    await expect.poll(at).toBe('grid')
    await page.getByRole('gridcell', { name: 'Emil', exact: true }).waitFor()
    // A dialog that does nothing gives the keyboard back.
    const more = page.getByRole('button', { name: 'Filter' }).first()
    await more.press('Enter')
    await page.keyboard.press('Escape')
    await expect.poll(() => more.and(page.locator(':focus')).count()).toBe(1)
    expect(wrong).toEqual([])
  })

  it('says without backgrounds and shadows what they say, where colours are forced', async () => {
    const { page, wrong } = await console_.visit('/data/book?sort=title', { forcedColors: 'active' })
    const outlineOf = (selector: string) =>
      page.evaluate(`getComputedStyle(document.querySelector('${selector}')).outlineStyle`)
    await page.getByRole('gridcell', { name: 'Emil', exact: true }).click()
    const outlines = {
      cell: await outlineOf('[role=gridcell][data-active=true]'),
      others: await outlineOf('[role=gridcell][data-active=false]'),
      entry: await outlineOf('aside [data-status=active]'),
    }
    expect(outlines).toEqual({ cell: 'solid', others: 'none', entry: 'solid' })
    await page.keyboard.press('ArrowDown')
    expect(await outlineOf('[role=gridcell][data-active=true]')).toBe('double')
    await page.goto(`${console_.address}/console/reports/build?collection=book&form=bars`)
    await page.locator('[aria-pressed=true]').first().waitFor()
    expect(await outlineOf('[aria-pressed=true]')).toBe('solid')
    expect(await outlineOf('[aria-pressed=false]')).toBe('none')
    expect(wrong).toEqual([])
  })

  it('leaves keys on the head of a list and on its boxes to them, and opens no row by them', async () => {
    const { page, wrong } = await console_.visit('/data/book?sort=title')
    await page.getByText('3 rows').first().waitFor()
    const before = page.url()
    const head = page.getByRole('columnheader', { name: /^title/ }).getByRole('button', { name: 'title', exact: true })
    await head.focus()
    await page.keyboard.press('Enter')
    await page.waitForURL(/sort=-title/)
    await head.focus()
    await page.keyboard.press('Space')
    await expect.poll(() => page.url()).not.toContain('sort')
    await page.getByLabel('Select all loaded rows').focus()
    await page.keyboard.press('Enter')
    await page.keyboard.press('Space')
    await page.getByRole('toolbar', { name: 'Selected rows' }).getByText('3').waitFor()
    await page.getByRole('button', { name: 'Select none' }).click()
    expect(new URL(page.url()).pathname).toBe(new URL(before).pathname)
    // A link is followed, not the active row.
    await head.focus()
    await page.keyboard.press('Enter')
    await page.waitForURL(/sort=title/)
    await page.getByRole('link', { name: 'Open Ida' }).focus()
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Ida' }).waitFor()
    await page.goBack()
    // Arrows lead into the rows, and Enter then opens one.
    await head.focus()
    await page.keyboard.press('ArrowDown')
    await expect.poll(() => page.evaluate("document.activeElement.getAttribute('role')")).toBe('grid')
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Emil' }).waitFor()
    expect(wrong).toEqual([])
  })

  it('shows a list where it was left, after Back and after a reload', async () => {
    const { api } = console_
    const fields = { name: { type: 'String' }, place: { type: 'Integer' } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'mile', schema: { fields } })).status).toBe(201)
    await api.sql(
      `insert into mile (id, name, place) select gen_random_uuid(), 'Mile ' || n, n from generate_series(1, 5000) n`,
    )
    const { page, wrong } = await console_.visit(
      '/data/mile?sort=-place&columns=name,place&filter={"place":{"gt":500}}',
    )
    const grid = page.getByRole('grid')
    const position = (): Promise<number> => grid.evaluate((frame: any) => frame.scrollTop)
    const active = () =>
      grid.evaluate(
        (frame: any) => frame.ownerDocument.getElementById(frame.getAttribute('aria-activedescendant'))?.textContent,
      )
    await page
      .getByText(/^4.?500 rows/)
      .first()
      .waitFor()
    await grid.evaluate((frame: any) => {
      frame.scrollTop = 3000 * 34
    })
    const cell = page.getByRole('gridcell', { name: 'Mile 1995', exact: true })
    await cell.click()
    await page.keyboard.press('ArrowDown')
    await expect.poll(active).toBe('Mile 1994')
    const [left, address] = [await position(), page.url()]
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'Mile 1994' }).waitFor()
    await page.goBack()
    await cell.waitFor()
    await expect.poll(active).toBe('Mile 1994')
    expect([await position(), page.url()]).toEqual([left, address])
    await page.reload()
    await cell.waitFor()
    await expect.poll(active).toBe('Mile 1994')
    expect(await position()).toBe(left)
    // Another visit of the same list begins with its first row.
    await page.getByRole('complementary').getByRole('link', { name: 'Data', exact: true }).click()
    await page.getByRole('link', { name: /mile/ }).first().click()
    await page
      .getByText(/5.?000 rows/)
      .first()
      .waitFor()
    expect(await position()).toBe(0)
    expect(wrong).toEqual([])
  })
})
