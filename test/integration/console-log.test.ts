import { readFile } from 'node:fs/promises'
import type { Page } from 'playwright-core'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'
import { waitFor } from '../support/wait.ts'

/** The log explorer: follow it, brush a time, share and save what is found, undo against what others have done since. */
describeWithBrowser('the log explorer', () => {
  let console_: Console

  beforeAll(async () => {
    console_ = await startConsole()
    const schema = { fields: { title: { type: 'String' }, pages: { type: 'Integer' } } }
    for (const collectionName of ['book', 'shelf'])
      expect((await console_.api.admin('POST', '/schemas', { collectionName, schema })).status).toBe(201)
  })

  const requests = (page: Page) => page.getByRole('region', { name: 'Requests' }).getByRole('listitem')
  const make = async (collection: string, title: string) =>
    (await console_.api.admin('POST', `/items/${collection}`, { title, pages: 1 })).body.data.id as string
  const at = (page: Page) => new URL(page.url()).searchParams

  it('follows what happens, and no longer when it is told to stop', async () => {
    const { page, wrong } = await console_.visit('/log?collection=shelf')
    // It stays with the page.
    onTestFinished(() => page.close())
    await page.clock.install()
    await page.reload()
    await page.getByText('No matching events').waitFor()
    await page.getByLabel('Follow').check()
    await waitFor(() => at(page).get('follow') === 'true')
    await make('shelf', 'first')
    await waitFor(async () => (await requests(page).count()) === 1)
    await page.getByText('1 events').waitFor()
    // Also what comes past the API.
    await console_.api.sql(`update shelf set title = 'by psql'`)
    await requests(page).filter({ hasText: 'the database or a job' }).waitFor()
    expect(await requests(page).count()).toBe(2)
    await expectFits(page, 'log-follow')
    await page.getByLabel('Follow').uncheck()
    await waitFor(() => at(page).get('follow') === null)
    const asked: string[] = []
    page.on('request', (request) => void asked.push(new URL(request.url()).pathname))
    await make('shelf', 'second')
    // Ten looks later.
    await page.clock.fastForward(20_000)
    await page.evaluate("fetch('/history/now')")
    expect(asked).toContain('/history/now')
    expect(asked.filter((path) => path.startsWith('/log/'))).toEqual([])
    expect(await requests(page).count()).toBe(2)
    await page.reload()
    await waitFor(async () => (await requests(page).count()) === 3)
    expect(wrong).toEqual([])
  })

  it('chooses a time by dragging over the bars, which the address keeps and shares', async () => {
    await make('book', 'in the bar')
    const { page, wrong } = await console_.visit('/log?collection=book')
    await page.getByText(/\d events/).waitFor()
    const bars = page.locator('figure [title]')
    await waitFor(async () => (await bars.count()) >= 60)
    const total = await page.getByText(/\d events/).textContent()
    // The newest bars, where it has just happened, and then those before them, where nothing has.
    const drag = async (from: number, to: number) => {
      const [one, other] = [(await bars.nth(from).boundingBox())!, (await bars.nth(to).boundingBox())!]
      await page.mouse.move(one.x + one.width / 2, one.y + 10)
      await page.mouse.down()
      await page.mouse.move(other.x + other.width / 2, other.y + 10, { steps: 8 })
      expect(await page.locator('[data-brushed=true]').count()).toBe(Math.abs(to - from) + 1)
      await page.mouse.up()
    }
    const last = (await bars.count()) - 1
    await drag(last, last - 5)
    await waitFor(() => at(page).get('from') !== null && at(page).get('to') !== null)
    expect(await page.getByText(/\d events/).textContent()).toBe(total)
    await requests(page).first().waitFor()
    await expectFits(page, 'log-brushed')
    const shared = page.url()
    await page.getByLabel('Time').selectOption('24')
    await waitFor(() => at(page).get('from') === null)
    await drag(0, 5)
    await page.getByText('No matching events').waitFor()
    // Somebody else opens the address that was shared, and sees the same.
    const other = await console_.visit(shared.replace(`${console_.address}/console`, ''))
    await requests(other.page).first().waitFor()
    expect(await other.page.getByText(/\d events/).textContent()).toBe(total)
    await requests(other.page).first().getByRole('button').click()
    await other.page.getByRole('dialog', { name: 'Request' }).waitFor()
    const opened = at(other.page).get('request')
    await other.page.reload()
    await other.page.getByRole('dialog', { name: 'Request' }).getByText(opened!).waitFor()
    await expectAccessible(other.page)
    expect([...wrong, ...other.wrong]).toEqual([])
  })

  it('shows a role that may read few fields of the log what these tell', async () => {
    await make('book', 'of few fields')
    const few = await console_.api.user([
      { collection: 'svc_AuditLog', action: 'read', fields: ['id', 'createdAt'], conditions: { entity: 'book' } },
    ])
    const as = { email: few.email, password: 'password of a user' }
    const { page, wrong } = await console_.visit('/log', { as })
    const newest = requests(page).first().getByRole('button')
    await newest.filter({ hasText: 'events' }).waitFor()
    expect(await newest.textContent()).not.toMatch(/undefined|null|book|create|the database/)
    await expectFits(page, 'log-few-fields')
    await newest.click()
    const dialog = page.getByRole('dialog', { name: 'Request' })
    await dialog.getByText('event', { exact: true }).click()
    expect(await dialog.textContent()).not.toMatch(/undefined|null|book|create/)
    // They may not read accounts, not even their own.
    expect(wrong.filter((text) => !/status of 403/.test(text))).toEqual([])
  })

  it('saves what is shown as lines', async () => {
    await make('book', 'exported')
    const { page, wrong } = await console_.visit('/log?collection=book&action=create')
    await requests(page).first().waitFor()
    const shown = Number(/[\d,]+/.exec((await page.getByText(/\d events/).textContent())!)![0])
    const download = page.waitForEvent('download')
    await page.getByRole('link', { name: 'Export' }).click()
    const lines = (await readFile(await (await download).path(), 'utf8')).trim().split('\n')
    const events = lines.map((line) => JSON.parse(line) as Record<string, unknown>)
    const rows = events.filter((event) => 'collection' in event || 'entity' in event)
    expect(rows.length).toBe(shown)
    for (const row of rows) expect([row.collection ?? row.entity, row.action]).toEqual(['book', 'create'])
    expect(wrong).toEqual([])
  })

  it('undoes a request against what others have changed since only where that is chosen', async () => {
    const { api } = console_
    const id = await make('book', 'original')
    const changed = await api.admin('PATCH', `/items/book/${id}`, { title: 'mistake', pages: 2 })
    await api.admin('PATCH', `/items/book/${id}`, { title: 'by somebody else' })
    const { page, wrong } = await console_.visit(`/log?request=${changed.headers['x-request-id']}`)
    await page.getByRole('dialog', { name: 'Request' }).getByRole('button', { name: 'Undo…' }).click()
    const undo = page.getByRole('dialog', { name: 'Undo this request' })
    await undo.getByText(/changed title/).waitFor()
    expect(await undo.getByRole('button', { name: 'Undo', exact: true }).isDisabled()).toBe(true)
    await expectFits(page, 'log-conflict')
    await undo.getByLabel('Overwrite what others have changed since').check()
    const before = await api.position()
    const sent = page.waitForRequest(
      (request) => /log.undo$/.test(request.url()) && !request.postData()?.includes('dryRun'),
    )
    await undo.getByRole('button', { name: 'Undo', exact: true }).click()
    // The undo that was shown is the one that is done.
    expect((await sent).postDataJSON()).toMatchObject({ plan: expect.any(String), force: [{ collection: 'book', id }] })
    await page.getByText('The request was undone').waitFor()
    expect((await api.admin('GET', `/items/book/${id}`)).body.data).toMatchObject({ title: 'original', pages: 1 })
    const events = await api.log(before)
    expect(events.map(({ entity, action }) => `${entity} ${action}`).toSorted()).toEqual([
      'book update',
      'svc_AuditLog undone',
    ])
    await page.getByText('This request was undone.').waitFor()
    expect(wrong).toEqual([])
  })
})
