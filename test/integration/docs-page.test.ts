import type { AddressInfo } from 'node:net'
import type { Browser, Page } from 'playwright-core'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { describeWithBrowser, startBrowser } from '../support/browser.ts'
import { administrator } from '../support/prepare.ts'
import { longestWaitMs, waitFor } from '../support/wait.ts'

let api: Api
let address: string

beforeAll(async () => {
  api = await startApi()
  const schema = { description: 'Things to do', fields: { title: { type: 'String' } } }
  const { status } = await api.admin('POST', '/schemas', { collectionName: 'chore', schema })
  expect(status).toBe(201)
  await api.admin('POST', '/items/chore', { title: 'Sweep' })
  await api.app.listen({ host: '127.0.0.1', port: 0 })
  address = `http://127.0.0.1:${(api.app.server.address() as AddressInfo).port}`
})

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"

describe('GET /docs', () => {
  it('is a page with four files, which may reach no other server and are requested once', async () => {
    for (const [path, type] of [
      ['/docs', 'text/html'],
      ['/docs/init.js', 'text/javascript'],
      ['/docs/page.css', 'text/css'],
      ['/docs/swagger-ui.css', 'text/css'],
      ['/docs/swagger-ui-bundle.js', 'text/javascript'],
    ]) {
      const { status, headers } = await api.anonymous('GET', path!)
      expect({ path, status }).toEqual({ path, status: 200 })
      expect(headers).toMatchObject({
        'content-type': `${type}; charset=utf-8`,
        'content-security-policy': policy,
        'x-content-type-options': 'nosniff',
      })
      const again = { 'if-none-match': headers.etag as string }
      expect((await api.anonymous('GET', path!, undefined, again)).status).toBe(304)
      const small = await api.anonymous('GET', path!, undefined, { 'accept-encoding': 'gzip' })
      expect(small.headers['content-encoding']).toBe('gzip')
    }
    expect(await api.anonymous('GET', '/docs/')).toMatchObject({ status: 308, headers: { location: '../docs' } })
    expect((await api.anonymous('GET', '/docs/package.json')).status).toBe(404)
  })
})

describeWithBrowser('the page in a browser', () => {
  let browser: Browser
  beforeAll(async () => {
    browser = await startBrowser()
  })

  /** A new visitor; what the console or the policy complains of, and every request to another server, is collected. */
  async function visit(options: Parameters<Browser['newContext']>[0] = {}): Promise<{ page: Page; wrong: string[] }> {
    const context = await browser.newContext(options)
    onTestFinished(() => context.close())
    const page = await context.newPage()
    // Less than the test has, so that a failure names its step.
    page.setDefaultTimeout(longestWaitMs)
    const wrong: string[] = []
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') wrong.push(message.text())
    })
    page.on('pageerror', (error) => wrong.push(error.message))
    page.on('request', (request) => {
      if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(address)) wrong.push(request.url())
    })
    await page.goto(`${address}/docs`)
    await page.waitForSelector('.swagger-ui .info')
    return { page, wrong }
  }

  it('shows more to a user who signs in, can be searched and tries requests as them', async () => {
    const { page, wrong } = await visit()
    expect(await page.locator('#who').textContent()).toBe('You see what anybody may do.')
    expect(await page.locator('#hidden-families').textContent()).toContain('OPENAPI_INCLUDE_AUTH=true')
    expect(await page.locator('.opblock-tag', { hasText: 'chore' }).count()).toBe(0)
    await page.fill('#sign-in [name=email]', administrator.email)
    await page.fill('#sign-in [name=password]', administrator.password)
    await page.click('#sign-in button')
    await page.waitForSelector('.opblock-tag:has-text("chore")')
    expect(await page.locator('#who').textContent()).toBe(`You see what ${administrator.email} may do.`)
    await page.fill('.operation-filter-input', '/items/chore')
    await waitFor(async () => (await page.locator('.opblock-tag').count()) === 1)
    await page.click('.opblock-tag:has-text("chore")')
    await page.click('.opblock-get:has([data-path="/items/chore"]) .opblock-summary-control')
    await page.click('.try-out__btn')
    await page.click('.execute')
    await page.waitForSelector('.live-responses-table .response-col_status:has-text("200")')
    expect(await page.locator('.live-responses-table').textContent()).toContain('Sweep')
    // An operation is shown from the part of the document that it needs, and has all of it.
    const documented = page.locator('.responses-table:not(.live-responses-table)')
    expect(await documented.locator('[data-code="200"]').textContent()).toContain('title')
    const refused = await documented.locator('[data-code="403"]').textContent()
    expect(refused).toContain('The caller may not do this.')
    expect(refused).toContain('"message"')
    expect(await page.locator('.errors-wrapper').count()).toBe(0)
    expect(await page.evaluate('[localStorage.length, document.cookie]')).toEqual([0, ''])
    await page.click('#sign-out')
    await page.locator('.opblock-tag:has-text("chore")').waitFor({ state: 'detached' })
    expect(wrong).toEqual([])
  })

  it('says why a sign-in fails, and shows what a token opens', async () => {
    const { page, wrong } = await visit()
    await page.fill('#sign-in [name=email]', administrator.email)
    await page.fill('#sign-in [name=password]', 'not the password')
    await page.click('#sign-in button')
    await page.locator('#who', { hasText: 'password' }).waitFor()
    const { token } = await api.user([{ collection: 'chore', action: 'read' }])
    await page.fill('#by-key [name=token]', token)
    await page.click('#by-key button')
    await page.waitForSelector('.opblock-tag:has-text("chore")')
    // The browser notes the refusal itself.
    expect(wrong.filter((text) => !/status of 4\d\d/.test(text))).toEqual([])
  })

  it('fits a phone, dark and light', async () => {
    const { page, wrong } = await visit({ viewport: { width: 390, height: 844 }, isMobile: true })
    const widest = () => page.evaluate('document.documentElement.scrollWidth')
    const paper = () => page.evaluate('getComputedStyle(document.body).backgroundColor')
    for (const [colorScheme, color] of [
      ['dark', 'rgb(28, 32, 34)'],
      ['light', 'rgb(255, 255, 255)'],
    ] as const) {
      await page.emulateMedia({ colorScheme })
      await waitFor(async () => (await paper()) === color, { what: `the paper to be ${colorScheme}` })
      expect(await widest()).toBeLessThanOrEqual(390)
    }
    expect(wrong).toEqual([])
  })
})
