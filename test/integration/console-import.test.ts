import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectFits, startConsole } from '../support/console.ts'
import { connect } from '../support/log.ts'
import { waitFor } from '../support/wait.ts'

/** Files of rows in the console: tried, imported, cancelled. */
describeWithBrowser('imports in the console', () => {
  let console_: Console

  beforeAll(async () => {
    console_ = await startConsole()
    const schema = {
      fields: {
        name: { type: 'String', allowNull: false, unique: true },
        stock: { type: 'Integer', validate: { min: 0 } },
      },
    }
    expect((await console_.api.admin('POST', '/schemas', { collectionName: 'stock_item', schema })).status).toBe(201)
  })

  const open = async (page: Page) => {
    await page.getByRole('button', { name: 'Import, export' }).click()
    await page.getByRole('menuitem', { name: /^Import/ }).click()
  }
  const choose = (page: Page, rows: string, name = 'rows.csv') =>
    page.getByLabel('File').setInputFiles({ name, mimeType: 'text/csv', buffer: Buffer.from(rows) })
  const total = async () => (await console_.api.admin('GET', '/items/stock_item')).body.totalCount
  it('shows what is wrong with which row before any is written, then imports all of them', async () => {
    const { page, wrong } = await console_.visit('/data/stock_item')
    await page.getByText('No rows yet').waitFor()
    await open(page)
    await choose(page, 'Name,Stock\ngood,1\n"of two\nlines",-3\nbad,many\ngood,2\n')
    const before = await console_.api.position()
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('3 of 4 rows cannot be imported').waitFor()
    for (const name of [/^2 3 stock stock: Value -3 is less/, /^3 5 stock stock: expected an integer/, /^4 6 name/])
      await page.getByRole('row', { name }).waitFor()
    await expectFits(page, 'import-errors')
    expect(await console_.api.log(before)).toEqual([])
    // Without the broken column only one row is left that is broken.
    await page.getByLabel('Field for Stock').selectOption('')
    await page.getByRole('region', { name: 'Rows with errors' }).waitFor({ state: 'detached' })
    await choose(page, 'Name;Stock\ngood;1\nbetter;2\n')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('2 rows can be imported: 2 new in stock_item.').waitFor()
    expect(await total()).toBe(0)
    await page.getByRole('button', { name: 'Import 2 rows' }).click()
    await page.getByRole('gridcell', { name: 'better', exact: true }).waitFor()
    expect((await console_.api.log(before)).map(({ action }) => action)).toEqual(['create', 'create'])
    await page.getByRole('dialog', { name: '2 rows imported' }).getByRole('button', { name: 'Undo' }).click()
    await page.getByText('No rows yet').waitFor()
    expect(wrong).toEqual([])
  })

  it('tells the encoding of a file, and takes another one', async () => {
    const { page, wrong } = await console_.visit('/data/stock_item')
    await open(page)
    const buffer = (text: string, encoding: 'latin1' | 'utf16le') => Buffer.from(text, encoding)
    const set = (content: Buffer) =>
      page.getByLabel('File').setInputFiles({ name: 'rows.csv', mimeType: 'text/csv', buffer: content })
    const firstName = (value: string) => page.getByRole('row', { name: `Name ${value}` }).waitFor()
    const encoding = () => page.getByLabel('Encoding').inputValue()
    await set(buffer('\ufeffName;Stock\nČeština;1\n', 'utf16le'))
    await firstName('Čeština')
    expect(await encoding()).toBe('utf-16le')
    await set(buffer('Name;Stock\nCaf\xe9 \x80;1\nna\xefve;2\n', 'latin1'))
    await firstName('Café €')
    expect(await encoding()).toBe('windows-1252')
    await page.getByLabel('Encoding').selectOption('windows-1251')
    await firstName('Cafй Ђ')
    await page.getByLabel('Encoding').selectOption('shift_jis')
    await page.getByText('The file cannot be read in this encoding: choose another one.').waitFor()
    await page.getByLabel('Encoding').selectOption('windows-1252')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('2 rows can be imported').waitFor()
    await page.getByRole('button', { name: 'Import 2 rows' }).click()
    await page.getByRole('gridcell', { name: 'naïve', exact: true }).waitFor()
    await page.getByRole('dialog', { name: '2 rows imported' }).getByRole('button', { name: 'Undo' }).click()
    await page.getByText('No rows yet').waitFor()
    expect(wrong).toEqual([])
  })

  it('reads times, numbers and dates as it is told that the file writes them', async () => {
    const fields = { amount: { type: 'Decimal' }, day: { type: 'Date' }, seen: { type: 'DateTime' } }
    const { status } = await console_.api.admin('POST', '/schemas', { collectionName: 'bill', schema: { fields } })
    expect(status).toBe(201)
    const { page, wrong } = await console_.visit('/data/bill', { timezoneId: 'America/New_York' })
    await open(page)
    await choose(page, 'Amount;Day;Seen\n1.234,5;1.2.2026;01.02.2026 9:00\n')
    const zone = page.getByLabel('Times without an offset')
    expect(await zone.inputValue()).toBe('America/New_York')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByRole('row', { name: /amount: expected a number; day: expected/ }).waitFor()
    await page.getByLabel('Numbers').selectOption('1234,5 or 1.234,5')
    await page.getByRole('region', { name: 'Rows with errors' }).waitFor({ state: 'detached' })
    await page.getByLabel('Dates').selectOption('31.01.2026')
    await expectFits(page, 'import-notation')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('1 row can be imported: 1 new in bill.').waitFor()
    await page.getByRole('button', { name: 'Import 1 row' }).click()
    await page.getByRole('dialog', { name: '1 rows imported' }).waitFor()
    const bills = async () => (await console_.api.admin('GET', '/items/bill?sort=seen')).body.data
    const bill = { amount: '1234.5', day: '2026-02-01', seen: '2026-02-01T14:00:00.000Z' }
    expect(await bills()).toMatchObject([bill])
    await open(page)
    await choose(page, 'Seen\n2026-03-01 09:00\n')
    await zone.selectOption('UTC')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByRole('button', { name: 'Import 1 row' }).click()
    await zone.waitFor({ state: 'detached' })
    expect(await bills()).toMatchObject([bill, { seen: '2026-03-01T09:00:00.000Z' }])
    await open(page)
    await choose(page, 'Day\n2026-02-01\n')
    await page.getByLabel('Dates').waitFor()
    await zone.waitFor({ state: 'detached' })
    await page.getByLabel('Numbers').waitFor({ state: 'detached' })
    expect(wrong).toEqual([])
  })

  it('says that the file has changed since it was chosen, and takes it again', async () => {
    const { page, wrong } = await console_.visit('/data/stock_item')
    const folder = await mkdtemp(join(tmpdir(), 'import-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const path = join(folder, 'rows.csv')
    await writeFile(path, 'name,stock\ngood,many\n')
    await open(page)
    await page.getByLabel('File').setInputFiles(path)
    await page.getByLabel('Field for name').waitFor()
    // A browser tells of no change where the same file is chosen as before.
    expect(await page.getByLabel('File').inputValue()).toBe('')
    await page.getByText('rows.csv', { exact: true }).waitFor()
    await writeFile(path, 'name,stock\ngood,100\n')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('The file has changed: choose it again.').waitFor()
    await page.getByLabel('File').setInputFiles(path)
    await page.getByText('The file has changed').waitFor({ state: 'detached' })
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('1 row can be imported').waitFor()
    expect(wrong).toEqual([])
  })

  it('shows how far it is, is cancelled in the middle, and has written nothing', async () => {
    const { page, wrong } = await console_.visit('/data/stock_item')
    await open(page)
    await choose(page, `name,stock\n${Array.from({ length: 1200 }, (_, n) => `item ${n},${n}`).join('\n')}`)
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('1,200 rows can be imported').waitFor()
    const before = await console_.api.position()
    // A slow database: what takes some seconds is told how far it is. It gets stuck in the middle.
    await console_.api.sql(`create function slowly() returns trigger language plpgsql as
      $fn$ begin perform pg_sleep(case when new.stock = 700 then 60 else 0.008 end); return new; end $fn$;
      create trigger slowly before insert on stock_item for each row execute function slowly()`)
    await page.getByRole('button', { name: 'Import 1,200 rows' }).click()
    await page.getByText('The file is sent and read').waitFor()
    await page.getByText('500 of 1,200 rows').waitFor()
    expect(await page.getByRole('progressbar').getAttribute('value')).toBe(String(500 / 1200))
    await expectFits(page, 'import-progress')
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByText('Cancelled. No row was imported.').waitFor()
    expect(await total()).toBe(0)
    const events = await console_.api.log(before)
    expect(events.filter(({ entity }) => entity !== 'svc_Notification')).toEqual([])
    await console_.api.sql('drop trigger slowly on stock_item; drop function slowly()')
    // The same file again, to its end.
    await page.getByRole('button', { name: 'Import 1,200 rows' }).click()
    // The count above the list may be given up on a busy machine.
    await page.getByRole('dialog', { name: '1,200 rows imported' }).waitFor()
    expect(await total()).toBe(1200)
    expect(wrong.filter((text) => !/status of 400/.test(text))).toEqual([])
  })

  it('says that it was too late, where all rows had been written', async () => {
    const { page, wrong } = await console_.visit('/data/stock_item')
    await open(page)
    await choose(page, 'name\nlast of all')
    await page.getByRole('button', { name: 'Try it' }).click()
    await page.getByText('1 row can be imported').waitFor()
    // The answer is on its way when the user cancels.
    await page.route('**/import-csv', async (route) => {
      if ((await route.request().postDataBuffer())?.includes('last of all')) await route.fetch()
      else await route.continue()
    })
    await page.getByRole('button', { name: 'Import 1 row' }).click()
    await waitFor(async () => (await total()) === 1201)
    await page.getByRole('button', { name: 'Cancel' }).click()
    await page.getByText('It was too late to cancel').waitFor()
    expect(await total()).toBe(1201)
    expect(wrong.filter((text) => !/status of 409/.test(text))).toEqual([])
  })

  it('saves what is shown as a file, shows how far it is, and ends it on the server when it is cancelled', async () => {
    const { page, wrong } = await console_.visit(
      '/data/stock_item?filter={"stock":{"lt":3}}&columns=name,stock&sort=stock',
    )
    await page.getByText('3 rows', { exact: true }).waitFor()
    const begin = async () => {
      await page.getByRole('button', { name: 'Import, export' }).click()
      await page.getByRole('menuitem', { name: 'Export what is shown as CSV' }).click()
    }
    const download = page.waitForEvent('download')
    await begin()
    const file = await download
    expect(file.suggestedFilename()).toMatch(/^stock_item-\d{4}-\d\d-\d\d\.csv$/)
    expect((await readFile(await file.path(), 'utf8')).split('\r\n').slice(0, 2)).toEqual(['name,stock', 'item 0,0'])
    await page.getByText(/^3 rows saved as stock_item-/).waitFor()
    // A locked table: the export waits, and ends when it is cancelled.
    const client = await connect(console_.api.database.url)
    await client.query('begin; lock table stock_item in access exclusive mode')
    const waiting = () =>
      console_.api.sql(`select pid from pg_locks where relation = 'stock_item'::regclass and not granted`)
    await begin()
    await page.getByRole('progressbar').waitFor()
    await waitFor(async () => (await waiting()).length > 0)
    await expectFits(page, 'export-progress')
    await page.getByRole('button', { name: 'Cancel' }).click()
    await waitFor(async () => (await waiting()).length === 0)
    await client.query('rollback')
    await client.end()
    // The page names what is refused, and saves nothing.
    await page.route('**/export?*', (route) =>
      route.continue({ url: route.request().url().replace('fields=name', 'fields=nothing') }),
    )
    await begin()
    await page.getByText('Nothing was saved').waitFor()
    expect(wrong.filter((text) => !/status of 400/.test(text))).toEqual([])
  })
})
