import type { Locator, Page } from 'playwright-core'
import decodeQR from 'qr/decode.js'
import sharp from 'sharp'
import { beforeAll, expect, it, onTestFinished } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { appCode } from '../support/totp.ts'

/** Runs wherever it is taken for HTML. */
const attack = `"><img src=x onerror=alert(1)><svg onload=alert(2)>`
const password = 'password of a user'

/** What a camera reads of a picture. */
async function scan(picture: Locator): Promise<string> {
  const { data, info } = await sharp(await picture.screenshot())
    .ensureAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true })
  return decodeQR({ width: info.width, height: info.height, data })
}

describeWithBrowser('people', () => {
  let it_: Console
  const roles: Record<string, string> = {}
  const rows = async (query: string) => (await it_.api.admin('GET', `/items/${query}`)).body.data
  const dialog = (page: Page, name: string | RegExp) => page.getByRole('dialog', { name })

  beforeAll(async () => {
    it_ = await startConsole({
      MULTI_TENANT: 'true',
      AUTH_SERVICES_ENABLED: 'LOCAL,TWOFACTOR,PASSKEY',
      PASSKEY_RP_ID: 'localhost',
      PASSKEY_RP_NAME: 'Acme',
      AUTH_APP_URL: 'https://app.example.com',
    })
    const { api } = it_
    await api.admin('POST', '/schemas', { collectionName: 'book', schema: { fields: { title: { type: 'String' } } } })
    for (const [name, grants] of Object.entries({ reader: ['read'], writer: ['read', 'create'] })) {
      const { body } = await api.admin('POST', '/items/svc_Role', { name })
      roles[name] = body.data.id
      for (const action of grants)
        await api.admin('POST', '/permissions', { role_Id: body.data.id, collection: 'book', action, fields: '*' })
    }
    await createTenant(api, `Acme ${attack}`)
    await createTenant(api, 'Bakery')
    await createUser(api, roles.reader!, await createTenant(api, 'Dairy'))
  })

  it('makes a user, shows what another role opens, and blocks them', async () => {
    const { page, wrong } = await it_.visit('/people')
    await page.getByRole('button', { name: 'New user' }).click()
    const form = dialog(page, 'New user')
    await form.getByText('No mail is sent.').waitFor()
    await form.getByLabel('First name').fill(attack)
    await form.getByLabel('E-mail').fill('eve@example.com')
    await form.getByLabel('Password').fill(password)
    await form.getByLabel('Role').selectOption('reader')
    await form.getByLabel('Tenant').selectOption('Bakery')
    await form.getByLabel('The address is known').check()
    await expectAccessible(page)
    await form.getByRole('button', { name: 'Create' }).click()
    await page.getByRole('heading', { name: attack }).waitFor()
    await expectFits(page)

    const { api } = it_
    const before = await api.position()
    const parts = page.getByLabel('Roles', { exact: true })
    await parts.getByRole('button', { name: 'Change…' }).click()
    const change = dialog(page, /^Another role/)
    await change.getByLabel('Role').selectOption('writer')
    await change.getByLabel('May then').getByText('create book').waitFor()
    await change.getByText('They lose nothing.').waitFor()
    await expectAccessible(page)
    await change.getByRole('button', { name: 'Save' }).click()
    await parts.getByText('writer').waitFor()
    expect((await api.log(before)).map(({ entity, action }) => `${entity} ${action}`)).toEqual(['svc_UserRole update'])

    await page.getByRole('link', { name: 'People' }).first().click()
    await page.getByLabel('Role').selectOption('writer')
    await page.getByText('1 user', { exact: true }).waitFor()
    await page.getByLabel('Role').selectOption('')
    await page.getByLabel('Find people').fill('eve@ex')
    await page.getByLabel('Find people').press('Enter')
    await page.waitForURL(/q=eve/)
    await page.getByText('1 user', { exact: true }).waitFor()
    await expectFits(page)
    await page.getByRole('link', { name: attack }).click()
    await page.getByRole('button', { name: 'Block…' }).click()
    await dialog(page, /^Block/)
      .getByRole('button', { name: 'Block' })
      .click()
    await page.getByLabel('Profile').getByText('suspended').first().waitFor()
    const refused = await api.anonymous('POST', '/auth/login', { email: 'eve@example.com', password })
    expect(refused.status).not.toBe(200)
    expect(wrong).toEqual([])
  })

  it('invites, sends again and revokes, and shows a tenant’s members', async () => {
    const { page, wrong } = await it_.visit('/people/invitations')
    await page.getByRole('button', { name: 'Invite', exact: true }).click()
    const form = dialog(page, 'Invite somebody')
    await form.getByLabel('E-mail').fill('new@example.com')
    await form.getByLabel('Role').selectOption('reader')
    await form.getByLabel('Tenant').selectOption('Bakery')
    await expectAccessible(page)
    await form.getByRole('button', { name: 'Invite' }).click()
    const table = page.getByLabel('Invitations').getByRole('row')
    await table.filter({ hasText: 'new@example.com' }).getByText('pending').waitFor()
    await page.getByRole('button', { name: 'Send again to new@example.com' }).click()
    await table.filter({ hasText: 'revoked' }).waitFor()
    await table.filter({ hasText: 'pending' }).waitFor()
    await expectFits(page)
    await page.getByRole('button', { name: 'Revoke the invitation of new@example.com' }).click()
    await expect
      .poll(() => rows('svc_Invite?fields=status').then((all) => all.map(({ status }: any) => status)))
      .toEqual(['revoked', 'revoked'])
    expect(
      (await rows('svc_EmailLog?fields=email')).filter(({ email }: any) => email === 'new@example.com').length,
    ).toBe(2)

    await page.getByLabel('People').getByRole('link', { name: 'Tenants' }).click()
    await page.getByText(`Acme ${attack}`).waitFor()
    await expectFits(page)
    await page.getByRole('row').filter({ hasText: 'Dairy' }).getByRole('link').click()
    await page.waitForURL(/tenant=/)
    await page.getByText('1 user', { exact: true }).waitFor()

    await page.getByLabel('People').getByRole('link', { name: 'Roles' }).click()
    await page.getByRole('button', { name: 'Edit writer' }).click()
    await dialog(page, 'The role writer').getByLabel('reader').check()
    await expectAccessible(page)
    await dialog(page, 'The role writer').getByRole('button', { name: 'Save' }).click()
    await expect.poll(async () => (await rows(`svc_Role/${roles.writer}`)).canInviteRoleIds).toEqual([roles.reader])
    await expectFits(page)
    expect(wrong).toEqual([])
  })

  it('ends a session, and the other browser is signed out', async () => {
    const { api } = it_
    const user = await api.user([{ collection: 'book', action: 'read', fields: '*' }])
    const other = await it_.visit('/data', { as: { email: user.email, password } })
    await other.page.getByRole('heading', { name: 'Data' }).waitFor()
    const { page, wrong } = await it_.visit(`/people/${user.id}`)
    const sessions = page.getByLabel('Sessions and devices')
    await sessions.getByRole('button', { name: 'End: Chrome on Linux' }).click()
    await expect.poll(() => sessions.getByRole('listitem').filter({ hasText: 'Chrome' }).count()).toBe(0)
    await other.page.reload()
    await other.page.getByRole('heading', { name: /^Sign in/ }).waitFor()
    expect(wrong).toEqual([])
  })

  it('makes a key that works until it is revoked, a second factor, a passkey, and another password', async () => {
    const { api } = it_
    const own = { collection: 'svc_User', conditions: { id: '$CURRENT_USER' } }
    const role = await createRole(api)
    await grant(
      api,
      role,
      { ...own, action: 'read', fields: ['firstName', 'lastName', 'phone'] },
      { ...own, action: 'update', fields: ['firstName', 'phone'] },
      { collection: 'book', action: 'read', fields: '*' },
    )
    const user = await createUser(api, role, await createTenant(api, 'Cafe'))
    const { page, wrong } = await it_.visit('/account', { as: { email: user.email, password } })
    await page.getByLabel('Profile').getByLabel('First name').fill(attack)
    await page.getByLabel('Profile').getByRole('button', { name: 'Save' }).click()
    await expect.poll(async () => (await rows(`svc_User/${user.id}`)).firstName).toBe(attack)
    await expectFits(page)

    await page.getByRole('button', { name: 'New key' }).click()
    const made = dialog(page, 'New API key')
    await made.getByLabel('Name').fill('import')
    await made.getByLabel('Your password now').fill('not it')
    await made.getByRole('button', { name: 'Make it' }).click()
    await made.getByText('This does not confirm').waitFor()
    await made.getByText('Check the password').waitFor()
    await made.getByLabel('Your password now').fill(password)
    await made.getByRole('button', { name: 'Make it' }).click()
    const key = (await made.getByLabel('API key', { exact: true }).textContent())!
    await expectAccessible(page)
    expect((await api.as(key)('GET', '/items/book')).status).toBe(200)
    await page.keyboard.press('Escape')
    const question = dialog(page, 'Close without keeping it?')
    await question.getByRole('button', { name: 'Cancel' }).click()
    await question.waitFor({ state: 'detached' })
    expect(await made.getByLabel('API key', { exact: true }).textContent()).toBe(key)
    await made.getByRole('button', { name: 'I have kept it' }).click()
    await made.waitFor({ state: 'detached' })
    expect(await page.content()).not.toContain(key)
    await page.getByRole('button', { name: 'Revoke import' }).click()
    await dialog(page, 'Revoke import').getByRole('button', { name: 'Revoke' }).click()
    await page.getByText('None. With a key').waitFor()
    expect((await api.as(key)('GET', '/items/book')).status).toBe(401)

    await page.getByRole('button', { name: 'Set up…' }).click()
    const setUp = dialog(page, 'Set up a second factor')
    await setUp.getByLabel('Your password now').fill(password)
    await setUp.getByRole('button', { name: 'Continue' }).click()
    const secret = (await setUp.getByLabel('Secret', { exact: true }).textContent())!
    const scanned = new URL(await scan(setUp.getByRole('img', { name: 'QR code of the secret' })))
    expect({ protocol: scanned.protocol, secret: scanned.searchParams.get('secret') }).toEqual({
      protocol: 'otpauth:',
      secret,
    })
    await expectFits(page)
    await setUp.getByLabel('Code that the app shows').fill(appCode(secret))
    await setUp.getByRole('button', { name: 'Switch on' }).click()
    const backup = dialog(page, 'Backup codes')
    const [code] = (await backup.getByLabel('Backup codes', { exact: true }).textContent())!.split(' ')
    await page.mouse.click(5, 400)
    const unkept = dialog(page, 'Close without keeping them?')
    await unkept.getByRole('button', { name: 'Cancel' }).click()
    await unkept.waitFor({ state: 'detached' })
    await expectAccessible(page)
    await backup.getByRole('button', { name: 'I have kept them' }).click()
    await backup.waitFor({ state: 'detached' })
    expect(await page.content()).not.toContain(code)
    await page.getByRole('button', { name: 'Switch off…' }).click()
    await dialog(page, 'Switch the second').getByLabel('Your password now').fill(password)
    await dialog(page, 'Switch the second').getByRole('button', { name: 'Switch off' }).click()
    await page.getByRole('button', { name: 'Set up…' }).waitFor()

    // The authenticator stays with the page.
    onTestFinished(() => page.close())
    const devtools = await page.context().newCDPSession(page)
    await devtools.send('WebAuthn.enable')
    await devtools.send('WebAuthn.addVirtualAuthenticator', {
      options: {
        ...{ protocol: 'ctap2', transport: 'internal', hasResidentKey: true, hasUserVerification: true },
        ...{ isUserVerified: true, automaticPresenceSimulation: true },
      },
    })
    await page.getByRole('button', { name: 'Add this device' }).click()
    const device = dialog(page, 'Add this device')
    await device.getByLabel('Name').fill('My laptop')
    await device.getByLabel('Your password now').fill(password)
    await device.getByRole('button', { name: 'Add', exact: true }).click()
    await page.getByRole('button', { name: 'Remove My laptop' }).waitFor()

    const form = page.getByLabel('Password', { exact: true }).first()
    await form.getByLabel('Password now').fill(password)
    await form.getByLabel('New password').fill('another good password')
    await form.getByRole('button', { name: 'Change it' }).click()
    await page.getByText('Your password is changed').waitFor()
    expect((await user.call('GET', '/auth/check')).status).toBe(401)
    expect(wrong.filter((text) => !/status of 40[13]/.test(text))).toEqual([])
  })

  it('shows people to those who may see them, and what they may not as refused', async () => {
    const user = await it_.api.user([{ collection: 'book', action: 'read', fields: '*' }])
    const { page } = await it_.visit('/people', { as: { email: user.email, password } })
    await page.getByRole('alert').waitFor()
    expect(await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'People' }).count()).toBe(0)
    await expectAccessible(page)
  })
})
