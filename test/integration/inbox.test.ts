import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { runSetup } from '../../src/setup/setup.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { sendMail } from '../support/mails.ts'
import { testConfig } from '../support/prepare.ts'
import { storeFile } from '../support/stored-files.ts'

let api: Api

beforeAll(async () => {
  api = await startApi({
    REQUIRE_EMAIL_VERIFICATION: 'true',
    AUTH_APP_URL: 'https://app.example',
    SEND_WELCOME_EMAIL: 'true',
    WELCOME_EMAIL_SUBJECT: '<b>{{ user.firstName }}</b> & welcome',
    AUTH_RATE_LIMIT: '1000',
  })
})

const page = (path = '', headers: Record<string, string> = {}) =>
  api.anonymous('GET', `/_dev/mail${path}`, undefined, headers)

/** Registers, and does the mail worker's work. */
async function register(firstName = 'Ada'): Promise<{ email: string; ids: Record<string, string> }> {
  const email = `${api.runtime.newId()}@mail.example`
  const person = { email, firstName, lastName: 'Reader', password: 'a long enough password' }
  const { status, text } = await api.anonymous('POST', '/auth/register', person)
  expect(status, text).toBe(200)
  const rows = await api.sql('select id, "templateName" from "svc_EmailLog" where email = $1', [email])
  const mailer = openMailer()
  const attempt = { retryCount: 0, retryLimit: 0, signal: new AbortController().signal }
  for (const { id } of rows) await sendMail(api.runtime, mailer, id, attempt)
  mailer.close()
  return { email, ids: Object.fromEntries(rows.map(({ id, templateName }) => [templateName, id])) }
}

