import { mkdtemp, rm } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { type Api, startApi } from '../support/api.ts'
import { describeWithBrowser, startBrowser } from '../support/browser.ts'
import { blocksOf, saveFiles, variablesOf } from '../support/guides.ts'
import { plain } from '../support/images.ts'
import { sendMail } from '../support/mails.ts'
import { startProcess } from '../support/processes.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { appCode } from '../support/totp.ts'
import { longestWaitMs, waitFor } from '../support/wait.ts'

/** The pages of docs/sign-in-pages.md as a reader would copy them: their files, their variables, and real mails. */
describeWithBrowser('the sign-in pages of the guide', () => {
  const blocks = blocksOf('sign-in-pages.md')
  let smtp: SmtpDouble
  let api: Api
  let worker: QueueRun
  let mailer: ReturnType<typeof openMailer>
  let browser: Browser
  let frontend: string
  let directory: string

  beforeAll(async () => {
    frontend = `http://localhost:${await freePort()}`
    smtp = await startSmtp()
    api = await startApi({ ...variablesOf(blocks, { server: frontend, frontend }), ...smtp.env })
    mailer = openMailer()
    worker = runQueue(api.runtime, {
      queue: 'mail',
      concurrency: 2,
      pollMs: 30,
      handler: (_deps, { emailLogId }, job) => sendMail(api.runtime, mailer, emailLogId, job),
    })
    await api.app.listen({ host: '127.0.0.1', port: 0 })
    const server = `http://127.0.0.1:${port()}`
    directory = await mkdtemp(join(tmpdir(), 'daybook-pages-'))
    await saveFiles(directory, blocks, { server, frontend })
    startProcess(join(directory, 'serve.mjs'), [], {}, { cwd: directory })
    await waitFor(() =>
      fetch(frontend).then(
        () => true,
        () => false,
      ),
    )
    browser = await startBrowser()
  })

  afterAll(async () => {
    await worker.stop(10_000)
    mailer.close()
    await rm(directory, { recursive: true })
  })

  const port = () => (api.app.server.address() as AddressInfo).port

  async function visit(path = '/'): Promise<Page> {
    const context = await browser.newContext()
    onTestFinished(() => context.close())
    const page = await context.newPage()
    page.setDefaultTimeout(longestWaitMs)
    await page.goto(frontend + path)
    return page
  }

  const fill = async (page: Page, form: string, values: Record<string, string>) => {
    for (const [name, value] of Object.entries(values))
      await page.fill(`.shown [data-does=${form}] [name=${name}]`, value)
    await page.click(`.shown [data-does=${form}] button`)
  }
  const says = (page: Page, text: string) => page.locator('#says', { hasText: text }).waitFor()
  const isAt = (page: Page, section: string) => page.waitForSelector(`#${section}.shown`)

  /** The path of the link of the newest mail. */
  const mailed = async (place: string) => {
    const text = await waitFor(
      () => smtp.accepted.at(-1)?.text?.match(new RegExp(`${frontend}(/auth/${place}/\\w+)`))?.[1],
    )
    smtp.forget()
    return text
  }

  const email = 'ada@example.com'
  const password = 'a long enough password'

  it('register, verify, sign in, add a second factor, sign in with it, and replace a forgotten password', async () => {
    const page = await visit('/register')
    await fill(page, 'register', { firstName: 'Ada', lastName: 'Lovelace', email, password })
    await says(page, 'We have sent you a mail')
    const link = await mailed('verify-email')
    await page.goto(frontend)
    await fill(page, 'signIn', { email, password })
    await says(page, 'Email not verified')
    await page.goto(frontend + link)
    await says(page, 'Your address is confirmed')
    await fill(page, 'signIn', { email, password })
    await isAt(page, 'account')
    expect(await page.textContent('#name')).toBe('Ada')
    // The session is a cookie that scripts do not see.
    expect(await page.evaluate('[document.cookie, localStorage.length]')).toEqual(['', 0])

    await fill(page, 'addSecondFactor', { currentPassword: password })
    const secret = await waitFor(async () => (await page.textContent('#secret')) || undefined)
    await fill(page, 'confirmSecondFactor', { code: appCode(secret) })
    await says(page, 'From now on you need the app')
    await page.click('.shown [data-does=signOut] button')
    await isAt(page, 'sign-in')
    await fill(page, 'signIn', { email, password })
    await isAt(page, 'second-factor')
    await fill(page, 'sendCode', { code: '000000' })
    await says(page, 'Invalid')
    await fill(page, 'sendCode', { code: appCode(secret, 1) })
    await isAt(page, 'account')

    const other = await visit('/forgot')
    await fill(other, 'mailReset', { email })
    await says(other, 'If an account exists')
    await other.goto(frontend + (await mailed('reset-password')))
    await fill(other, 'resetPassword', { password: 'another long password' })
    await says(other, 'Your password is set')
    await fill(other, 'signIn', { email, password })
    await says(other, 'Incorrect password')
    await fill(other, 'signIn', { email, password: 'another long password' })
    await isAt(other, 'second-factor')
    // The reset has ended the session of the first page.
    await page.goto(frontend)
    await isAt(page, 'sign-in')
    const events = (await api.log()).filter(({ type }) => type === 'auth').map(({ action }) => action)
    expect(events).toEqual(expect.arrayContaining(['login', '2fa_enabled', '2fa_challenged', 'password_reset']))
  })

  it('sign in by a mailed link and by a passkey', async () => {
    const [role] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    const made = await api.admin('POST', '/items/svc_User', {
      userRoles: [{ role_Id: role.id }],
      firstName: 'Bo',
      lastName: 'Diddley',
      email: 'bo@example.com',
      password,
      emailVerified: true,
    })
    expect(made.status).toBe(201)
    const page = await visit()
    await fill(page, 'mailMagicLink', { email: 'bo@example.com' })
    await page.goto(frontend + (await mailed('magiclink')))
    await isAt(page, 'account')
    const devtools = await page.context().newCDPSession(page)
    await devtools.send('WebAuthn.enable')
    const options = {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    } as const
    await devtools.send('WebAuthn.addVirtualAuthenticator', { options })
    await fill(page, 'addPasskey', { currentPassword: password })
    await says(page, 'Your passkey is saved')
    await page.click('.shown [data-does=signOut] button')
    await isAt(page, 'sign-in')
    await page.click('.shown [data-does=signInByPasskey] button')
    await isAt(page, 'account')
    expect(await page.textContent('#name')).toBe('Bo')
  })

  it('gives its user an avatar, as docs/files.md has it', async () => {
    const { id: me, email: address } = await api.user([
      { collection: 'svc_File', action: 'create', fields: ['*'] },
      { collection: 'svc_File', action: 'read', conditions: { userCreated_Id: { eq: '$CURRENT_USER' } } },
      { collection: 'svc_User', action: 'update', fields: ['avatar_Id'], conditions: { id: { eq: '$CURRENT_USER' } } },
    ])
    const page = await visit()
    await fill(page, 'signIn', { email: address, password: 'password of a user' })
    await isAt(page, 'account')
    await page.evaluate(`document.body.insertAdjacentHTML('beforeend', '<input type="file" id="chosen">')`)
    const buffer = await plain(20, 10, { r: 9, g: 9, b: 9 }).png().toBuffer()
    await page.setInputFiles('#chosen', { name: 'ada.png', mimeType: 'image/png', buffer })
    const snippet = blocksOf('files.md').find(({ language, text }) => language === 'js' && text.includes('avatar_Id'))!
    const shown = await page.evaluate(`(async () => {
      const [API, me, input] = ['http://localhost:${port()}', '${me}', document.querySelector('#chosen')]
      ${snippet.text}
      const image = new Image()
      image.src = API + '/assets/' + id
      await image.decode()
      return [id, image.naturalWidth]
    })()`)
    const [{ avatar_Id: avatar }] = await api.sql('select "avatar_Id" from "svc_User" where id = $1', [me])
    expect(shown).toEqual([avatar, 20])
  })
})
