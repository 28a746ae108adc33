import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { openSettings, smtpPassword } from '../../src/features/settings/settings.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let tenant: string

beforeAll(async () => {
  api = await startApi()
  tenant = (await api.admin('POST', '/items/svc_Tenant', { name: 'Tenant' })).body.data.id
})

const patch = (body: unknown, query = '', call: Call = api.admin) => call('PATCH', `/settings${query}`, body)
const settings = async (query = '', call: Call = api.admin) => (await call('GET', `/settings${query}`)).body.data
const ofTenant = () => `?tenant_id=${tenant}`
const story = async (position: bigint) => (await api.log(position)).map(({ action, entity }) => `${action} ${entity}`)

describe('GET /settings', () => {
  it('shows everybody an allow-list with flattened limits', async () => {
    const roles = { [randomUUID()]: { web: 1, mobile: 1 } }
    await patch({
      session_limits: { default: { web: 3 }, roles },
      smtp_host: 'mail.example.com',
      smtp_pass: 'a secret',
    })
    const data = await settings('', api.anonymous)
    expect(data).toMatchObject({
      id: expect.any(Number),
      project_name: expect.any(String),
      timezone: 'UTC',
      smtp_enabled: false,
      session_limits: { web: 3, mobile: -1 },
      web_session_limit: 3,
      mobile_session_limit: -1,
      updatedAt: expect.stringMatching(/^\d{4}-.+\.\d{3}Z$/),
    })
    const secret = ['smtp_host', 'smtp_port', 'smtp_secure', 'smtp_user', 'smtp_pass', 'smtp_from_address']
    expect(Object.keys(data)).not.toEqual(expect.arrayContaining([expect.stringMatching(secret.join('|'))]))
    expect(JSON.stringify(data)).not.toContain('mail.example.com')
    expect(JSON.stringify(data)).not.toContain(Object.keys(roles)[0])
    await patch({ app_url: 'https://public.example.com' })
    const byUrl = await api.anonymous('GET', '/settings/by-app-url?app_url=https://public.example.com')
    expect(Object.keys(byUrl.body.data)).toEqual(Object.keys(data))
    const branding = await api.anonymous('GET', `/settings/branding?tenant_id=${tenant}`)
    for (const { status, text } of [byUrl, branding, await api.anonymous('GET', '/settings?fields=*,smtp_host')]) {
      expect(status).toBe(200)
      expect(text).not.toMatch(/"smtp_(?!enabled)|mail\.example\.com|"roles"/)
    }
    await patch({ app_url: null })
  })

  it('shows administrators everything but the password', async () => {
    const data = await settings()
    expect(data).toMatchObject({ smtp_host: 'mail.example.com', smtp_pass: '********', web_session_limit: 3 })
    expect(data.session_limits.roles).toEqual(expect.any(Object))
  })

  it('takes ids of tenants only', async () => {
    expect(await api.anonymous('GET', '/settings?tenant_id=x')).toMatchObject({ status: 404 })
  })
})

describe('PATCH /settings', () => {
  it.each<[string, unknown]>([
    ['an unknown key', { smtp_password: 'x' }],
    ['a key of every object', { constructor: 'x' }],
    ['no object', ['project_name']],
    ['a number for a text', { title: 5 }],
    ['a text for a switch', { smtp_enabled: 'true' }],
    ['no port', { smtp_port: 70_000 }],
    ['a host with a port', { smtp_host: '127.0.0.1:5432/x' }],
    ['a header in a host', { smtp_host: 'a\r\nRCPT TO:<x@example.com>' }],
    ['no colour', { project_color: 'red;}' }],
    ['a script as address', { app_url: 'javascript:alert(1)' }],
    ['an address with a user', { app_url: 'https://app.example.com@evil.test' }],
    ['no time zone', { timezone: 'Mars/Olympus' }],
    ['no limits', { session_limits: { default: { web: -2 } } }],
    ['limits of no role', { session_limits: { roles: { administrator: { web: 1 } } } }],
    ['no name at all', { project_name: null }],
  ])('refuses %s', async (_what, body) => {
    const before = await api.position()
    expect(await patch(body)).toMatchObject({ status: 400, body: { error: { message: 'Invalid settings data' } } })
    expect(await api.log(before)).toEqual([])
  })

  it('takes back what GET answers, and ignores what only the server says', async () => {
    await patch({ title: 'Given back', session_limits: { default: { web: 3 }, roles: {} }, smtp_pass: 'kept' })
    const { updatedAt: _, ...before } = await settings()
    expect(Object.keys(before)).toEqual(expect.arrayContaining(['id', 'tenant_Id', 'createdAt', 'web_session_limit']))
    const answer = await patch({ ...before, id: 7, tenant_Id: tenant, createdAt: 'x', mobile_session_limit: 99 })
    expect(answer.status, answer.text).toBe(200)
    expect(await settings()).toMatchObject(before)
    expect(smtpPassword(api.runtime.config, api.runtime.settings.current())).toBe('kept')
    await patch({ smtp_pass: null, session_limits: null })
  })

  it.each<[unknown, string[]]>([
    [{ default: { web: 'two', mobile: 1.5 } }, ['.default.web: expected a whole', '.default.mobile: expected a whole']],
    [{ web: 2 }, ['.web: belongs in .default, as default.web']],
    [{ defaults: {} }, ['.defaults: unknown; there are default and roles']],
    [{ default: { desktop: 1 } }, ['.default.desktop: unknown; there are web and mobile']],
    [{ roles: { user: { web: 1 } } }, ['.roles.user: expected the id of a role']],
    [{ roles: [] }, ['.roles: expected an object of role ids']],
    [5, [': expected { default: { web, mobile }, roles: { <role id>: { web, mobile } } }']],
  ])('says what is wrong with the session limits %j', async (limits, problems) => {
    const { status, body } = await patch({ session_limits: limits })
    expect(status).toBe(400)
    expect(body.error.details).toEqual(problems.map((text) => expect.stringContaining(`session_limits${text}`)))
  })

  it('is for administrators', async () => {
    const words = (message: string) => ({ body: { error: { message } } })
    expect(await patch({ title: 'x' }, '', api.anonymous)).toMatchObject({ status: 401, ...words('Unauthorized') })
    const { call } = await api.user()
    expect(await patch({ title: 'x' }, '', call)).toMatchObject({ status: 403, ...words('Forbidden') })
  })

  it('answers the record and holds at once, in the project info too', async () => {
    const before = await api.position()
    const { status, body } = await patch({ title: 'A title', project_color: '#123456', metadata: { a: [1] } })
    expect(status).toBe(200)
    expect(body.data).toMatchObject({ id: expect.any(Number), title: 'A title', metadata: { a: [1] } })
    expect((await api.anonymous('GET', '/')).body.data).toMatchObject({ title: 'A title', project_color: '#123456' })
    expect(await story(before)).toEqual(['update svc_Settings', 'settings svc_Settings'])
    expect(await api.jobs('mail')).toEqual([])
  })

  it('keeps the password sealed in table and log, and as it is under its mask', async () => {
    const before = await api.position()
    await patch({ smtp_pass: 'first secret' })
    const sealed = async () =>
      (await api.sql('select smtp_pass from "svc_Settings" where "tenant_Id" is null'))[0].smtp_pass
    const first = await sealed()
    expect(first).not.toContain('secret')
    await patch({ smtp_pass: '********', title: 'Another' })
    expect(await sealed()).toBe(first)
    expect(smtpPassword(api.runtime.config, api.runtime.settings.current())).toBe('first secret')
    expect(JSON.stringify(await api.log(before))).not.toContain(first)
    await patch({ smtp_pass: null })
    expect(await settings()).toMatchObject({ smtp_pass: null })
  })
})

describe('another smtp_host', () => {
  it('takes no password of the old one with it', async () => {
    await patch({ smtp_host: 'mail.example.com', smtp_pass: 'for the old host' })
    expect((await patch({ smtp_host: 'mail.example.com' })).body.data.smtp_pass).toBe('********')
    const id = api.runtime.settings.current().id
    expect(await api.admin('PATCH', `/items/svc_Settings/${id}`, { smtp_host: 'other.example.com' })).toMatchObject({
      status: 400,
    })
    expect((await patch({ smtp_host: 'other.example.com' })).body.data.smtp_pass).toBeNull()
    const both = await patch({ smtp_host: 'mail.example.com', smtp_pass: 'for the new host' })
    expect(both.body.data.smtp_pass).toBe('********')
  })
})

describe("a tenant's settings", () => {
  it('override the installation key by key, the session limits as a whole', async () => {
    await patch({ title: 'Global', description: 'Global text', session_limits: { default: { web: 3, mobile: 4 } } })
    await patch({ title: 'Own', session_limits: { default: { web: 1 } } }, ofTenant())
    expect(await settings(ofTenant(), api.anonymous)).toMatchObject({
      tenant_Id: tenant,
      title: 'Own',
      description: 'Global text',
      smtp_enabled: false,
      secondary_color: '#f0f0f0',
      web_session_limit: 1,
      mobile_session_limit: -1,
    })
    await patch({ secondary_color: '#abcdef' })
    expect(await settings(ofTenant())).toMatchObject({ secondary_color: '#abcdef' })
    await patch({ title: null }, ofTenant())
    expect(await settings(ofTenant())).toMatchObject({ title: 'Global' })
    expect(await settings('', api.anonymous)).toMatchObject({ title: 'Global', web_session_limit: 3 })
  })

  it('are found by app_url, which is one of theirs alone', async () => {
    await patch({ app_url: 'https://app.example.com' })
    await patch({ app_url: 'https://tenant.example.com' }, ofTenant())
    const by = (url: string) => api.anonymous('GET', `/settings/by-app-url?app_url=${encodeURIComponent(url)}`)
    expect((await by('https://app.example.com')).body.data).toMatchObject({ tenant_Id: null })
    expect((await by('https://TENANT.example.com')).body.data).toMatchObject({ tenant_Id: tenant })
    expect(await by('https://other.example.com')).toMatchObject({
      status: 404,
      body: { error: { message: 'No settings found with the provided app_url' } },
    })
    expect(await patch({ app_url: 'https://APP.example.com' }, ofTenant())).toMatchObject({ status: 409 })
    expect(await api.anonymous('GET', '/settings/by-app-url')).toMatchObject({
      status: 400,
      body: { error: { message: 'app_url query parameter is required' } },
    })
  })

  it('are not made for a tenant that does not exist', async () => {
    expect(await patch({ title: 'x' }, `?tenant_id=${randomUUID()}`)).toMatchObject({ status: 404 })
  })

  it('are what GET / answers for the tenant', async () => {
    const [{ id: icon }] = await api.sql(
      `insert into "svc_File" (filename, "originalFilename", type, size, storage) values ('i', 'i', 'image/png', 1, 'l') returning id`,
    )
    await patch({ title: 'Own', project_icon_Id: icon, metadata: { a: 1 }, modules: ['b'] }, ofTenant())
    const { body } = await api.anonymous('POST', `/${ofTenant()}`)
    expect(body.data.title).toBe('Own')
    expect(body.project).toMatchObject({ title: 'Own', metadata: { a: 1 }, modules: ['b'] })
    expect(body.project.branding).toEqual({
      ...{ 'logo-light': null, 'logo-dark': null, 'logo-full': null, 'logo-transparent': null },
      ...{ favicon: null, icon, 'email-icon': null },
    })
    expect((await api.anonymous('GET', '/')).body.project.branding.icon).toBeNull()
    expect(await api.anonymous('GET', '/?tenant_id=x')).toMatchObject({ status: 404 })
    await patch({ title: null, project_icon_Id: null, metadata: null, modules: null }, ofTenant())
  })

  it('brand its mails', async () => {
    await patch({ email_signature: 'Yours' }, ofTenant())
    const { body } = await api.anonymous('GET', `/settings/branding${ofTenant()}`)
    expect(body.data).toEqual({
      project_name: expect.any(String),
      project_color: '#123456',
      email_icon_Id: null,
      email_signature: 'Yours',
    })
    expect(await api.anonymous('GET', '/settings/branding')).toMatchObject({
      status: 400,
      body: { error: { message: 'tenant_id query parameter is required' } },
    })
  })

  it('can be deleted, once', async () => {
    const before = await api.position()
    const remove = () => api.admin('DELETE', `/settings/tenant${ofTenant()}`)
    expect(await remove()).toMatchObject({ status: 200, body: { message: 'Tenant settings deleted successfully' } })
    expect(await story(before)).toEqual(['delete svc_Settings', 'settings svc_Settings'])
    expect(await settings(ofTenant())).toMatchObject({ tenant_Id: null, title: 'Global' })
    expect(await remove()).toMatchObject({ status: 404, body: { error: { message: 'Settings not found' } } })
    expect(await api.admin('DELETE', '/settings/tenant')).toMatchObject({ status: 400 })
  })
})

describe('POST /settings/reload', () => {
  it('reads what was changed past the program', async () => {
    await api.sql(`alter table "svc_Settings" disable trigger user`)
    await api.sql(`update "svc_Settings" set title = 'By hand' where "tenant_Id" is null`)
    await api.sql(`alter table "svc_Settings" enable trigger user`)
    expect(await settings()).toMatchObject({ title: 'Global' })
    const { body } = await api.admin('POST', '/settings/reload')
    expect(body).toEqual({ message: 'Global settings reloaded successfully' })
    expect(await settings()).toMatchObject({ title: 'By hand' })
    expect((await api.admin('POST', `/settings/reload${ofTenant()}`)).body).toEqual({
      message: `Tenant settings reloaded successfully for: ${tenant}`,
    })
  })
})

describe('another process', () => {
  it('follows without being told', async () => {
    const other = await startApi({}, api.database)
    await patch({ title: 'Everywhere' })
    await waitFor(async () => (await settings('', other.anonymous)).title === 'Everywhere')
  })
})

it('a reading that began before a change does not undo it', async () => {
  const { reserved, listener, log } = api.runtime
  const held = Promise.withResolvers<void>()
  let begun = 0
  let read = 0
  const any: typeof reserved.any = async (query) => {
    begun += 1
    const rows = await reserved.any(query)
    read += 1
    if (read === 2) await held.promise
    return rows as never
  }
  const store = await openSettings({ ...reserved, any }, listener, log, 60)
  const early = store.reload()
  await waitFor(() => read === 2)
  await patch({ title: 'Newest' })
  const late = store.reload()
  expect(begun).toBe(2)
  held.resolve()
  await Promise.all([early, late])
  expect(store.current().title).toBe('Newest')
})

describe('settings as items of svc_Settings', () => {
  it('pass the same checks, and the password is sealed', async () => {
    const id = api.runtime.settings.current().id
    const change = (body: object) => api.admin('PATCH', `/items/svc_Settings/${id}`, body)
    expect(await change({ timezone: 'Mars/Olympus' })).toMatchObject({ status: 400 })
    expect(await change({ session_limits: { default: { web: 'x' } } })).toMatchObject({ status: 400 })
    expect(await change({ tenant_Id: tenant })).toMatchObject({ status: 403 })
    const changed = await change({ smtp_pass: 'a secret', smtp_port: 25, session_limits: { default: { web: 2 } } })
    expect(changed.status).toBe(200)
    await api.admin('POST', '/settings/reload')
    expect(smtpPassword(api.runtime.config, api.runtime.settings.current())).toBe('a secret')
  })

  it('keep the row that every installation needs', async () => {
    const id = api.runtime.settings.current().id
    expect(await api.admin('DELETE', `/items/svc_Settings/${id}`)).toMatchObject({ status: 403 })
  })
})