describe('without a sender, outside production', () => {
  it('a mail is kept, shown with its links, and the link works', async () => {
    const { email, ids } = await register()
    const list = await page()
    expect(list.headers['content-type']).toContain('text/html')
    expect(list.text).toContain(email)
    expect(list.text).toContain(`href="/_dev/mail/${ids.verification}"`)
    const mail = await page(`/${ids.verification}`)
    const [, token] = /https:\/\/app\.example\/auth\/verify-email\/([0-9a-f]{64})/.exec(mail.text) ?? []
    const [, api_] = /href="(\/auth\/email\/verify\/[0-9a-f]{64})"/.exec(mail.text) ?? []
    expect(api_).toBe(`/auth/email/verify/${token}`)
    expect((await page(`/${ids.verification}/html`)).text).toContain(`verify-email/${token}`)
    expect((await page(`/${ids.verification}/html`)).text).toContain('src="data:image/png;base64,')
    expect((await page(`/${ids.verification}/text`)).text).toContain(`verify-email/${token}`)
    expect((await api.anonymous('GET', api_!)).status).toBe(200)
    expect(await api.sql('select "emailVerified" from "svc_User" where email = $1', [email])).toEqual([
      { emailVerified: true },
    ])
  })

  it('its attachments are there to be saved, under the names that they were sent with', async () => {
    const { ids } = await register()
    const file = await storeFile(api, { content: '<script>1</script>', type: 'text/html', name: 'März <1>.html' })
    const sent = [{ file: file.id }, { file: file.id, filename: 'bill.html' }, { file: api.runtime.newId() }]
    await api.sql(`update "svc_EmailLog" set context = (context::jsonb || $2::jsonb)::json where id = $1`, [
      ids.verification,
      JSON.stringify({ attachments: sent }),
    ])
    const { text } = await page(`/${ids.verification}`)
    const links = [...text.matchAll(/<a href="([^"]+\/attachments\/\d)">([^<]+)</g)].map(([, href, name]) => [
      href,
      name,
    ])
    const at = (n: number) => `/_dev/mail/${ids.verification}/attachments/${n}`
    expect(links).toEqual([
      [at(0), 'März &#60;1&#62;.html'],
      [at(1), 'bill.html'],
      [at(2), 'a file that is gone'],
    ])
    const { status, headers, text: content } = await page(`/${ids.verification}/attachments/1`)
    expect([status, content]).toEqual([200, '<script>1</script>'])
    expect(headers).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-disposition': expect.stringContaining('attachment; filename="bill.html"'),
      'x-content-type-options': 'nosniff',
    })
    for (const n of ['2', '3', '-1', 'x']) {
      const { status } = await page(`/${ids.verification}/attachments/${n}`)
      expect([n, status]).toEqual([n, 404])
    }
  })

  it('the mail log says that it was sent, and to where, without its secret', async () => {
    const { ids } = await register()
    const [row] = await api.sql('select * from "svc_EmailLog" where id = $1', [ids.verification])
    expect(row).toMatchObject({
      status: 'sent',
      sender: 'development inbox',
      messageId: `<${ids.verification}@localhost>`,
    })
    const [, token] = /verify-email\/([0-9a-f]{64})/.exec((await page(`/${ids.verification}`)).text)!
    expect(JSON.stringify([row, await api.log()])).not.toContain(token)
  })

  it('welcomes a user who registers, with the subject of WELCOME_EMAIL_SUBJECT', async () => {
    const { ids, email } = await register('<i>Ada</i>')
    const mail = await page(`/${ids.welcome}`)
    expect(mail.text).toContain('<h1>&#60;b&#62;&#60;i&#62;Ada&#60;/i&#62;&#60;/b&#62; &#38; welcome</h1>')
    expect(mail.text).not.toContain('<i>')
    expect((await page(`/${ids.welcome}/text`)).text).toContain(email)
  })

  it('signing in by mail counts as possible', async () => {
    expect((await api.anonymous('GET', '/')).body.data.auth.magicLink).toBe(true)
  })

  it('no page runs a script or fetches anything', async () => {
    const { ids } = await register()
    for (const path of ['', `/${ids.verification}`, `/${ids.verification}/html`]) {
      const { headers, text } = await page(path)
      expect(headers['content-security-policy']).toMatch(/^default-src 'none'; style-src 'unsafe-inline';/)
      expect(headers).toMatchObject({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' })
      expect(text).not.toMatch(/<script|<link|@import/)
    }
    expect((await page(`/${ids.verification}/html`)).headers['content-security-policy']).toContain(
      'sandbox allow-popups',
    )
  })

  it.each([
    ['comes through a proxy', { 'x-forwarded-for': '192.0.2.1' }],
    ['has the name of another site', { host: 'evil.example' }],
    ['has a name that only begins like ours', { host: 'localhost.evil.example' }],
  ])('nobody reads it whose request %s', async (_what, headers) => {
    expect((await page('', headers)).status).toBe(404)
  })

  it('it cannot be read from another machine', async () => {
    const response = await api.app.inject({ method: 'GET', url: '/_dev/mail', remoteAddress: '192.0.2.1' })
    expect(response.statusCode).toBe(404)
  })

  it.each(['x', '00000000-0000-4000-8000-000000000000', "'%20or%201=1"])('there is no mail %s', async (id) => {
    expect((await page(`/${id}`)).status).toBe(404)
  })
})

it('in production there is no inbox, and nothing is kept', async () => {
  await register()
  const before = await api.sql('select count(*) from "svc_DevelopmentMail"')
  const app = await configured(api.database, { NODE_ENV: 'production' })
  for (const path of ['', '/x', '/x/html'])
    expect((await app.inject({ method: 'GET', url: `/_dev/mail${path}` })).statusCode).toBe(404)
  expect((await app.inject({ method: 'GET', url: '/' })).json().data.auth.magicLink).toBe(false)
  expect(await api.sql('select count(*) from "svc_DevelopmentMail"')).toEqual(before)
  await runSetup(testConfig(api.database.url, { NODE_ENV: 'production' }), pino({ level: 'silent' }))
  expect(await api.sql('select * from "svc_DevelopmentMail"')).toEqual([])
})
