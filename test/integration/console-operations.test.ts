import { afterAll, beforeAll, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { keepDevelopmentMail } from '../../src/db/unlogged/messages.ts'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { openWebhooks } from '../../src/workers/webhooks.ts'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectFits, holdChanges, startConsole } from '../support/console.ts'
import { chain, node } from '../support/flows.ts'
import { plain } from '../support/images.ts'
import { sendMail } from '../support/mails.ts'
import { migrationsDir } from '../support/migrations.ts'
import { type Receiver, startReceiver } from '../support/receiver.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'

/** Runs wherever it is taken for HTML. */
const attack = `<img src=x onerror=alert(1)><script>alert(2)</script>`

describeWithBrowser('the operations area', () => {
  let console_: Console
  let smtp: SmtpDouble
  let receiver: Receiver
  let mailWorker: QueueRun
  let webhookWorker: Awaited<ReturnType<typeof openWebhooks>>
  const scripts = migrationsDir()

  beforeAll(async () => {
    ;[smtp, receiver] = await Promise.all([startSmtp(), startReceiver()])
    console_ = await startConsole({
      ...smtp.env,
      SSRF_ALLOW_PRIVATE_URL_FETCH: 'true',
      MIGRATIONS_DIR: scripts.path,
    })
    const { api } = console_
    await api.admin('POST', '/schemas', { collectionName: 'order', schema: { fields: { name: { type: 'String' } } } })
    const mailer = openMailer({ connect: 2000, greeting: 2000, silence: 2000 })
    mailWorker = runQueue(api.runtime, {
      queue: 'mail',
      concurrency: 1,
      pollMs: 50,
      handler: (_deps, { emailLogId }, job) => sendMail(api.runtime, mailer, emailLogId, job),
    })
    webhookWorker = await openWebhooks(api.runtime)
  })
  afterAll(async () => {
    await Promise.all([mailWorker?.stop(5000), webhookWorker?.stop(5000)])
    await receiver?.close()
  })

  const open = async (path: string, options: Parameters<Console['visit']>[1] = {}) =>
    console_.visit(`/operations/${path}`, options)
  const one = async (text: string, values: unknown[] = []) => (await console_.api.sql(text, values))[0]

  it('shows what the doctor finds, and leads to the API', async () => {
    const { page, wrong } = await console_.visit('/operations')
    await page.waitForURL(/operations\/health/)
    const findings = page.getByRole('region', { name: 'findings' })
    await findings.getByText('daybook worker mail').waitFor()
    const states = await findings.getByText(/^(problem|warning|ok)$/).allTextContents()
    expect(states).toEqual(['problem', 'warning', 'ok'].flatMap((state) => states.filter((one) => one === state)))
    expect(new Set(states).size).toBeGreaterThan(1)
    await page.getByLabel('State').selectOption('ok')
    await page.waitForURL(/state=ok/)
    await findings.getByText('database', { exact: true }).waitFor()
    expect(await findings.getByText('daybook worker mail').count()).toBe(0)
    expect(await page.getByRole('link', { name: 'API' }).getAttribute('href')).toBe('/docs')
    await expectFits(page, 'operations-health')
    expect(wrong).toEqual([])
  })

  it('sends a failed mail again, and redrives a failed task', async () => {
    const { api } = console_
    smtp.answer({ code: 550, at: 'data' })
    const id = await commit(api.runtime, systemActor, async (tx) => {
      const { emailLogId, event } = await queueMail(tx, { type: 'welcome', to: 'ada@mail.example', context: {} })
      return { result: emailLogId, events: [event] }
    })
    const status = async () => (await one('select status from "svc_EmailLog" where id = $1', [id])).status
    await waitFor(async () => (await status()) === 'failed')
    const { page, wrong } = await open('mails?state=failed')
    const row = page.getByRole('row').filter({ hasText: 'ada@mail.example' })
    await row.getByRole('button').first().click()
    await page.waitForURL(new RegExp(`open=${id}`))
    await page.getByRole('dialog').getByText('Why it failed').waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Send again' }).click()
    await waitFor(async () => (await status()) === 'sent')

    // The inbox keeps what is not sent; the one that was sent stands for it.
    await api.sql(`update "svc_EmailLog" set sender = 'development inbox' where id = $1`, [id])
    const html = `<style>p { color: rgb(1, 2, 3) }</style><p>Kept</p>${attack}`
    await keepDevelopmentMail(api.runtime, { emailLogId: id, subject: 'Kept', html, text: 'Kept' })
    await page.goto(`${console_.address}/console/operations/mails?open=${id}`)
    const kept = page.frameLocator('iframe[title="The mail"]').getByText('Kept')
    await kept.waitFor()
    const inbox = page.frames().find((one) => one.url().endsWith(`/_dev/mail/${id}/html`))!
    expect(await inbox.evaluate("getComputedStyle(document.querySelector('p')).color")).toBe('rgb(1, 2, 3)')
    await expectFits(page, 'operations-inbox')
    expect(wrong.filter((text) => !/sandboxed|Content Security Policy/.test(text))).toEqual([])
    wrong.length = 0

    const type = `report ${attack}`
    const { id: task } = (await api.admin('POST', '/items/svc_Tasks', { type, scheduled_time: '2026-01-01T00:00:00Z' }))
      .body.data
    await api.sql(
      `update "svc_Tasks" set task_status = 'Error', error_data = jsonb_build_object('message', $2::text) where id = $1`,
      [task, `broken ${attack}`],
    )
    await page.goto(`${console_.address}/console/operations/jobs?queue=tasks&state=failed`)
    const failed = page.getByRole('region', { name: 'jobs' }).getByRole('row').filter({ hasText: type })
    await failed.getByText(`broken ${attack}`).waitFor()
    await failed.getByRole('button', { name: 'Redrive' }).click()
    await page.getByText('The job is queued again').waitFor()
    expect(await one('select task_status, error_data from "svc_Tasks" where id = $1', [task])).toEqual({
      task_status: 'Not started',
      error_data: null,
    })
    expect(wrong).toEqual([])
  })

  it('shows a template as it is typed, in both themes, and runs nothing of it', async () => {
    const { id } = await one(`select id from "svc_Template" where type = 'welcome'`)
    const { page, wrong } = await open('templates', { colorScheme: null })
    await page.getByRole('button', { name: 'welcome', exact: true }).click()
    await page.waitForURL(new RegExp(`open=${id}`))
    const mail = page.frameLocator('iframe[title="The mail"]')
    await mail.getByText('has been created').waitFor()
    await expectFits(page, 'operations-template')
    await page.emulateMedia({ colorScheme: null })
    await page.getByLabel('Subject').fill(`Hello ${attack}`)
    await page
      .getByLabel('HTML')
      .fill(
        `<p onclick="alert(3)">Dear {{ user.fullName }}</p><style>p { color: rgb(1, 2, 3) } @media (prefers-color-scheme: dark) { p { color: rgb(4, 5, 6) } }</style>${attack}`,
      )
    const line = mail.getByText('Dear ')
    await line.waitFor()
    const frame = page.frames().find((one) => one.url().endsWith('/console/mail-view'))!
    const color = () => frame.evaluate("getComputedStyle(document.querySelector('p')).color")
    await expect.poll(color).toBe('rgb(1, 2, 3)')
    await line.click()
    await page.getByRole('region', { name: 'Preview' }).getByText(`Hello ${attack}`).waitFor()
    await page.getByRole('button', { name: 'Dark' }).click()
    await expect.poll(color).toBe('rgb(4, 5, 6)')
    await page.getByRole('button', { name: 'Save' }).click()
    await expect
      .poll(async () => (await one('select body from "svc_Template" where id = $1', [id])).body)
      .toContain('alert(3)')
    expect(wrong.filter((text) => text.includes('dialog'))).toEqual([])
    // What is typed while it is saved.
    const letThrough = await holdChanges(page)
    await page.getByLabel('Subject').fill('First')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByLabel('Subject').fill('Second')
    letThrough()
    const subject = async () => (await one('select subject from "svc_Template" where id = $1', [id])).subject
    await expect.poll(subject).toBe('First')
    await page.getByRole('button', { name: 'Save' }).click()
    await expect.poll(subject).toBe('Second')
    // What somebody else changes meanwhile: their text stays, and what both have changed is asked.
    await expect.poll(() => page.getByRole('button', { name: 'Save' }).isDisabled()).toBe(true)
    await page.getByLabel('Subject').fill('Mine')
    const theirs = { subject: 'Theirs', body: '<p>Their text</p>' }
    expect((await console_.api.admin('PATCH', `/items/svc_Template/${id}`, theirs)).status).toBe(200)
    await page.getByRole('button', { name: 'Save' }).click()
    const choice = page.getByRole('group', { name: 'subject' })
    await choice.getByText('Theirs').last().waitFor()
    expect(await page.getByRole('group', { name: 'body' }).count()).toBe(0)
    await choice.getByRole('radio', { name: 'Mine' }).check()
    await page.getByRole('button', { name: 'Save the result' }).click()
    await expect.poll(subject).toBe('Mine')
    expect(await one('select body from "svc_Template" where id = $1', [id])).toEqual({ body: theirs.body })
    await expect.poll(() => page.getByLabel('HTML').inputValue()).toBe(theirs.body)
  })

  it('makes a webhook, shows its secret once, and delivers again what failed', async () => {
    const { api } = console_
    const { page, wrong } = await open('webhooks')
    await page.getByRole('button', { name: 'New webhook…' }).click()
    const dialog = page.getByRole('dialog', { name: 'New webhook' })
    await dialog.getByLabel('Name').fill(attack)
    await dialog.getByLabel('Address').fill(receiver.url)
    await dialog.getByLabel('order').check()
    await dialog.getByRole('button', { name: 'Make it' }).click()
    const secret = await page.getByText(/^whsec_/).textContent()
    await page.getByRole('button', { name: 'I have kept it' }).click()
    expect(secret).toMatch(/^whsec_.{40}/)
    const { id } = await one('select id, name from "svc_Webhook" where name = $1', [attack])
    await waitFor(
      async () => (await one('select token from svc_log.consumer where name = $1', [`webhook:${id}`]))?.token,
    )
    let isBroken = true
    receiver.answer = (_request, response) => response.writeHead(isBroken ? 500 : 204).end()
    await api.admin('POST', '/items/order', { name: 'first' })
    await waitFor(() => receiver.received.length === 1)
    const row = page.getByRole('region', { name: 'webhooks' }).getByRole('row').filter({ hasText: attack })
    await row.getByRole('button', { name: 'Deliveries' }).click()
    await page.waitForURL(new RegExp(`of=${id}`))
    const delivery = page.getByRole('row').filter({ hasText: 'create order' })
    await delivery.getByText('500').waitFor()
    await expectFits(page, 'operations-deliveries')
    isBroken = false
    await page.getByRole('button', { name: 'All webhooks' }).click()
    await row.getByRole('button', { name: attack }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Change…' }).click()
    const form = page.getByRole('dialog', { name: 'Change the webhook' })
    await form.getByLabel('delete').uncheck()
    await form.getByLabel('Filter').fill('{')
    await form.getByRole('button', { name: 'Save' }).click()
    await form.getByText('The filter is no JSON').waitFor()
    await form.getByLabel('Filter').fill('{"name": {"starts": "first"}}')
    await expectFits(page, 'operations-webhook')
    await form.getByRole('button', { name: 'Save' }).click()
    await form.getByText('starts').first().waitFor()
    await form.getByLabel('Filter').fill('{"name": {"startsWith": "first"}}')
    await form.getByRole('button', { name: 'Save' }).click()
    await form.waitFor({ state: 'detached' })
    expect((await api.admin('GET', `/webhooks/${id}`)).body.data).toMatchObject({
      actions: ['create', 'update', 'remove'],
      filter: { name: { startsWith: 'first' } },
      fields: null,
    })
    await row.getByRole('button', { name: 'Deliveries' }).click()
    await delivery.getByRole('button', { name: 'Deliver again' }).click()
    await waitFor(() => receiver.accepted.length === 1)
    await page.getByRole('region', { name: 'deliveries' }).getByText('delivered', { exact: true }).waitFor()
    expect(await page.getByText(secret!).count()).toBe(0)
    expect(wrong.filter((text) => !text.includes('400 (Bad Request)'))).toEqual([])
  })

  it('uploads the other files where one is refused, and says which, why and how many', async () => {
    const { page, wrong } = await open('files')
    let begun = 0
    await page.route('**/files/tus', (route) => {
      begun += 1
      const error = { message: 'The file is too large', code: 'FILE_TOO_LARGE', details: null, statusCode: 413 }
      return begun === 2 ? route.fulfill({ status: 413, json: { error } }) : route.continue()
    })
    const names = ['first.txt', 'large.txt', 'last.txt']
    const files = names.map((name) => ({ name, mimeType: 'text/plain', buffer: Buffer.from(name) }))
    await page.getByLabel('Upload…').setInputFiles(files)
    await page.getByText('2 of 3 files were uploaded').first().waitFor()
    await page
      .getByText(/^large\.txt: The file is too large · Choose a smaller file/)
      .first()
      .waitFor()
    const list = page.getByRole('region', { name: 'files' })
    for (const name of ['first.txt', 'last.txt']) await list.getByRole('row').filter({ hasText: name }).waitFor()
    expect(await list.getByRole('row').filter({ hasText: 'large.txt' }).count()).toBe(0)
    expect(wrong.filter((text) => !text.includes('413'))).toEqual([])
    const { data } = (await console_.api.admin('GET', '/files?fields=id')).body
    for (const { id } of data) await console_.api.admin('DELETE', `/files/${id}`)
  })

  it('shows where the keyboard is on the button that uploads', async () => {
    const { page } = await open('files')
    await page.getByLabel('Name, type or folder').or(page.getByPlaceholder('Name, type or folder')).first().focus()
    const button = page.locator('label').filter({ hasText: 'Upload…' })
    await page.keyboard.press('Tab')
    await waitFor(async () => (await page.evaluate('document.activeElement.type')) === 'file')
    expect(
      await button.evaluate((label: any) => label.ownerDocument.defaultView.getComputedStyle(label).outline),
    ).toMatch(/solid 2px/)
  })

  it('uploads a file, signs its address, and deletes it', async () => {
    const { page, wrong } = await open('files')
    const name = '<b onmouseover=alert(1)>.svg'
    await page.getByLabel('Upload…').setInputFiles({
      name,
      mimeType: 'image/svg+xml',
      buffer: Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(2)</script></svg>'),
    })
    await page.getByText('Uploaded', { exact: true }).first().waitFor()
    const row = page.getByRole('region', { name: 'files' }).getByRole('row').filter({ hasText: name })
    await row.getByRole('button', { name: 'Signed address' }).click()
    const address = await page.getByText(/\/assets\/.*signature=/).textContent()
    expect((await fetch(address!.replace('localhost', '127.0.0.1'))).status).toBe(200)
    await page.keyboard.press('Escape')
    await row.getByRole('button', { name }).click()
    await expectFits(page, 'operations-file')
    await page.getByRole('button', { name: 'Delete' }).click()
    await page.getByRole('dialog', { name: 'Delete?' }).getByRole('button', { name: 'Delete' }).click()
    await page.getByText('There is no file').waitFor()
    expect(await one('select count(*)::int as files from "svc_File"')).toEqual({ files: 0 })
    expect(wrong).toEqual([])
  })

  it('changes a setting, and says what is wrong with another', async () => {
    const { api } = console_
    const { page, wrong } = await open('settings')
    await page.getByLabel('project_name').fill(attack)
    await page.getByLabel('metadata').fill('{')
    await page.getByText('This is no JSON').waitFor()
    await page.getByLabel('metadata').fill('{"a": 1}')
    const png = { name: 'logo.png', mimeType: 'image/png', buffer: await plain(40, 20).png().toBuffer() }
    await page.getByRole('region', { name: 'Images' }).locator('input[type=file]').first().setInputFiles(png)
    await waitFor(async () => (await page.getByLabel('project_logo_light_Id').inputValue()) === 'logo.png')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByText('Saved').waitFor()
    expect((await api.admin('GET', '/settings')).body.data).toMatchObject({
      project_name: attack,
      metadata: { a: 1 },
      project_logo_light: { originalFilename: 'logo.png' },
    })
    await expectFits(page, 'operations-settings')
    // What is typed while it is saved.
    const letThrough = await holdChanges(page)
    const name = async () => (await api.admin('GET', '/settings')).body.data.project_name
    await page.getByLabel('project_name').fill('First')
    await page.getByRole('button', { name: 'Save' }).click()
    await page.getByLabel('project_name').fill('Second')
    letThrough()
    await expect.poll(name).toBe('First')
    await page.getByRole('button', { name: 'Save' }).click()
    await expect.poll(name).toBe('Second')
    expect(wrong).toEqual([])
  })

  it('shows workflows with what each node did, schedules, migrations and consumers', async () => {
    const { api } = console_
    const workflow = {
      name: attack,
      status: 'active',
      flow_data: chain(node('wait', 'delay', { label: attack, delay: 1 })),
    }
    const made = await api.admin('POST', '/workflows', workflow)
    expect(made).toMatchObject({ status: 201 })
    const { id } = made.body.data
    await api.sql(
      `with e as (insert into "svc_WorkflowExecution" (id, "workflow_Id", status, "errorMessage")
         values (gen_random_uuid(), $1, 'failed', $2) returning id)
       insert into "svc_WorkflowExecutionLog" (id, "execution_Id", "nodeId", "nodeType", "nodeLabel", status, "errorMessage", seq)
       select gen_random_uuid(), e.id, 'wait', 'delay', $2, 'failed', $2, 1 from e`,
      [id, attack],
    )
    const { page, wrong } = await open('workflows')
    const row = page.getByRole('row').filter({ hasText: attack })
    await row.getByRole('button', { name: 'Executions' }).click()
    await page.waitForURL(new RegExp(`of=${id}`))
    await page.getByRole('row').filter({ hasText: 'failed' }).getByRole('button').first().click()
    await page.getByRole('list', { name: 'Nodes' }).getByText(attack).first().waitFor()
    await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).waitFor()
    await expectFits(page, 'operations-execution')
    expect(wrong).toEqual([])
  })

  it('shows what a migration does before it runs, and rolls it back', async () => {
    const description = `adds a shelf ${attack}`
    scripts.write('9.0.0', `await sql('create table shelf (place int)'); return { success: true }`, {
      head: `export const description = ${JSON.stringify(description)}`,
      down: `await sql('drop table shelf'); return { success: true }`,
    })
    const { page, wrong } = await open('migrations')
    const hasShelf = async () => (await one(`select to_regclass('shelf') is not null as there`)).there
    await page.getByRole('button', { name: 'Run 1 pending…' }).click()
    const dialog = page.getByRole('dialog', { name: 'Run migrations' })
    await dialog.getByText('create table shelf').waitFor()
    await expectFits(page, 'operations-migration')
    expect(await hasShelf()).toBe(false)
    await dialog.getByRole('button', { name: 'Run them' }).click()
    await page.getByText('1 migration was run').waitFor()
    expect(await hasShelf()).toBe(true)
    const row = page.getByRole('row').filter({ hasText: description })
    await row.getByText('completed').waitFor()
    await row.getByRole('button', { name: '9.0.0' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Roll back' }).click()
    await page.getByRole('dialog', { name: 'Roll back?' }).getByRole('button', { name: 'Roll back' }).click()
    await page.getByText('Rolled back', { exact: true }).waitFor()
    expect(await hasShelf()).toBe(false)
    expect(wrong).toEqual([])
  })

  it('has a halted consumer skip its event, and forgets that', async () => {
    await console_.api.sql(
      `insert into svc_log.consumer (name, snapshot, state, reason, "failedPosition")
       select 'mirror', pg_current_snapshot(), 'halted', $1, max(position) from "svc_AuditLog"`,
      [attack],
    )
    const { page, wrong } = await open('consumers?state=halted')
    const row = page.getByRole('region', { name: 'consumers' }).getByRole('row').filter({ hasText: 'mirror' })
    await row.getByRole('button', { name: 'Skip the event' }).click()
    await page.getByRole('dialog', { name: 'Skip' }).getByRole('button', { name: 'Skip the event' }).click()
    await page.getByText(/^mirror goes on after position/).waitFor()
    await page.getByLabel('State').selectOption('')
    await row.getByRole('button', { name: 'mirror' }).click()
    await page.getByRole('dialog').getByRole('region', { name: 'set aside' }).getByText(attack).waitFor()
    await expectFits(page, 'operations-consumer')
    await page.getByRole('dialog').getByRole('button', { name: 'Forget what was set aside' }).click()
    const question = page.getByRole('dialog', { name: 'Forget' })
    await question.getByText('1 event is never handled.').waitFor()
    await question.getByRole('button', { name: 'Forget what was set aside' }).click()
    await expect
      .poll(async () => one(`select count(*)::int as count from svc_log.set_aside where consumer = 'mirror'`))
      .toEqual({ count: 0 })
    expect(wrong).toEqual([])
  })

  it('fits every window, section by section, which the palette finds by name', async () => {
    const { page, wrong } = await open('schedules')
    await page.getByText('Nothing is scheduled').waitFor()
    for (const [title, text] of [
      ['Jobs', 'mail '],
      ['Mails', 'ada@mail.example'],
      ['Templates', 'welcome'],
      ['Webhooks', attack],
      ['Workflows', attack],
      ['Consumers', 'mirror'],
    ] as const) {
      await page.keyboard.press('Control+k')
      await page.getByRole('combobox', { name: 'Search or go to' }).fill(title)
      await page.getByRole('option', { name: `${title} Operations` }).click()
      await page.waitForURL(new RegExp(`operations/${title.toLowerCase()}`))
      await page.getByRole('cell', { name: text }).first().waitFor()
      await expectFits(page, `operations-${title.toLowerCase()}`)
    }
    expect(wrong).toEqual([])
  })
})
