import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { type Api, startApi } from '../support/api.ts'
import { describeWithBrowser, startBrowser } from '../support/browser.ts'
import { sendMail } from '../support/mails.ts'
import { administrator } from '../support/prepare.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { longestWaitMs, waitFor } from '../support/wait.ts'

const root = resolve(import.meta.dirname, '../..')

/** The example of examples/board, as its README says: its variables, its setup, and two people with a browser each. */
describeWithBrowser('the board', () => {
  let api: Api
  let smtp: SmtpDouble
  let worker: QueueRun
  let mailer: ReturnType<typeof openMailer>
  let browser: Browser
  let url: string

  beforeAll(async () => {
    const port = await freePort()
    url = `http://127.0.0.1:${port}`
    smtp = await startSmtp()
    const variables = readFileSync(join(root, 'examples/board/board.env'), 'utf8').matchAll(/^(\w+)=(.*)$/gm)
    const env = Object.fromEntries([...variables].map(([, name, value]) => [name, value]))
    const placed = { AUTH_APP_URL: `${url}/board`, EXTENSIONS_DIR: join(root, env.EXTENSIONS_DIR) }
    api = await startApi({ ...env, ...placed, ...smtp.env })
    mailer = openMailer()
    worker = runQueue(api.runtime, {
      queue: 'mail',
      concurrency: 2,
      pollMs: 30,
      handler: (_deps, { emailLogId }, job) => sendMail(api.runtime, mailer, emailLogId, job),
    })
    await api.app.listen({ host: '127.0.0.1', port })
    // It may run again.
    for (const times of [1, 2]) expect(await setUp(), `time ${times}`).toBe(0)
    browser = await startBrowser()
  })

  afterAll(async () => {
    await worker.stop(10_000)
    mailer.close()
  })

  async function setUp(): Promise<number | null> {
    const { email, password } = administrator
    const script = join(root, 'examples/board/setup.js')
    const child = spawn(process.execPath, [script, url, email, password], { stdio: ['ignore', 'ignore', 'inherit'] })
    const [code] = await once(child, 'exit')
    return code
  }

  async function visit(path = '/board/'): Promise<Page> {
    const context = await browser.newContext()
    onTestFinished(() => context.close())
    const page = await context.newPage()
    page.setDefaultTimeout(longestWaitMs)
    const faults: string[] = []
    page.on('pageerror', (error) => faults.push(error.message))
    onTestFinished(() => expect(faults).toEqual([]))
    await page.goto(url + path)
    return page
  }

  async function register(page: Page, firstName: string, team?: string) {
    const section = page.locator('section', { hasText: team === undefined ? 'Join the team' : 'Start a team' })
    await section.getByLabel('First name').fill(firstName)
    await section.getByLabel('Last name').fill('Example')
    if (team !== undefined) await section.getByLabel('Team').fill(team)
    await section.getByLabel('E-mail').fill(`${firstName.toLowerCase()}@example.com`)
    await section.getByLabel('Password').fill('a long enough password')
    await section.getByRole('button').click()
  }

  const lane = (page: Page, name: string) => page.getByRole('list', { name, exact: true })
  const card = (page: Page, title: string) => page.locator('.card', { hasText: title })

  it('is worked on by a team, whose members see at once what the others do', async () => {
    const ada = await visit()
    await register(ada, 'Ada', 'Engines')
    await ada.getByLabel('Name of the project').fill('Difference engine')
    await ada.getByRole('button', { name: 'Create' }).click()
    await ada.getByLabel('New task').fill('Order <b>brass</b>')
    await ada.getByRole('button', { name: 'Add' }).click()
    await card(ada, 'Order <b>brass</b>').waitFor()

    await ada.getByRole('link', { name: 'Team' }).click()
    await ada.getByLabel('E-mail').fill('bo@example.com')
    await ada.getByRole('button', { name: 'Invite' }).click()
    const link = await waitFor(() => smtp.accepted.at(-1)?.text?.match(/http\S+accept-invite\?[\w=&]+/)?.[0])
    const bo = await visit(new URL(link).pathname + new URL(link).search)
    await register(bo, 'Bo')
    await lane(bo, 'To do').getByText('Order <b>brass</b>').waitFor()

    // Bo moves it, comments on it and attaches a picture; Ada sees all of that without asking.
    await ada.getByRole('link', { name: 'Difference engine' }).click()
    await lane(ada, 'To do').getByText('Order <b>brass</b>').waitFor()
    await bo.getByLabel('State of Order').selectOption('doing')
    await lane(ada, 'Doing').getByText('Order <b>brass</b>').waitFor()
    const doing = ada.getByLabel('Dashboard').locator('div', { hasText: 'Doing' }).locator('dd')
    await waitFor(async () => ((await doing.innerText()).startsWith('1') ? true : undefined))

    for (const page of [ada, bo]) await card(page, 'Order').getByRole('button', { name: 'Order' }).click()
    await bo.getByLabel('Comment', { exact: true }).fill('How much\nof it?')
    await bo.getByRole('button', { name: 'Comment' }).click()
    await ada.getByRole('list', { name: 'Comments' }).getByText('How much').waitFor()
    expect(await ada.getByRole('list', { name: 'Comments' }).innerText()).toContain('Bo Example')
    const logo = { name: 'logo.png', mimeType: 'image/png', buffer: readFileSync(join(root, picture)) }
    await bo.getByLabel('Attach files').setInputFiles(logo)
    const attachment = ada.getByRole('list', { name: 'Attachments' })
    await attachment.getByText('logo.png').waitFor()
    const seen = () =>
      attachment.locator('img').evaluate((image) => (image as unknown as { naturalWidth: number }).naturalWidth)
    await waitFor(async () => ((await seen()) === 96 ? true : undefined))

    // Both have the task open: the second one to save is told.
    await ada.getByLabel('Assignee').selectOption({ label: 'Bo Example' })
    await ada.getByRole('button', { name: 'Save' }).click()
    await lane(bo, 'Doing').getByText('Bo Example').waitFor()
    await bo.getByLabel('Title').fill('Order bronze')
    await bo.getByRole('button', { name: 'Save' }).click()
    await bo.getByText('Somebody has changed this task meanwhile').waitFor()
    await bo.getByRole('button', { name: 'Close' }).click()

    const events = await api.sql(
      `select u."firstName" who, l.action, l.entity from "svc_AuditLog" l join "svc_User" u on u.id = l."userId"
       where l.entity in ('project', 'task', 'comment', 'attachment') order by l."createdAt", l.position`,
    )
    expect(events.map(({ who, action, entity }) => `${who} ${action} ${entity}`)).toEqual([
      'Ada create project',
      'Ada create task',
      'Bo update task',
      'Bo create comment',
      'Bo create attachment',
      'Ada update task',
    ])

    // A project is deleted with all that belongs to it, and comes back onto open boards.
    ada.on('dialog', (dialog) => dialog.accept())
    await ada.getByRole('button', { name: 'Delete project' }).click()
    await waitFor(async () => ((await card(bo, 'Order').count()) === 0 ? true : undefined))
    const { data } = (await api.admin('GET', '/log/requests?limit=1')).body
    const undone = await api.admin('POST', '/log/undo', { requestId: data[0].requestId })
    expect(undone.status, undone.text).toBe(200)
    await lane(bo, 'Doing').getByText('Order <b>brass</b>').waitFor()
  })

  it('imports a file, finds tasks, and shows nothing to another team', async () => {
    const page = await visit()
    await register(page, 'Cy', 'Bakery')
    await page.getByLabel('Name of the project').fill('Bread')
    await page.getByRole('button', { name: 'Create' }).click()
    const file = (csv: string) => ({ name: 'tasks.csv', mimeType: 'text/csv', buffer: Buffer.from(csv) })
    await page.getByLabel('Import CSV').setInputFiles(file('title,status,due\nRye,doing,2026-12-24\nOats,soon,\n'))
    await page.getByText(/Row 2: .*Nothing was imported/).waitFor()
    const good = 'title,status,due\nRye,doing,2026-12-24\n"Flour, white\nand ""fine""",todo,\n'
    await page.getByLabel('Import CSV').setInputFiles(file(good))
    await page.getByText('Successfully imported 2 items').waitFor()
    await lane(page, 'Doing').getByText('2026-12-24').waitFor()
    await lane(page, 'To do').getByText('Flour, white').waitFor()
    await page.getByLabel('Search tasks').fill('whi')
    await page.locator('.results').getByText('Flour, white').waitFor()
    await page.getByLabel('Search tasks').fill('brass')
    await waitFor(async () => ((await page.locator('.results li').count()) === 0 ? true : undefined))
    expect(await page.getByRole('navigation').innerText()).not.toContain('Difference engine')
  })
})

const picture = 'src/features/messaging/templates/logo.png'
