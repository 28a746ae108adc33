import type { Page } from 'playwright-core'
import { beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, startConsole } from '../support/console.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'

describeWithBrowser('the console at several tenants', () => {
  let it_: Console
  let role: string
  let tenants: readonly string[]

  beforeAll(async () => {
    it_ = await startConsole({ MULTI_TENANT: 'true' })
    const { api } = it_
    await api.admin('POST', '/schemas', { collectionName: 'tag', schema: { fields: { label: { type: 'String' } } } })
    role = await createRole(api)
    await grant(api, role, ...['create', 'read'].map((action) => ({ collection: 'tag', action, fields: ['*'] })))
    tenants = [await createTenant(api, 'Alpha'), await createTenant(api, 'Beta')]
  })

  /** A page of a new member of both tenants, at the first one: switching ends the session that it came with. */
  async function visit(path: string): Promise<Page> {
    const { id, email } = await createUser(it_.api, role, tenants[0]!)
    const insert = 'insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)'
    await it_.api.sql(insert, [id, role, tenants[1]])
    return (await it_.visit(path, { as: { email, password: 'password of a user' } })).page
  }

  async function switchTo(page: Page, tenant_Id: string): Promise<void> {
    const options = { data: { tenant_Id, authMode: 'cookie' }, headers: { origin: it_.address } }
    const answer = await page.context().request.post(`${it_.address}/auth/switch-tenant`, options)
    expect(answer.status()).toBe(200)
  }

  const said = (page: Page) =>
    page.getByText('In another tab you have signed in as another user or switched the tenant')
  const labels = async () => it_.api.sql('select label, "tenant_Id" from tag order by label')

  it.each([
    ['is looked at again', true],
    ['knows nothing of it', false],
  ])('a page writes nothing once another tab has switched the tenant, where it %s', async (_how, isLookedAt) => {
    const page = await visit('/data/tag/new')
    const label = page.getByLabel(/^label/)
    await label.fill('typed at Alpha')
    // What is under way with the former session would end the new one's cookie.
    await page.waitForLoadState('networkidle')
    await switchTo(page, tenants[1]!)
    if (isLookedAt) {
      await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
      await said(page).waitFor()
      await expectAccessible(page)
    }
    const sent: string[] = []
    page.on('request', (request) => request.method() === 'POST' && sent.push(new URL(request.url()).pathname))
    await page.getByRole('button', { name: 'Create' }).click()
    await said(page).waitFor()
    expect(await page.locator('main').getByRole('alert').first().textContent()).toContain('Nothing was sent')
    expect(await label.inputValue()).toBe('typed at Alpha')
    expect(sent).toEqual([])
    expect(await labels()).toEqual([])

    // Back at the tenant that it shows, the page saves what was typed.
    await switchTo(page, tenants[0]!)
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: /typed at Alpha/ }).waitFor()
    expect(await labels()).toEqual([{ label: 'typed at Alpha', tenant_Id: tenants[0] }])
    await said(page).waitFor({ state: 'detached' })
    await it_.api.sql('delete from tag')
  })

  it('goes on at the other tenant once it was loaded again', async () => {
    const page = await visit('/data/tag')
    await page.getByRole('button', { name: /Alpha/ }).first().waitFor()
    await page.waitForLoadState('networkidle')
    await switchTo(page, tenants[1]!)
    await page.goto(`${it_.address}/console/data/tag/new`)
    await page.getByLabel(/^label/).fill('typed at Beta')
    await page.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: /typed at Beta/ }).waitFor()
    expect(await labels()).toEqual([{ label: 'typed at Beta', tenant_Id: tenants[1] }])
  })
})
